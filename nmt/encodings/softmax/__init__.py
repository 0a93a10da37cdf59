"""Changes of the softmax, of its inputs and of its outputs."""
