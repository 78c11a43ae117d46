"""Training: batches, steps, checkpoints, and the run as a whole."""
