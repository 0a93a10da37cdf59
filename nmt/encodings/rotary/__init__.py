"""Rotations and other maps of queries and keys by position."""
