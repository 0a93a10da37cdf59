"""Scores by sentence length, with intervals and paired tests; reads lines, knows no model."""
