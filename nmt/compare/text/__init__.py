"""A comparison as text: for a terminal in three layouts, as Markdown, and tab-separated."""

from nmt.compare.text.evaluation import blocks
from nmt.compare.text.ranking import markdown, ranking
from nmt.compare.text.report import tables
from nmt.compare.text.tab_separated import tsv

__all__ = ["blocks", "markdown", "ranking", "tables", "tsv"]
