"""Other libraries at the same task: standalone scripts that import nothing of nmt."""
