"""The processor or GPU: how many threads and how much memory, and which number formats are fast."""
