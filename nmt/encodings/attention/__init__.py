"""Absolute positions at every layer, in queries, keys and scores."""
