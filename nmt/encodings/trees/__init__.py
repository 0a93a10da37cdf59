"""Positions in trees, graphs and languages, from columns next to the text."""
