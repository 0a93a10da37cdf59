# ruff: noqa: F403, F405
"""Train, decode and compare Transformers for translation, by positional encoding and by length.

The Python API is nmt/api.py: `nmt.load`, `nmt.translate`, `nmt.compose`, ...; see docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

__all__ = [
    "Alignment",
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
    "align",
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
    "translate_stream",
]

if TYPE_CHECKING:
    from nmt.api import *

_MODULES = {  # of names that nmt.api imports where it needs them; who translates does not
    "EncodingFacts": "nmt.config.catalog",
    "Experiment": "nmt.config.compose",
    "Outcome": "nmt.training.run",
    "Prepared": "nmt.corpus.prepare",
    "Report": "nmt.evaluation.report",
}


def __getattr__(name: str) -> Any:
    """Import what offers a name, and so torch, when the name is first used."""
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "nmt.api")), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
