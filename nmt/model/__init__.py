"""The Transformer: attention, layers, encoder and decoder."""
