"""The schema of decoding."""

from dataclasses import dataclass, replace
from typing import Any

from nmt.errors import UserError
from nmt.schema import knob

SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1}  # key -> without effect
BEAM = ("beam_size", "alpha", "length_penalty")  # keys without effect where decode.method=sample
RESTRICTIONS: dict[str, Any] = {
    "length": "free",
    "min_length_ratio": 0.0,
    "no_repeat_ngram": 0,
    "coverage_penalty": 0.0,
}
"""Key -> the value that leaves the search free."""

MANY = 1000  # candidates of a line, whose number of comparisons by decode.mbr is the square


@dataclass
class Decode:
    """How to search for a translation."""

    method: str = knob(
        "beam: search by beam_size; sample: draw at random",
        choices=("beam", "sample"),
        absent="beam",
    )
    beam_size: int = knob("hypotheses kept; 1 is greedy", least=1, most=MANY)
    precision: str = knob(
        "number format; the other two round more, and are used only where they are faster",
        choices=("float32", "bfloat16", "int8"),
    )
    alpha: float = knob("exponent of the length penalty; 0: none", least=0, most=10)
    length_penalty: str = knob(
        "wu: ((5 + pieces) / 6)^alpha; power: pieces^alpha, as Marian and CTranslate2 have it",
        choices=("wu", "power"),
        absent="wu",
    )
    max_length_ratio: float = knob("longest output = ratio x source + offset", least=0, most=1000)
    max_length_offset: int = knob("see max_length_ratio", least=1, most=10_000)
    min_length_ratio: float = knob(
        "shortest output = ratio x source; 0: any", least=0, most=1000, absent=0.0
    )
    length: str = knob(
        "forced: each output has as many pieces as --columns length=FILE says",
        choices=("free", "forced"),
        absent="free",
    )
    no_repeat_ngram: int = knob(
        "no sequence of so many pieces occurs twice in an output; 0: any may", least=0, absent=0
    )
    coverage_penalty: float = knob(
        "weight of the coverage penalty among finished hypotheses; 0: none",
        least=0,
        most=10,
        absent=0.0,
    )
    batch_tokens: int = knob("size of a batch: source tokens x hypotheses of each", least=1)
    window: int = knob("lines read, sorted and translated together; 1: line by line", least=1)
    position_scale: float = knob(
        "position interpolation: all positions times this", least=0.001, most=1000
    )
    target_length: str = knob(
        "output length for encodings that need it; given: --columns length=FILE, in pieces",
        choices=("ratio", "given"),
    )
    length_ratio: float = knob(
        "with target_length=ratio: output pieces per source piece, for ldpe and lrpe",
        least=0.01,
        most=1000,
    )
    max_source: int = knob("longest source in pieces; see too_long", least=1, absent=1000)
    split: str = knob(
        "a line: as it is; each sentence alone; auto: where it has more pieces than any in "
        "training, as many of its sentences together as have not",
        choices=("lines", "sentences", "auto"),
        absent="lines",
    )
    too_long: str = knob(
        "sources longer than max_source or the position table: translate in parts; leave the line "
        "empty and end with an error; cut",
        choices=("split", "refuse", "truncate"),
    )
    source_language: str | None = knob(
        "the piece before each source, where a model knows languages by a piece; null: none",
        absent=None,
    )
    target_language: str | None = knob(
        "the piece that each translation follows, likewise; neither is part of a text", absent=None
    )
    unknown: str = knob(
        "the unknown piece (<unk>) in translations",
        choices=("forbid", "allow"),
        absent="forbid",
    )
    temperature: float = knob(
        "method=sample: divides log-probabilities; below 1, likely tokens become likelier",
        least=0.01,
        most=100,
        absent=1.0,
    )
    top_k: int = knob("method=sample: only the k most probable tokens; 0: all", least=0, absent=0)
    top_p: float = knob(
        "method=sample: only the fewest tokens that hold this probability; 1: all",
        least=0.001,
        most=1,
        absent=1.0,
    )
    seed: int = knob("method=sample: random seed", least=1, absent=1)
    mbr: int = knob(
        "minimum Bayes risk: choose among N samples, or the N best of the beam, by chrF2; 0: off",
        least=0,
        most=MANY,
        absent=0,
    )

    def __post_init__(self) -> None:
        if self.mbr == 1:
            raise UserError("decode.mbr=1: no choice; give 2 candidates or more, or 0 for none")
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
        if self.min_length_ratio and self.length == "forced":
            raise UserError(
                f"decode.min_length_ratio={self.min_length_ratio}: no effect with "
                "decode.length=forced; leave one of them out"
            )
        if self.min_length_ratio > self.max_length_ratio:
            raise UserError(
                f"decode.min_length_ratio={self.min_length_ratio}: above "
                f"decode.max_length_ratio={self.max_length_ratio}, which decides then; raise that"
            )
        if self.coverage_penalty and (self.method == "sample" or self.beam_size == 1):
            raise UserError(
                f"decode.coverage_penalty={self.coverage_penalty}: no effect without other "
                "hypotheses to choose from; set decode.method=beam and decode.beam_size above 1, "
                "or leave it at 0"
            )
        if self.method == "sample":
            return
        for key, neutral in SAMPLING.items():
            if (value := getattr(self, key)) != neutral:
                raise UserError(
                    f"decode.{key}={value}: no effect without sampling; add decode.method=sample, "
                    f"or leave it at {neutral}"
                )

    @property
    def reads_lengths(self) -> bool:
        """Whether a column says how many pieces each output shall have."""
        return self.length == "forced" or self.target_length == "given"

    @property
    def pieces_before(self) -> int:
        """Pieces before an output that its length penalty counts, as in other engines: a tag."""
        return int(self.target_language is not None)

    def by_beam(self) -> "Decode":
        """The same, without sampling and choosing among samples."""
        return replace(self, method="beam", temperature=1.0, top_k=0, top_p=1.0, seed=1, mbr=0)

    def width(self, n_best: int) -> int:
        """Hypotheses of each source that are kept at a time, for n_best translations."""
        return n_best if self.method == "sample" else self.beam_size

    def check_n_best(self, count: int, option: str, key: str) -> None:
        """Raise UserError if the search holds fewer than `count` hypotheses, or that is below 1.

        `option` is how the user set the count, as "--n-best 9", and `key` how to set beam_size.
        """
        if count < 1:
            raise UserError(f"{option}: a line has one translation or more; give 1 at least")
        if self.mbr and count > self.mbr:
            raise UserError(f"{option}: decode.mbr={self.mbr} has no more candidates; raise it")
        if self.method == "beam" and count > self.beam_size:
            raise UserError(f"{option}: the beam holds {self.beam_size}; {key}={count}")
