"""Positional encodings: one module each; the seam is base.py, the way in registry.py."""
