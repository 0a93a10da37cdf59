"""What `import nmt` offers; see docs/python.md."""
