"""Measured speed: the product and its peers, in rounds taken in turn."""
