"""Measures the speed of nmt and of other toolkits in interleaved rounds."""
