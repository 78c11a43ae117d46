"""Images as tokens: the VQGAN that turns images into tokens and back, its files, and the images themselves."""
