"""Turns the text of a corpus into ids: scan, clean, learn, number, store."""
