"""Pictures of encodings, as they start and as a run has trained them."""
