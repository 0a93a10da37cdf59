"""From the overrides of a command line to settings: which there are, how they are read, Hydra."""
