"""Encodings of the input: what is added to embeddings, or replaces them."""
