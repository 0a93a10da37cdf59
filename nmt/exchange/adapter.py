"""The interface of an engine to import from and export to, with one proof for all.

To import, an engine has a reader of its files, which gives an `Imported`; to export, an `Adapter`;
and for both an `EngineScorer`, which the proof asks what the engine makes of its own files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.text.unigram import language_codes

if TYPE_CHECKING:  # exported models are translated without torch
    from torch import Tensor

    from nmt.modeldir import Trained

CERTIFICATE = "certificate.json"  # a file of a model directory


class Library(NamedTuple):
    """A package that runs models of an engine."""

    module: str
    extra: str  # of nmt, which installs it

    def is_missing(self) -> bool:
        """Whether it is not installed."""
        return find_spec(self.module) is None

    def require(self, what: str) -> None:
        """Raise UserError (69) where it is not installed; `what` needs it."""
        if self.is_missing():
            raise UserError(
                f"{what}: {self.module} is not installed; pip install 'nmt-toolkit[{self.extra}]'",
                Exit.UNAVAILABLE,
            )

    def __str__(self) -> str:
        """Name and version."""
        return f"{self.module} {version(self.module)}"


CTRANSLATE2 = Library("ctranslate2", "ct2")
TRANSFORMERS = Library("transformers", "hf")


class SampleLine(NamedTuple):
    """A line of the source, and the ids that our model reads."""

    line: str
    ids: list[int]  # without eos


class Output(NamedTuple):
    """A translation in our ids."""

    ids: list[int]  # without eos
    finished: bool  # false: it was cut at its limit


class EngineScorer(Protocol):
    """A directory as another engine reads it: scores and searches, by our ids without eos."""

    library: Library
    computed_in: str  # its precision
    options: Mapping[str, Any]  # with which it is called to search as the model's settings say
    absent: Sequence[int]  # ids that it does not have
    barred: Sequence[int]  # ids that a search takes out before it computes probabilities
    longest_source: int | None  # ids, eos included, that its positions are right for; None: any
    longest_target: int | None  # likewise, bos included

    def source_ids(self, line: str) -> list[int] | None:
        """The ids, eos included, that it makes of a normalised line; None: it reads no text."""

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> "Iterator[Tensor]":
        """For each source and target, the log-probabilities of the target's ids and of eos.

        Either [target + 1], or of all ids but PAD: [target + 1, vocab - 1].
        """

    def outputs(
        self, sources: Sequence[list[int]], limits: Sequence[int], beam: int
    ) -> Iterator[Output]:
        """For each source the best output of at most so many ids, without a length penalty."""


class Imported(NamedTuple):
    """A model that was read from the files of another engine."""

    trained: "Trained"
    library: Library  # that computes what the files say
    scorer: Callable[[], EngineScorer]  # opens them


class Adapter(ABC):
    """A model in the form that an engine reads."""

    library: Library
    title: str  # of the engine, for people
    on_hub: str | None = None  # its name as a library of the Hugging Face hub, if it has one
    suffix: str = ""  # of what is written, where that is a file
    has_languages = False  # whether decode.source_language and target_language go along
    names: tuple[str, str] | None = None  # of the languages, for people; None: their codes

    def __init__(self, trained: "Trained") -> None:
        """Raises UserError that names what the engine cannot express, and why.

        `trained`: the model as the engine is to compute it.
        """
        self.trained = trained
        for key in () if self.has_languages else ("source_language", "target_language"):
            if name := getattr(trained.settings.decode, key):
                null = f"add decode.{key}=null if the lines themselves begin with one, or "
                raise UserError(
                    f"decode.{key}={name}: cannot be exported there, where nothing puts a language "
                    f"before a line; {null if language_codes(trained.source.vocabulary) else ''}"
                    "export --to ctranslate2"
                )

    @abstractmethod
    def written(self, directory: Path, precision: str) -> EngineScorer:
        """Make a directory of the files that the engine reads, and open it."""

    def code(self, place: str) -> str | None:
        """Python whose `translate(line)` translates with the directory at `place`; None: none."""
        return None

    def usage(self, name: str) -> str:
        """Markdown on how something of this name is used, for the card; where there is no code."""
        return ""

    def save(self, path: Path, directory: Path) -> None:
        """Keep the files of a directory at a path: all of them or nothing."""
        manifest.write(path, ((f.name, f.read_bytes()) for f in sorted(directory.iterdir())))
