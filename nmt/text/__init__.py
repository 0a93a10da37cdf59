"""Text to ids and back: lines of files, tokenizer, segmenters, vocabularies of both sides."""
