"""How fast nmt and other libraries are, measured in rounds taken in turn."""
