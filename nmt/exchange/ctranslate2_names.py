"""CTranslate2's names for ids and weights, and the options with which it searches like nmt."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nmt.config.settings import Decode, Model
from nmt.text.languages import language_id
from nmt.text.vocab import EOS, PAD, Vocabulary

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")  # of nmt's special ids, if no piece is called so
ACTIVATIONS = {"relu": 0, "swish": 2, "gelu": 3}  # ctranslate2.specs.common_spec.Activation
STACKS = ("encoder", "decoder")
LAYER = {  # part of a layer -> modules of nmt; maps of one input are one there, row after row
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
LONGEST = 2048  # tokens that tables of positions are written for, where the encoding has no end

# A search with a length penalty ends with so many times beam_size finished hypotheses. nmt goes on
# while an open one is better than all of them: of 200 lines of the embedded corpus that changed 8
# with 1, and none with 1.5 to 4.
PATIENCE = 2


@dataclass(frozen=True)
class SideNames:
    """CTranslate2's names for nmt's ids of one side, and the length of its table of positions."""

    names: list[str]  # by nmt's ids; "" for an id that it does not have
    table: int | None = None  # tokens, with a language; None: no limit
    language: Sequence[str] = ()  # the name of the language before each line, if there is one

    @property
    def longest(self) -> int | None:
        """Ids of the longest line, with eos or bos; None: no limit."""
        return self.table and self.table - len(self.language)

    def to_names(self, ids: Iterable[int]) -> list[str]:
        """The names of a line; CTranslate2 adds the eos of a source."""
        return [*self.language, *(self.names[i] for i in ids)]

    def to_ids(self, output: Sequence[str]) -> list[int]:
        """The ids of an output, without its language."""
        return [self._numbers[name] for name in output[len(self.language) :]]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}


class Naming(NamedTuple):
    """The names of both sides."""

    source: SideNames
    target: SideNames


def name_ids(source: Vocabulary, target: Vocabulary) -> tuple[list[str], list[str]]:
    """The names of all ids of both sides in an export: special ids, then pieces.

    The special ids are called SPECIAL, with underscores added while a piece has the same name.
    """
    pieces = {*source.to_json(), *target.to_json()}

    def free(name: str) -> str:
        return free(f"{name}_") if name in pieces else name

    special = [*map(free, SPECIAL)]
    return [*special, *source.to_json()], [*special, *target.to_json()]


def list_prefixes(
    decode: Decode, source: Vocabulary, target: Vocabulary
) -> tuple[list[str], list[str]]:
    """The pieces of the languages in the settings, put before each source and each target."""
    before, after = (
        language_id(source, decode.source_language, "decode.source_language"),
        language_id(target, decode.target_language, "decode.target_language"),
    )
    return source.pieces(filter(None, [before])), target.pieces(filter(None, [after]))


def pair_modules(shape: Model) -> Iterator[tuple[str, list[str]]]:
    """CTranslate2's name of each norm and linear map, and the modules of nmt in it.

    A shared layer comes once for each pass.
    """
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        if shape.norm == "pre":
            yield f"{stack}/layer_norm", [f"{stack}.norm"]
        for number in range(count):
            layer = f"{stack}.layers.{0 if shape.share_layers else number}"
            for part, parts_in_nmt in LAYER.items():
                if stack == "decoder" or not part.startswith("attention/"):
                    yield f"{stack}/layer_{number}/{part}", [f"{layer}.{p}" for p in parts_in_nmt]


def search_options(naming: Naming, decode: Decode) -> dict[str, Any]:
    """Arguments of `translate_batch` with which it finds what nmt finds, but for a length limit.

    With a length penalty that CTranslate2 lacks, it returns all hypotheses and their scores, so
    that they can be ranked again.
    """
    beam = decode.beam_size
    penalised = beam > 1 and decode.alpha > 0
    patience = PATIENCE if penalised else 1
    anew = is_ranked_anew(decode)
    return {
        "suppress_sequences": [[name] for name in naming.target.names[PAD:EOS] if name],
        "disable_unk": decode.unknown != "allow",
        "min_decoding_length": 0,  # by default 1: no output is empty
        "max_input_length": 0,  # all of it: by default what is beyond 1,024 is not read
        "beam_size": beam,
        "patience": patience,
        "length_penalty": decode.alpha if penalised else 0,
        "num_hypotheses": beam * patience if anew else 1,
        "return_scores": anew,
    }


def is_ranked_anew(decode: Decode) -> bool:
    """Whether hypotheses have a length penalty that CTranslate2 lacks."""
    return decode.beam_size > 1 and decode.alpha > 0 and decode.length_penalty == "wu"


def output_options(naming: Naming, sources: int, limit: int) -> dict[str, Any]:
    """Arguments that put the language, if any, before the outputs of so many sources.

    `limit`: pieces of an output; CTranslate2 counts the language, too.
    """
    language = naming.target.language
    prefix = {"target_prefix": [[*language]] * sources} if language else {}
    return {"max_decoding_length": limit + len(language)} | prefix
