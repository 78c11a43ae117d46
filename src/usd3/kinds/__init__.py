"""What the integers mean: arrays, melodies, tokens of images."""
