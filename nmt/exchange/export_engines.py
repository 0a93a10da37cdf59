"""The engines for which nmt-export writes models: an entry for each.

nmt-export and its --help all, trainer.target, cards and error messages take from an entry what they
need. Nothing here imports torch.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nmt.config.check import to_yaml
from nmt.config.settings import Model
from nmt.errors import UserError
from nmt.exchange.interface import CTRANSLATE2, TRANSFORMERS, Library

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
