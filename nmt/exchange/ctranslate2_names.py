"""CTranslate2's names of the ids and weights of a model, for both directions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from nmt.config.settings import Decode, Model
from nmt.text.languages import language_id
from nmt.text.vocab import Vocabulary

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")  # of our special ids, unless a piece is called so
ACTIVATIONS = {"relu": 0, "swish": 2, "gelu": 3}  # ctranslate2.specs.common_spec.Activation
STACKS = ("encoder", "decoder")
LAYER = {  # part of a layer -> ours; several maps of one input are one there, row after row
    "self_attention/layer_norm": ["around_attention.norm"],
    "self_attention/linear_0": ["attention.query", "attention.key", "attention.value"],
    "self_attention/linear_1": ["attention.out"],
    "attention/layer_norm": ["around_cross.norm"],
    "attention/linear_0": ["cross.query"],
    "attention/linear_1": ["cross.key", "cross.value"],
    "attention/linear_2": ["cross.out"],
    "ffn/layer_norm": ["around_feedforward.norm"],
    "ffn/linear_0": ["feedforward.inner"],
    "ffn/linear_1": ["feedforward.outer"],
}


@dataclass(frozen=True)
class Naming:
    """CTranslate2's names of our ids, and the positions of its tables."""

    source: list[str]  # by our ids; empty of one that it does not have
    target: list[str]
    source_table: int | None  # tokens that it is right for, a language included; None: any number
    target_table: int | None
    before: Sequence[str] = ()  # names before each source: its language, if there is one
    after: Sequence[str] = ()  # likewise before each target

    @property
    def longest_source(self) -> int | None:
        """Ids of the longest source, eos included; None: any number."""
        return self.source_table and self.source_table - len(self.before)

    @property
    def longest_target(self) -> int | None:
        """Likewise of a target, bos included."""
        return self.target_table and self.target_table - len(self.after)

    def of_source(self, ids: Iterable[int]) -> list[str]:
        """The names that it reads; without eos, which it adds itself."""
        return [*self.before, *(self.source[i] for i in ids)]

    def of_target(self, ids: Iterable[int]) -> list[str]:
        """The names of an output."""
        return [*self.after, *(self.target[i] for i in ids)]

    def target_ids(self, output: Sequence[str]) -> list[int]:
        """The way back of `of_target`."""
        return [self._ids[name] for name in output[len(self.after) :]]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.target)}


def names(source: Vocabulary, target: Vocabulary) -> tuple[list[str], list[str]]:
    """The names of all ids of both sides in an export: our special ids, then the pieces.

    Those are called SPECIAL, with an underscore more as long as a piece of the text is called so.
    """
    pieces = {*source.to_json(), *target.to_json()}

    def free(name: str) -> str:
        return free(f"{name}_") if name in pieces else name

    special = [*map(free, SPECIAL)]
    return [*special, *source.to_json()], [*special, *target.to_json()]


def prefixes(decode: Decode, source: Vocabulary, target: Vocabulary) -> tuple[list[str], list[str]]:
    """The pieces, if any, before each source and each target: the languages of the settings."""
    before, after = (
        language_id(source, decode.source_language, "decode.source_language"),
        language_id(target, decode.target_language, "decode.target_language"),
    )
    return source.pieces(filter(None, [before])), target.pieces(filter(None, [after]))


def modules(shape: Model) -> Iterator[tuple[str, list[str]]]:
    """The norms and linear maps of the stacks by name there, and ours of those that each holds.

    A layer that is shared comes once for each pass.
    """
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        if shape.norm == "pre":
            yield f"{stack}/layer_norm", [f"{stack}.norm"]
        for number in range(count):
            layer = f"{stack}.layers.{0 if shape.share_layers else number}"
            for part, ours in LAYER.items():
                if stack == "decoder" or not part.startswith("attention/"):
                    yield f"{stack}/layer_{number}/{part}", [f"{layer}.{name}" for name in ours]
