"""Checks that a small model must pass with any encoding, before it is trained."""
