"""Relative positions as vectors: products of queries and keys with vectors of distances."""
