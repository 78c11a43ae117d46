"""Images as tokens: the VQGAN that makes them, its files, and the images themselves."""
