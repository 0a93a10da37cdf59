"""A comparison as text: for a terminal, ranked in one table, as Markdown, and tab-separated."""

from nmt.compare.text.ranking import markdown, ranking
from nmt.compare.text.report import render
from nmt.compare.text.tab_separated import tsv

__all__ = ["markdown", "ranking", "render", "tsv"]
