"""What the toolkit needs of the system: files, processes, and what computes fast here."""
