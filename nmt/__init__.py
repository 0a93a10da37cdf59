"""Train, decode and compare Transformers for translation, by positional encoding and by length."""

__version__ = "0.1.0"
