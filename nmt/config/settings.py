"""The settings of one experiment: each key with its default, meaning and bounds, once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Annotated, Any, Literal

from nmt.config import check
from nmt.config.check import Between, Name, NonNegativeFloat, NonNegativeInt, PositiveInt, key
from nmt.config.data import Data, Segmentation
from nmt.errors import UserError

Layers = Annotated[int, Between(1, 256)]
Dropout = Annotated[float, Between(0, 0.99)]
Decay = Annotated[float, Between(0, 0.99999)]
Ratio = Annotated[float, Between(0, 1000)]
PLATEAU, INVERSE_SQRT = ("plateau",), ("inverse_sqrt",)


@dataclass
class Model:
    """The Transformer's size and shape (Vaswani et al. 2017)."""

    encoder_layers: Layers = key(6, "layers of the encoder")
    decoder_layers: Layers = key(6, "layers of the decoder")
    dim: Annotated[int, Between(2)] = key(512, "width of embeddings and layers")
    feedforward_dim: PositiveInt = key(2048, "inner width of the feed-forward sublayers")
    heads: PositiveInt = key(8, "attention heads; divides dim")
    dropout: Dropout = key(0.1, "on embeddings and sublayer outputs")
    attention_dropout: Dropout = key(0.0, "on attention probabilities")
    feedforward_dropout: Dropout = key(0.0, "inside feed-forward sublayers")
    norm: Literal["pre", "post"] = key("pre", "layer norm before or after each sublayer")
    norm_epsilon: Annotated[float, Between(1e-12, 1)] = key(1e-5, "of layer norms")
    tie: Literal["none", "target", "all"] = key("none", "embeddings that are one matrix")
    feedforward: Literal["real", "complex"] = key("real", "numbers of the feed-forward sublayers")
    activation: Literal["relu", "gelu", "swish"] = key(
        "relu", "between the feed-forward sublayers' two maps; swish: x sigmoid(x)"
    )
    share_layers: bool = key(False, "one layer, applied repeatedly (Universal Transformer)")
    drop_residual: list[int] = key([], "encoder passes whose attention has no residual, from 1")
    source_eos: bool = key(True, "the encoder reads the end of a source; false: not, as in OpenNMT")
    target_bos: bool = key(
        True, "the decoder starts from an embedding; false: from zeros, as in Marian"
    )


@dataclass
class Optim:
    """Adam and what is done to gradients; the kind is the learning-rate schedule.

    plateau: Rosendahl et al. 2019, decay when the dev perplexity stalls, no warm-up. inverse_sqrt:
    Vaswani et al. 2017, linear warm-up, then decay with the root of the step.
    """

    kind: Literal["plateau", "inverse_sqrt"] = key("plateau", "learning-rate schedule")
    lr: Annotated[float, Between(0, 10)] = key(3e-4, "learning rate (inverse_sqrt: its peak)")
    beta1: Decay = key(0.9, "Adam's decay of the first moment")
    beta2: Decay = key(0.999, "Adam's decay of the second moment")
    eps: Annotated[float, Between(1e-20, 1)] = key(1e-8, "Adam's epsilon")
    weight_decay: Annotated[float, Between(0, 100)] = key(0.0, "decoupled, as in AdamW; 0: none")
    clip: NonNegativeFloat = key(1.0, "largest gradient norm; 0: no clipping")
    label_smoothing: Dropout = key(0.1, "mass taken from the true token")
    decay: Annotated[float, Between(0.01, 1)] = key(0.9, "factor on the rate at a stall", PLATEAU)
    patience: PositiveInt = key(6, "checkpoints without a new best until a stall", PLATEAU)
    min_lr: NonNegativeFloat = key(0.0, "the rate is never decayed below this", PLATEAU)
    warmup: PositiveInt = key(4000, "updates until the peak", INVERSE_SQRT)

    def __post_init__(self) -> None:
        if self.kind == "plateau" and self.min_lr > self.lr:
            raise UserError(f"optim.min_lr={self.min_lr}: larger than optim.lr={self.lr}")


@dataclass
class Training:
    """How long and on what to train, and how often to look."""

    device: str = key("auto", "where to compute; auto: a GPU if there is one", effect=False)
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = key(
        "auto",
        "number format; auto: bfloat16 on a GPU that has it; tf32: float32 with rounded factors, "
        "on a GPU",
    )
    deterministic: bool = key(False, "on a GPU: the same bits in every run; slower", effect=False)
    compile: bool = key(False, "let torch compile the pass through the model")
    threads: Annotated[int, Between(1, 1024)] | None = key(
        None, "CPU threads; null: torch chooses", effect=False
    )
    batch_tokens: PositiveInt = key(4700, "tokens of a batch, with padding (Rosendahl et al. 2019)")
    batch_count: Literal["source", "target", "max"] = key("max", "side whose tokens count")
    accumulate: PositiveInt = key(1, "batches per update")
    gradient_checkpointing: bool = key(
        False, "compute layers twice: less memory, a third more time, same results", effect=False
    )
    max_epochs: PositiveInt | None = key(20, "stop after so many epochs; null: no limit")
    max_steps: PositiveInt | None = key(None, "stop after so many updates; null: no limit")
    max_hours: NonNegativeFloat | None = key(
        None, "save and end with exit code 75 after so many hours; null: no limit", effect=False
    )
    early_stopping: NonNegativeInt = key(0, "stop after N checkpoints without a new best; 0: never")
    checkpoints_per_epoch: PositiveInt = key(
        8, "dev perplexity and checkpoint so often (Rosendahl et al. 2019)"
    )
    checkpoint_every: PositiveInt | None = key(
        None, "updates between checkpoints; null: checkpoints_per_epoch"
    )
    keep_checkpoints: Annotated[int, Between(2)] = key(2, "newest checkpoints kept", effect=False)
    keep_best: PositiveInt = key(1, "best checkpoints kept, in addition", effect=False)
    dev_metric: Literal["perplexity", "bleu", "chrf"] = key(
        "perplexity",
        "what decides on the best checkpoint, early stopping and optim=adam_plateau; bleu, chrf: "
        "of greedy translations of the development text",
    )
    dev_lines: PositiveInt | None = key(
        None, "first lines of the development text that are translated for dev_metric; null: all"
    )
    log_every: PositiveInt = key(50, "updates between lines of metrics.jsonl", effect=False)
    init_from: str | None = key(None, "run or model directory to start from", path=True)
    freeze: list[str] = key(
        [],
        "parts of the model that are not trained: encoder, embeddings, or the beginning of a "
        "parameter's name",
    )
    ema: Decay = key(0.0, "decay of an average of the weights, evaluated and saved; 0: none")
    nonfinite_patience: PositiveInt = key(
        3, "stop after so many non-finite updates in a row", effect=False
    )
    tensorboard: bool = key(True, "write TensorBoard files, if it is installed", effect=False)
    callback: str | None = key(
        None, "package:function, called with each line of metrics.jsonl and the run", effect=False
    )
    target: str | None = key(
        None,
        "engine of nmt-export --to: what it cannot hold is refused before the first update",
        effect=False,
    )

    def __post_init__(self) -> None:
        if self.max_epochs is None and self.max_steps is None:
            raise UserError("trainer.max_epochs and trainer.max_steps are null: give one of them")
        if self.compile and self.gradient_checkpointing:  # which breaks the compiler's graphs
            raise UserError(
                "trainer.compile=true: not with trainer.gradient_checkpointing=true; choose one"
            )


@dataclass
class Decode:
    """How to search for a translation."""

    method: Literal["beam", "sample"] = key("beam", "beam: search by beam_size; sample: at random")
    beam_size: Annotated[int, Between(1, 1000)] = key(4, "hypotheses kept; 1 is greedy")
    precision: Literal["float32", "bfloat16", "int8"] = key(
        "float32",
        "number format; the other two round more, and are used only where they are faster",
    )
    alpha: Annotated[float, Between(0, 10)] = key(0.6, "exponent of the length penalty; 0: none")
    length_penalty: Literal["wu", "power"] = key(
        "wu", "wu: ((5 + pieces) / 6)^alpha; power: pieces^alpha, as Marian and CTranslate2 have it"
    )
    stop: Literal["finished", "shrinking"] = key(
        "finished",
        "finished: when beam_size hypotheses have ended and no open one scores better; shrinking, "
        "as in Marian: each that ends makes the beam one smaller, and the search stops at none",
    )
    max_length_ratio: Ratio = key(2.0, "longest output = ratio x source + offset")
    max_length_offset: Annotated[int, Between(1, 10_000)] = key(20, "see max_length_ratio")
    min_length_ratio: Ratio = key(0.0, "shortest output = ratio x source; 0: any")
    length: Literal["free", "forced"] = key(
        "free", "forced: each output has as many pieces as --columns length=FILE says"
    )
    no_repeat_ngram: NonNegativeInt = key(
        0, "no sequence of so many pieces occurs twice in an output; 0: any may"
    )
    coverage_penalty: Annotated[float, Between(0, 10)] = key(
        0.0, "weight of the coverage penalty (Wu et al. 2016) among finished hypotheses; 0: none"
    )
    batch_tokens: PositiveInt = key(16000, "size of a batch: source tokens x hypotheses of each")
    window: PositiveInt = key(2000, "lines read, sorted and translated together; 1: line by line")
    position_scale: Annotated[float, Between(0.001, 1000)] = key(
        1.0, "position interpolation: all positions times this"
    )
    target_length: Literal["ratio", "given"] = key(
        "ratio", "output length for encodings that need it; given: --columns length=FILE, in pieces"
    )
    length_ratio: Annotated[float, Between(0.01, 1000)] = key(
        1.0, "with target_length=ratio: output pieces per source piece, for ldpe and lrpe"
    )
    max_source: PositiveInt = key(1000, "longest source in pieces; see too_long")
    split: Literal["lines", "sentences", "auto"] = key(
        "lines",
        "lines: whole; sentences: each alone; auto: a line longer than any in training in groups "
        "of sentences, none longer than that where possible",
    )
    too_long: Literal["split", "refuse", "truncate"] = key(
        "split",
        "sources longer than max_source or the position table: split: translate in parts; refuse: "
        "leave the line empty and end with an error; truncate: cut",
    )
    source_language: str | None = key(
        None, "the piece before each source, where a model knows languages by a piece; null: none"
    )
    target_language: str | None = key(
        None, "the piece that each translation follows, likewise; neither is part of a text"
    )
    unknown: Literal["forbid", "allow"] = key("forbid", "the unknown piece (<unk>) in translations")
    temperature: Annotated[float, Between(0.01, 100)] = key(
        1.0, "method=sample: divides log-probabilities; below 1, likely tokens become likelier"
    )
    top_k: NonNegativeInt = key(0, "method=sample: only the k most probable tokens; 0: all")
    top_p: Annotated[float, Between(0.001, 1)] = key(
        1.0, "method=sample: only the fewest tokens that hold this probability; 1: all"
    )
    seed: PositiveInt = key(1, "method=sample: random seed")
    mbr: Annotated[int, Between(0, 1000)] = key(  # it compares all pairs
        0, "minimum Bayes risk: choose among N samples, or the N best of the beam, by chrF2; 0: off"
    )

    def __post_init__(self) -> None:
        if self.method == "beam" and self.mbr > self.beam_size:
            raise UserError(
                f"decode.mbr={self.mbr}: the beam holds {self.beam_size}; raise decode.beam_size, "
                "or choose decode.method=sample"
            )
        if self.split != "lines" and self.reads_lengths:
            raise UserError(
                f"decode.split={self.split}: not with given lengths, which are those of whole "
                "lines; leave it at lines"
            )
        if self.min_length_ratio > self.max_length_ratio:
            raise UserError(
                f"decode.min_length_ratio={self.min_length_ratio}: above "
                f"decode.max_length_ratio={self.max_length_ratio}, which decides then; raise that"
            )

    @property
    def reads_lengths(self) -> bool:
        """Whether a column says how many pieces each output shall have."""
        return self.length == "forced" or self.target_length == "given"

    @property
    def pieces_before(self) -> int:
        """1 where outputs follow the tag of a language: the length penalty counts it."""
        return int(self.target_language is not None)

    def by_beam(self) -> "Decode":
        """Return these settings without sampling and minimum Bayes risk."""
        return replace(self, method="beam", mbr=0, **SAMPLING)

    def width(self, n_best: int) -> int:
        """Hypotheses of each source that are kept at a time, for n_best translations."""
        return n_best if self.method == "sample" else self.beam_size

    def check_n_best(self, count: int, option: str, name: str) -> None:
        """Raise UserError if the search holds fewer than `count` hypotheses, or that is below 1.

        `option` is how the user set the count, as "--n-best 9", and `name` how to set beam_size.
        """
        if count < 1:
            raise UserError(f"{option}: a line has one translation or more; give 1 at least")
        if self.mbr and count > self.mbr:
            raise UserError(f"{option}: decode.mbr={self.mbr} has no more candidates; raise it")
        if self.method == "beam" and count > self.beam_size:
            raise UserError(f"{option}: the beam holds {self.beam_size}; {name}={count}")


SAMPLING: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1}
"""Keys that matter with decode.method=sample alone -> their neutral values."""
BEAM = ("beam_size", "alpha", "length_penalty", "stop")  # keys that matter with method=beam alone
RESTRICTIONS: dict[str, Any] = {
    "length": "free",
    "min_length_ratio": 0.0,
    "no_repeat_ngram": 0,
    "coverage_penalty": 0.0,
}
"""Keys that only nmt's own search obeys, with the values that switch them off.

Exports and CTranslate2 refuse other values, and the scores of development text ignore them.
"""


@dataclass
class Settings:
    """All choices of one experiment; options of encodings are checked when the model is built."""

    data: Data
    seed: Annotated[int, Between(0)] = key(1, "initial weights, dropout and the order of the data")
    segmenter: Segmentation = field(default_factory=Segmentation)
    model: Model = field(default_factory=Model)
    encoding: dict[str, dict[str, Any]] = key({}, "name of the entry -> its options, in order")
    optim: Optim = field(default_factory=Optim)
    trainer: Training = field(default_factory=Training)
    decode: Decode = field(default_factory=Decode)


@dataclass
class RunLocation:
    """Where runs lie, and how many are trained at once; not among their settings."""

    runs: str = key("runs", "directory of all runs")
    name: Name | None = key(None, "directory of this run in it; null: from data, encoding and seed")
    jobs: PositiveInt | None = key(
        None, "runs of a sweep at once; null: one for each GPU, else cores / trainer.threads"
    )


GROUPS: dict[str, Any] = {  # name -> dataclass
    name: declared.kind
    for name, declared in check.keys_of(Settings).items()
    if is_dataclass(declared.kind)
}


def thaw(values: Mapping[str, Any]) -> Settings:
    """Make settings of plain values; UserError names the first key that is wrong or missing."""
    text = json.dumps(values)
    if (start := text.find("${")) >= 0:  # which OmegaConf would look up, as ${oc.env:SECRET}
        raise UserError(f"{text[start : start + 40]}: interpolation is not allowed here")
    return check.read(Settings, values)


def freeze(settings: Settings) -> dict[str, Any]:
    """Turn settings into plain values that `thaw` and JSON take."""
    return json.loads(json.dumps(check.to_plain(settings)))


def with_decode(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return settings with other values under decode, checked."""
    if not changes:
        return settings
    values = {  # numbers of numpy
        k: v.item() if getattr(v, "ndim", None) == 0 else v for k, v in changes.items()
    }
    values = {**check.to_plain(settings.decode), **values}
    return replace(settings, decode=check.read(Decode, values, "decode"))


def integers(options: Mapping[str, Any], prefix: str) -> list[tuple[str, int]]:
    """The keys of integers among the options of encodings, and their values."""
    return [(name, n) for name, n in check.flatten(options, prefix) if type(n) is int]


def is_path(name: str) -> bool:
    """Whether the value of a dotted key is a path, which means nothing on another machine."""
    declared = check.find_key(Settings, name)
    return declared is not None and declared.path
