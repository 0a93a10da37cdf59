"""Experiments of many runs: planned, trained, translated, scored and reported."""
