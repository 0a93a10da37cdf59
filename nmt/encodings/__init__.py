"""Positional encodings, a module each: base.py is their interface, registry.py finds them."""
