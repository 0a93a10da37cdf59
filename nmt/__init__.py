# ruff: noqa: F403, F405
"""Train, decode and compare Transformers for translation, by positional encoding and by length.

The Python API is nmt/api.py: `nmt.load`, `nmt.translate`, `nmt.compose`, ...; see docs/python.md.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "Encoding",
    "EncodingFacts",
    "EvaluationOptions",
    "Experiment",
    "GivenTranslation",
    "Outcome",
    "Prepared",
    "Report",
    "Settings",
    "Trained",
    "Transformer",
    "Translation",
    "UserError",
    "build_encodings",
    "build_model",
    "compose",
    "evaluate",
    "list_encodings",
    "load",
    "n_best",
    "prepare",
    "save",
    "score",
    "train",
    "translate",
]

if TYPE_CHECKING:
    from nmt.api import *


def __getattr__(name: str) -> Any:
    """Import the API, and so torch, when one of its names is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'nmt' has no attribute {name!r}")
    from nmt import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
