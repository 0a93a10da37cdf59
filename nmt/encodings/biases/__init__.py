"""Relative positions as biases: numbers added to, or multiplied with, the scores."""
