"""Corpora from their sources to files for data=files: fetched, checked, counted, joined."""
