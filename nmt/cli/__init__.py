"""The commands: each reads its words, calls one function, and speaks."""
