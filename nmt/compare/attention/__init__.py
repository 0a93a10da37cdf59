"""Where trained models attend: statistics by site, layer, head and distance, and coverage."""

from nmt.compare.attention.observe import SAMPLE, observe
from nmt.compare.attention.statistics import attention_statistics

__all__ = ["SAMPLE", "attention_statistics", "observe"]
