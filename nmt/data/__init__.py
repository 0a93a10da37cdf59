"""Text to numbers: files, normalisation, segmentation, vocabularies, stores and batches."""
