# ruff: noqa: F403, F405
"""Train, decode and compare Transformers for translation, by positional encoding and by length.

The Python API is nmt/api: `nmt.load`, `nmt.translate`, `nmt.compose`, ...; see docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0.dev1"

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
    from nmt.api.experiments import *
    from nmt.api.models import *

_MODULES = ("nmt.api.models", "nmt.api.experiments")  # the second imports training, too


def __getattr__(name: str) -> Any:
    """Import what offers a name, and so torch, when the name is first used."""
    if name in __all__:
        for module in map(import_module, _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
