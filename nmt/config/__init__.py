"""The typed schema of every choice; plain dicts become Settings here, and Settings plain dicts.

A class here holds types, documentation and limits, never a default: the values stand in conf/.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from nmt.config.data import HEADS as HEADS
from nmt.config.data import RECIPE as RECIPE
from nmt.config.data import WORDS as WORDS
from nmt.config.data import Column as Column
from nmt.config.data import Corpus as Corpus
from nmt.config.data import Data as Data
from nmt.config.data import Toy as Toy
from nmt.config.data import columns_of as columns_of
from nmt.config.data import symbols_of as symbols_of
from nmt.config.data import tags_of as tags_of
from nmt.config.decode import BEAM as BEAM
from nmt.config.decode import RESTRICTIONS as RESTRICTIONS
from nmt.config.decode import SAMPLING as SAMPLING
from nmt.config.decode import Decode as Decode
from nmt.errors import UserError
from nmt.schema import LARGEST, knob, read


@dataclass
class BpeLearning:
    """Byte pair encoding (Sennrich et al. 2016), learned as subword-nmt does, on both sides."""

    kind: str = knob("the segmenter's name", choices=("bpe",))
    tokenizer: str = knob("what runs before segmentation", choices=("moses", "none"))
    merges: int = knob("merge operations", least=0)
    min_frequency: int = knob("a pair rarer than this is not merged", least=1)
    shared_vocabulary: bool = knob("one vocabulary for both sides (needed by model.tie=all)")


@dataclass
class UnigramLearning:
    """Unigram language model (Kudo 2018), learned by SentencePiece."""

    kind: str = knob("the segmenter's name", choices=("unigram",))
    tokenizer: str = knob("what runs before segmentation", choices=("moses", "none"))
    vocabulary_size: int = knob("pieces; fewer are made where the text gives fewer", least=8)
    character_coverage: float = knob("share of characters that get a piece", least=0.98, most=1)
    training_lines: int = knob("lines sampled to learn from; 0: all", least=0)
    shared_vocabulary: bool = knob("one model for both sides (needed by model.tie=all)")


@dataclass
class SentencePieceFiles:
    """SentencePiece models that exist already: nothing is learned."""

    kind: str = knob("the segmenter's name", choices=("spm",))
    tokenizer: str = knob("what runs before segmentation", choices=("moses", "none"))
    source_model: str = knob("SentencePiece model of the source, or of both sides")
    target_model: str | None = knob("that of the target; null: source_model")

    @property
    def shared_vocabulary(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.target_model is None


@dataclass
class BpeFiles:
    """Merges and vocabularies of subword-nmt that exist already: nothing is learned."""

    kind: str = knob("the segmenter's name", choices=("codes",))
    tokenizer: str = knob("what runs before segmentation", choices=("moses", "none"))
    codes: str = knob("merges that subword-nmt learned, one per line")
    source_vocabulary: str = knob(
        "pieces of the source, or of both sides, one per line; a count may follow"
    )
    target_vocabulary: str | None = knob("those of the target; null: source_vocabulary")
    min_frequency: int = knob("pieces with a lower count are cut into smaller ones", least=0)

    @property
    def shared_vocabulary(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.target_vocabulary is None


@dataclass
class ImportedSegmenter:
    """The segmenter of an imported model: nothing more is learned."""

    kind: str = knob("the segmenter's name", choices=("imported",))
    tokenizer: str = knob("what runs before segmentation", choices=("none",))
    shared_vocabulary: bool = knob("one vocabulary for both sides (needed by model.tie=all)")


@dataclass
class Model:
    """The Transformer's size and shape (Vaswani et al. 2017)."""

    encoder_layers: int = knob("layers of the encoder", least=1, most=256)
    decoder_layers: int = knob("layers of the decoder", least=1, most=256)
    dim: int = knob("width of embeddings and layers", least=2)
    feedforward_dim: int = knob("inner width of the feed-forward sublayers", least=1)
    heads: int = knob("attention heads; divides dim", least=1)
    dropout: float = knob("on embeddings and sublayer outputs", least=0, most=0.99)
    attention_dropout: float = knob("on attention probabilities", least=0, most=0.99)
    feedforward_dropout: float = knob("inside feed-forward sublayers", least=0, most=0.99)
    norm: str = knob("layer norm before or after each sublayer", choices=("pre", "post"))
    tie: str = knob("embeddings that are one matrix", choices=("none", "target", "all"))
    feedforward: str = knob("numbers of the feed-forward sublayers", choices=("real", "complex"))
    activation: str = knob(
        "between the feed-forward sublayers' two maps; swish: x sigmoid(x)",
        choices=("relu", "gelu", "swish"),
        absent="relu",
    )
    share_layers: bool = knob("one layer, gone through again and again (Universal Transformer)")
    drop_residual: list[int] = knob("encoder passes whose attention has no residual, from 1")
    source_eos: bool = knob(
        "the model reads the sign that ends a source; false: it does not, as in OpenNMT",
        absent=True,
    )
    target_bos: bool = knob(
        "the decoder starts from an embedding; false: from a zero vector, as in Marian", absent=True
    )


@dataclass
class Optim:
    """Adam and what is done to gradients; `kind` names the learning-rate schedule."""

    kind: str = knob("learning-rate schedule", choices=("plateau", "inverse_sqrt"))
    lr: float = knob("learning rate (inverse_sqrt: its peak)", least=0, most=10)
    beta1: float = knob("Adam's decay of the first moment", least=0, most=0.99999)
    beta2: float = knob("Adam's decay of the second moment", least=0, most=0.99999)
    eps: float = knob("Adam's epsilon", least=1e-20, most=1)
    weight_decay: float = knob("decoupled weight decay (AdamW); 0: plain Adam", least=0, most=100)
    clip: float = knob("largest gradient norm; 0: no clipping", least=0)
    label_smoothing: float = knob("mass taken from the true token", least=0, most=0.99)


@dataclass
class Plateau(Optim):
    """Rosendahl et al. 2019: decay when the dev perplexity stalls; no warm-up."""

    decay: float = knob("factor on the learning rate at a stall", least=0.01, most=1)
    patience: int = knob("checkpoints in a row without a new best until the rate decays", least=1)
    min_lr: float = knob("the rate is never decayed below this", least=0)

    def __post_init__(self) -> None:
        if self.min_lr > self.lr:
            raise UserError(f"optim.min_lr={self.min_lr}: larger than optim.lr={self.lr}")


@dataclass
class InverseSqrt(Optim):
    """Vaswani et al. 2017: linear warm-up, then decay with the root of the step."""

    warmup: int = knob("updates until the peak", least=1)


@dataclass
class Training:
    """How long and on what to train, and how often to look."""

    device: str = knob("where to compute; auto: a GPU if there is one")
    precision: str = knob(
        "number format; auto: bfloat16 on a GPU that has it; tf32: float32 with rounded factors, "
        "on a GPU",
        choices=("auto", "float32", "tf32", "bfloat16"),
    )
    deterministic: bool = knob(
        "on a GPU: the same bits in every run, and slower; a CPU's are so anyway", absent=False
    )
    compile: bool | str = knob(
        "let torch compile the pass through the model; auto: on a GPU that Triton knows",
        choices=("auto", True, False),
        absent=False,
    )
    threads: int | None = knob("CPU threads; null: torch's choice", least=1, most=1024)
    batch_tokens: int = knob("tokens of a batch, padding included", least=1)
    batch_count: str = knob("side whose tokens count", choices=("source", "target", "max"))
    accumulate: int = knob("batches per update", least=1)
    gradient_checkpointing: bool = knob("compute layers twice: less memory, the same results")
    max_epochs: int | None = knob("stop after so many epochs; null: no limit", least=1)
    max_steps: int | None = knob("stop after so many updates; null: no limit", least=1)
    max_hours: float | None = knob(
        "save and end with exit code 75 after so many hours; null: no limit", least=0, absent=None
    )
    early_stopping: int = knob(
        "stop after so many checkpoints in a row without a new best; 0: never", least=0, absent=0
    )
    checkpoints_per_epoch: int = knob("dev perplexity and checkpoint so often", least=1)
    keep_checkpoints: int = knob("newest checkpoints kept in addition to the best", least=2)
    keep_best: int = knob("best checkpoints kept", least=1, absent=1)
    dev_metric: str = knob(
        "what decides on the best checkpoint, early stopping and optim=adam_plateau; bleu, chrf: "
        "of greedy translations of the development text",
        choices=("perplexity", "bleu", "chrf"),
        absent="perplexity",
    )
    dev_lines: int | None = knob(
        "first lines of the development text that are translated for dev_metric; null: all",
        least=1,
        absent=None,
    )
    log_every: int = knob("updates between lines of metrics.jsonl", least=1)
    init_from: str | None = knob("run or checkpoint whose weights training starts from")
    freeze: list[str] = knob(
        "parts of the model that are not trained: encoder, embeddings, or the beginning of a "
        "parameter's name",
        absent=[],
    )
    ema: float = knob(
        "decay of a moving average of the weights, which is then evaluated and saved; 0: none",
        least=0,
        most=0.99999,
        absent=0.0,
    )
    nonfinite_patience: int = knob("stop after so many non-finite updates in a row", least=1)
    tensorboard: bool = knob("write TensorBoard files too, where it is installed")
    callback: str | None = knob(
        "package:function, called with each line of metrics.jsonl and the run's directory",
        absent=None,
    )

    def __post_init__(self) -> None:
        if self.max_epochs is None and self.max_steps is None:
            raise UserError("trainer.max_epochs and trainer.max_steps are null: give one of them")
        if self.dev_lines is not None and self.dev_metric == "perplexity":
            raise UserError(
                f"trainer.dev_lines={self.dev_lines}: no effect with "
                "trainer.dev_metric=perplexity, which reads all; leave it out, or choose bleu"
            )


@dataclass
class Settings:
    """All choices of one experiment, resolved and checked."""

    seed: int
    data: Data
    segmenter: Any  # BpeLearning | UnigramLearning | SentencePieceFiles | BpeFiles | Imported...
    model: Model
    encoding: dict[str, dict[str, Any]]  # name of the entry -> its options, in order
    optim: Optim
    trainer: Training
    decode: Decode


KINDS: dict[str, dict[str, type]] = {
    "data": {"files": Data, "toy": Toy},
    "segmenter": {
        "bpe": BpeLearning,
        "unigram": UnigramLearning,
        "spm": SentencePieceFiles,
        "codes": BpeFiles,
        "imported": ImportedSegmenter,
    },
    "optim": {"plateau": Plateau, "inverse_sqrt": InverseSqrt},
    "model": {"": Model},
    "trainer": {"": Training},
    "decode": {"": Decode},
}  # group -> value of its `kind` -> schema


PATHS = (
    *("root", "cache", "protected"),
    *(f"{part}_{side}" for part in ("train", "dev", "test") for side in ("source", "target")),
)  # keys of data.* that are paths
SEGMENTER_PATHS = (
    "source_model",
    "target_model",
    "codes",
    "source_vocabulary",
    "target_vocabulary",
)
_INNER_PATH = re.compile(
    r"columns\.\w+\.(train|dev|test)|corpora\.\w+\.(root|(train|dev)_(source|target))"
)


def is_path(key: str) -> bool:
    """Whether the value of a key is a path, which means nothing on another machine."""
    group, _, rest = key.partition(".")
    if key in ("trainer.init_from", "parent", "runs", "tests.root"):
        return True
    if group == "segmenter":
        return rest in SEGMENTER_PATHS
    return group == "data" and (rest in PATHS or _INNER_PATH.fullmatch(rest) is not None)


def thaw(plain: dict[str, Any]) -> Settings:
    """Check plain values against the schema.

    Raises UserError that names the first wrong key, its value and what is expected of it.
    """
    _refuse_interpolation(plain)
    for name in ("seed", "encoding", *KINDS):
        if name not in plain:
            raise UserError(f"{name}: missing from the config")
    known = {f.name for f in fields(Settings)}
    if extra := sorted(set(plain) - known):
        raise UserError(f"{extra[0]}: no such key; known are {', '.join(sorted(known))}")
    seed = plain["seed"]
    if isinstance(seed, str) and re.fullmatch(r"[0-9]{1,10}", seed):  # as ${oc.env:SEED} has it
        seed = int(seed)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**31:
        raise UserError(f"seed={seed}: expected an integer from 0 to {2**31 - 1}")
    encoding = plain["encoding"] or {}
    if not isinstance(encoding, dict) or not all(isinstance(v, dict) for v in encoding.values()):
        raise UserError("encoding: expected a mapping of names to options")
    for where, value in integers(encoding, "encoding"):
        if value > LARGEST:
            raise UserError(f"{where}={value}: must be at most {LARGEST}")
    return Settings(
        seed=seed, encoding=encoding, **{group: _typed(group, plain[group]) for group in KINDS}
    )


def _refuse_interpolation(value: Any, where: str = "") -> None:
    """Raise UserError for a text that OmegaConf would look up, such as a variable of the shell."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_interpolation([key, inner], f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            _refuse_interpolation(inner, where)
    elif isinstance(value, str) and "${" in value:
        raise UserError(f"{where}={value}: interpolation is not allowed here")


def integers(options: dict[str, Any], where: str) -> Iterator[tuple[str, int]]:
    """The keys of integers among the options of encodings, and their values."""
    for key, value in options.items():
        if isinstance(value, dict):
            yield from integers(value, f"{where}.{key}")
        elif isinstance(value, int) and not isinstance(value, bool):
            yield f"{where}.{key}", value


def with_decode(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings of a model with other values under decode, checked as all are."""
    if not changes:
        return settings
    changes = {  # numbers of numpy
        k: v.item() if getattr(v, "ndim", None) == 0 else v for k, v in changes.items()
    }
    _refuse_interpolation(changes, "decode")
    decode: Decode = _typed("decode", {**asdict(settings.decode), **changes})
    before, after = vars(settings.decode), vars(decode)
    idle = [key for key in BEAM if before[key] != after[key]]
    if idle and decode.method == "sample":
        raise UserError(
            f"decode.{idle[0]}={changes[idle[0]]}: no effect on samples; leave it out, or choose "
            "decode.method=beam"
        )
    return replace(settings, decode=decode)


def freeze(settings: Settings) -> dict[str, Any]:
    """Turn settings into plain values that `thaw` and JSON take."""
    return json.loads(json.dumps(asdict(settings)))


def schema_of(group: str, values: dict[str, Any]) -> type:
    """The dataclass that describes a group's values; raises UserError for an unknown kind."""
    kinds = KINDS[group]
    kind = str(values.get("kind", "")) if "" not in kinds else ""
    if kind not in kinds:
        raise UserError(f"{group}.kind={kind}: choose one of {', '.join(kinds)}")
    return kinds[kind]


def _typed(group: str, values: Any) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{group}={values}: expected one of the options in conf/{group}")
    return read(schema_of(group, values), values, group)


def conf_dir() -> Path:
    """The directory conf/: in the installed package, or next to the package in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"
