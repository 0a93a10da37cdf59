"""What each engine has, and the table of those for which nmt-export writes models.

A reader returns an `Imported`, a writer an `Export`. Both open an `EngineScorer`, with which the
proof compares with nmt what the engine computes from its files. Nothing here imports torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nmt.config.check import to_yaml
from nmt.config.settings import Model
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


SENTENCEPIECE_ALONE = "segments by SentencePiece alone; train with segmenter=unigram"


class Sinusoids(NamedTuple):
    """Sinusoids that are added to the embeddings."""

    layout: str
    denominator: str
    start: int = 0  # the first position

    def overrides(self) -> list[str]:
        """The overrides that choose them."""
        key = "encoding.absolute"
        overrides = ["encoding=absolute", f"{key}.layout={self.layout}"]
        overrides.append(f"{key}.denominator={self.denominator}")
        return [*overrides, f"{key}.at.index.start={self.start}"] if self.start else overrides


class Architecture(NamedTuple):
    """The only models that an engine has: their positions, and values of keys under `model`."""

    sinusoids: Sinusoids
    model: Mapping[str, object]

    def overrides(self) -> str:
        """The overrides with which such a model is trained."""
        changed = {key: value for key, value in self.model.items() if value != getattr(Model, key)}
        keys = [f"model.{key}={to_yaml(value)}" for key, value in changed.items()]
        return " ".join([*self.sinusoids.overrides(), *keys, "segmenter=unigram"])


class ExportEngine(NamedTuple):
    """An engine for which models are written."""

    title: str  # for people
    library: Library
    writes: str  # what is written and for which models, in --help all
    writer: str  # MODULE.FUNCTION of this package; from a Trained that passed all checks: Export
    architecture: Architecture | None = None  # None: all encodings that CTranslate2 can express
    why_no_bpe: str | None = SENTENCEPIECE_ALONE  # and what to do; None: any segmenter
    puts_languages: bool = False  # those of decode.source_language and target_language
    has_precisions: bool = False
    suffix: str = ""  # of the file that is written; "": a directory
    on_hub: str | None = None  # its name as a library of the Hugging Face hub


_USUAL = {"norm_epsilon": 1e-5, "source_eos": True}
MARIAN = Architecture(Sinusoids("halves", "paper"), {**_USUAL, "norm": "post", "target_bos": True})
MARIAN_NPZ = Architecture(
    Sinusoids("halves", "tensor2tensor"), {**_USUAL, "norm": "post", "target_bos": False}
)
M2M100 = Architecture(
    Sinusoids("halves", "tensor2tensor", 2),
    {**_USUAL, "norm": "pre", "target_bos": True, "tie": "all"},
)
ENGINES: Mapping[str, ExportEngine] = {
    "ctranslate2": ExportEngine(
        "CTranslate2",
        CTRANSLATE2,
        "a directory that ctranslate2.Translator reads, with the segmenters.",
        "ctranslate2_write.prepare",
        why_no_bpe=None,
        puts_languages=True,
        has_precisions=True,
        on_hub="ctranslate2",
    ),
    "marian": ExportEngine(
        "Hugging Face transformers (Marian)",
        TRANSFORMERS,
        "what MarianMTModel and MarianTokenizer of transformers read, for models with "
        "model.norm=post, encoding=absolute and SentencePiece, including imported ones.",
        "transformers_write.prepare_marian",
        MARIAN,
        on_hub="transformers",
    ),
    "marian-npz": ExportEngine(
        "Marian",
        CTRANSLATE2,
        "a directory of Marian itself, for models imported from one, or alike.",
        "marian_directory.prepare",
        MARIAN_NPZ,
    ),
    "m2m100": ExportEngine(
        "Hugging Face transformers (M2M100, NLLB)",
        TRANSFORMERS,
        "a directory that M2M100ForConditionalGeneration and the tokenizer of M2M100 or NLLB read, "
        "for models of that architecture: those imported.",
        "transformers_write.prepare_m2m100",
        M2M100,
        puts_languages=True,
        on_hub="transformers",
    ),
    "argos": ExportEngine(
        "Argos Translate and LibreTranslate",
        CTRANSLATE2,
        "a package DIR.argosmodel for Argos Translate and LibreTranslate, for models with "
        "segmenter=unigram and no tokenizer; best with one SentencePiece model for both sides.",
        "argos.prepare",
        why_no_bpe="normalises punctuation and writes & and quotes as XML entities before it "
        "applies merges; train with segmenter=unigram segmenter.shared_vocabulary=true",
        has_precisions=True,
        suffix=".argosmodel",
    ),
}  # by the name that nmt-export --to and trainer.target take


def find_engine(name: str) -> ExportEngine:
    """The engine of a name; UserError for an unknown one."""
    if name not in ENGINES:
        raise UserError(f"{name}: no engine of nmt-export; choose among {', '.join(ENGINES)}")
    return ENGINES[name]
