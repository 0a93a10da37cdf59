"""Training: the loop, the learning rate, checkpoints that survive a kill, and the run's records."""
