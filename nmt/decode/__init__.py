"""Beam search, and text in, text out."""
