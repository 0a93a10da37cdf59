"""The parts that each engine has: a library, a reader or writer of its files, and a scorer.

A reader returns an `Imported`, a writer an `Export`. Both open an `EngineScorer`, with which the
proof compares with nmt what the engine computes from its files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nmt.errors import Exit, UserError

if TYPE_CHECKING:  # exported models are translated without torch
    from torch import Tensor

    from nmt.modeldir import Trained

CERTIFICATE = "certificate.json"  # a file of a model directory


class Library(NamedTuple):
    """A package that runs models of an engine."""

    module: str
    extra: str  # of nmt, which installs it

    def is_missing(self) -> bool:
        return find_spec(self.module) is None

    def require(self, what: str) -> None:
        """Raise UserError (69) if it is not installed; `what` needs it."""
        if self.is_missing():
            raise UserError(
                f"{what}: {self.module} is not installed; pip install 'nmt-toolkit[{self.extra}]'",
                Exit.UNAVAILABLE,
            )

    def __str__(self) -> str:
        return f"{self.module} {version(self.module)}"


CTRANSLATE2 = Library("ctranslate2", "ct2")
TRANSFORMERS = Library("transformers", "hf")


def invalid(path: Path | str, what: str) -> UserError:
    """The error (65) for a file or directory of another engine that cannot be read."""
    return UserError(f"{path}: {what}", Exit.DATA)


class Output(NamedTuple):
    """A translation in nmt's ids."""

    ids: list[int]  # without eos
    finished: bool  # false: it was cut at its limit


class EngineScorer(Protocol):
    """A directory opened by another engine, which scores and searches in nmt's ids without eos."""

    library: Library
    computed_in: str = "float32"
    options: Mapping[str, Any] = {}  # arguments with which it searches as the model's settings say
    absent: Sequence[int] = ()  # ids that it does not have
    barred: Sequence[int] = ()  # ids that a search takes out before it computes probabilities
    longest_source: int | None = None  # ids, with eos, for which it has positions; None: any number
    longest_target: int | None = None  # likewise, with bos
    misses_empty: bool = False  # a beam does not find an output that is empty

    def source_ids(self, line: str) -> list[int] | None:
        """The ids, with eos, into which it cuts a normalised line; None: it reads no text."""
        return None

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> "Iterator[Tensor]":
        """For each source and target, the log-probabilities of the target's ids and of eos.

        Either [target + 1], or of all ids but PAD: [target + 1, vocab - 1].
        """

    def output(self, source: list[int], limit: int, beam: int) -> Output:
        """The best output of at most so many ids for a source, without a length penalty."""


class Imported(NamedTuple):
    """A model that was read from the files of another engine."""

    trained: "Trained"
    library: Library  # runs the original
    scorer: Callable[[], EngineScorer]  # opens the original


class Export(NamedTuple):
    """A model that an engine supports, and the functions that write it."""

    trained: "Trained"  # as the engine is to compute it
    write: Callable[[Path, str], EngineScorer]  # makes a directory in a precision, and opens it
    code: Callable[[str], str] | None = None  # Python that translates with the directory at a path
    usage: Callable[[str], str] | None = None  # Markdown for the card, instead of that Python
    # makes one file of the directory, with the names of the languages
    pack: Callable[[Path, tuple[str, str] | None], bytes] | None = None
