"""Read and write models of other engines, and compare what both compute."""
