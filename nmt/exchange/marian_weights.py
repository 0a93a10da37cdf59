"""The ids and tensors of Marian, of Hugging Face's Marian and M2M100, and those of nmt.

They differ in the numbers of pieces, hence in the order of rows, and in the names of tensors.
Tensors are laid out as in torch: a row for each piece, a linear map [out, in].
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.config.settings import Model
from nmt.encodings.input.absolute import Absolute
from nmt.exchange.interface import invalid
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained, in_file
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, Vocabulary

ABSENT = -1  # of an id that the engine does not have; as an index, of a row added at the end
EOS_PIECE, UNK_PIECE, PAD_PIECE = "</s>", "<unk>", "<pad>"
SPECIAL_PIECES = {EOS_PIECE, UNK_PIECE, PAD_PIECE}
# The logit of an id that Marian does not have: its probability is negligible, and so is its share
# of a loss by label smoothing when training continues.
NEVER = -100.0
HUGGING_FACE, MARIAN = 0, 1  # formats of tensors
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
_SOURCE, _TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
# model.tie -> nmt's name of each matrix -> its possible names, by format
_MATRICES: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {
    "all": {"source_embedding": (("shared.weight", _SOURCE, _TARGET, OUTPUT), ("Wemb",))},
    "target": {
        "source_embedding": ((_SOURCE,), ("encoder_Wemb",)),
        "target_embedding": ((_TARGET, OUTPUT), ("decoder_Wemb",)),
    },
    "none": {
        "source_embedding": ((_SOURCE,), ("encoder_Wemb",)),
        "target_embedding": ((_TARGET,), ("decoder_Wemb",)),
        "output": ((OUTPUT,), ("decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt")),
    },
}
_LAYER = {  # nmt's module -> that of Hugging Face, and the weight and bias of Marian itself
    "attention.query": ("self_attn.q_proj", "self_Wq", "self_bq"),
    "attention.key": ("self_attn.k_proj", "self_Wk", "self_bk"),
    "attention.value": ("self_attn.v_proj", "self_Wv", "self_bv"),
    "attention.out": ("self_attn.out_proj", "self_Wo", "self_bo"),
    "around_attention.norm": ("self_attn_layer_norm", "self_Wo_ln_scale", "self_Wo_ln_bias"),
    "cross.query": ("encoder_attn.q_proj", "context_Wq", "context_bq"),
    "cross.key": ("encoder_attn.k_proj", "context_Wk", "context_bk"),
    "cross.value": ("encoder_attn.v_proj", "context_Wv", "context_bv"),
    "cross.out": ("encoder_attn.out_proj", "context_Wo", "context_bo"),
    "around_cross.norm": ("encoder_attn_layer_norm", "context_Wo_ln_scale", "context_Wo_ln_bias"),
    "feedforward.inner": ("fc1", "ffn_W1", "ffn_b1"),
    "feedforward.outer": ("fc2", "ffn_W2", "ffn_b2"),
    "around_feedforward.norm": ("final_layer_norm", "ffn_ffn_ln_scale", "ffn_ffn_ln_bias"),
}


class EngineIds(NamedTuple):
    """The ids of one side in another engine."""

    vocabulary: Vocabulary
    numbers: list[int]  # the engine's id of each of nmt's, or ABSENT; BOS: what starts its decoder

    @property
    def size(self) -> int:
        """The number of the engine's ids."""
        return max(self.numbers) + 1

    @property
    def pad(self) -> int:
        """The engine's id of padding; if it has none, the one that starts the decoder."""
        return self.numbers[BOS if self.numbers[PAD] == ABSENT else PAD]

    @property
    def absent(self) -> list[int]:
        """Special ids of nmt that the engine does not have, or that are its eos."""
        return [i for i in (PAD, BOS) if self.numbers[i] in (ABSENT, self.numbers[EOS])]

    def to_engine(self, ids: Iterable[int]) -> list[int]:
        """The engine's ids of nmt's."""
        return [self.numbers[i] for i in ids]

    def to_nmt(self, ids: Iterable[int]) -> list[int]:
        """The ids in nmt of the engine's; one id for bos and eos becomes EOS."""
        in_nmt = {number: i for i, number in enumerate(self.numbers)}
        return [in_nmt[number] for number in ids]

    def never(self, ids: Iterable[int]) -> list[list[int]]:
        """Forbidden ids of nmt as bad_words_ids, except a bos that is also the eos."""
        return [[self.numbers[i]] for i in ids if i not in self.absent]

    def rows_in_nmt(self, table: Tensor) -> Tensor:
        """Rows of the engine's table [ids, ...] by nmt's ids; zeros for ids that it lacks."""
        return torch.cat([table, torch.zeros_like(table[:1])])[self.numbers]

    def rows_in_engine(self, table: Tensor) -> Tensor:
        """Rows of nmt's table by the engine's ids, without those that it lacks."""
        rows = table.new_zeros(self.size + 1, *table.shape[1:])
        rows[self.numbers] = table
        return rows[:-1]

    def to_json(self) -> dict[str, int]:
        """The contents of vocab.json, in the order of the ids."""
        _, start, eos, unk, *of_pieces = self.numbers
        ids = dict(zip(self.vocabulary.to_json(), of_pieces, strict=True))
        ids |= {EOS_PIECE: eos, UNK_PIECE: unk}
        ids |= {} if start == ABSENT else {PAD_PIECE: start}
        return dict(sorted(ids.items(), key=lambda item: item[1]))


def number_pieces(path: Path, pieces: Sequence[str], special: Sequence[int]) -> EngineIds:
    """The ids of a side, by the list of its pieces.

    `special`: the engine's ids of padding, start, end and unknown, which are no pieces in nmt.
    """
    of_pieces = [i for i in range(len(pieces)) if i not in special]
    with in_file(path):
        vocabulary = Vocabulary.from_json([pieces[i] for i in of_pieces])
    return EngineIds(vocabulary, [*special, *of_pieces])


def number_marian(vocabulary: Vocabulary) -> EngineIds:
    """Ids as Marian numbers them: </s>, <unk>, the pieces."""
    return EngineIds(vocabulary, [ABSENT, ABSENT, *range(2 + len(vocabulary) - SPECIALS)])


def number_opus(*vocabularies: Vocabulary) -> list[EngineIds]:
    """Ids for the vocabularies of both sides, as in OPUS-MT: </s>, <unk>, the pieces, <pad>.

    Both sides must have the same id of padding: it comes before the pieces if their numbers differ.
    """
    sizes = [len(vocabulary) - SPECIALS for vocabulary in vocabularies]
    pad_last = len(set(sizes)) == 1
    first = 2 if pad_last else 3
    return [
        EngineIds(v, [ABSENT, 2 + size if pad_last else 2, 0, 1, *range(first, first + size)])
        for v, size in zip(vocabularies, sizes, strict=True)
    ]


def pair_names(shape: Model, format: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """nmt's name of each tensor, and its possible names in a format.

    Those of Hugging Face are without "model."; a shared layer comes once for each pass.
    """
    for matrix, by_format in _MATRICES[shape.tie].items():
        yield f"{matrix}.weight", by_format[format]
    yield "output.bias", ((BIAS,), ("decoder_ff_logit_out_b",))[format]
    for stack, count in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for n in range(count):
            layer = f"{stack}.layers.{0 if shape.share_layers else n}"
            for module, (hugging_face, *marian) in _LAYER.items():
                if stack == "encoder" and "cross" in module:
                    continue
                for kind, name in zip(("weight", "bias"), marian, strict=True):
                    both = f"{stack}.layers.{n}.{hugging_face}.{kind}", f"{stack}_l{n + 1}_{name}"
                    yield f"{layer}.{module}.{kind}", (both[format],)
        for kind in ("weight", "bias") if shape.norm == "pre" else ():
            yield f"{stack}.norm.{kind}", (f"{stack}.layer_norm.{kind}",)


def to_nmt(
    path: Path, tensors: Mapping[str, Tensor], shape: Model, ids: Sequence[EngineIds], format: int
) -> dict[str, Tensor]:
    """The tensors under nmt's names; UserError (65) for those that cannot be read.

    `ids`: of source and target. A superfluous tensor keeps its name, by which it is refused when
    the model is made; so is a missing one.
    """
    in_nmt = {**tensors}
    for name, possible in pair_names(shape, format):
        copies = {n: in_nmt.pop(n) for n in possible if n in in_nmt}
        if copies:
            first, tensor = next(iter(copies.items()))
            if not torch.isfinite(tensor).all():
                raise invalid(path, f"{first} holds numbers that are not finite")
            if not all(torch.equal(tensor, copy) for copy in copies.values()):
                raise invalid(path, f"{', '.join(copies)} differ, and should be one matrix")
            side = _side(name, ids)
            if side and tensor.shape[:1] != (side.size,):
                size = f"{first} is {list(tensor.shape)}"
                raise invalid(path, f"the vocabulary has {side.size} pieces, but {size}")
            in_nmt[name] = side.rows_in_nmt(tensor) if side else tensor
    if "output.bias" in in_nmt:
        in_nmt["output.bias"][ids[1].absent] = NEVER
    return in_nmt


def to_engine(trained: Trained, ids: Sequence[EngineIds], format: int) -> dict[str, Tensor]:
    """The inverse of `to_nmt`; a tensor with several names gets the first."""
    order, tensors = _component_order(trained.model), dict[str, Tensor]()
    for name, possible in pair_names(trained.settings.model, format):
        values: Tensor = trained.model.get_parameter(name)
        side = _side(name, ids)
        module, kind = name.split(".")[-2:]
        if side is None and module not in ("query", "key", "value", "inner"):
            values = values[order]  # a map that writes such vectors, or a norm
        elif kind == "weight":
            values = values[:, order]  # a map that reads them, or embeddings
        values = side.rows_in_engine(values) if side else values.clone()  # a layer may be shared
        tensors[possible[0]] = values.detach().float().cpu().contiguous()
    return tensors


def _side(name: str, ids: Sequence[EngineIds]) -> EngineIds | None:
    """The side whose ids number the rows of a tensor of nmt; None: neither."""
    if name.startswith("source_embedding."):
        return ids[0]
    return ids[1] if name.startswith(("target_embedding.", "output.")) else None


def find_sinusoids(model: Transformer, site: str) -> Absolute | None:
    """The sinusoids of a site, if they are its only encoding."""
    encodings = list(model.sites[site])
    return encodings[0] if len(encodings) == 1 and isinstance(encodings[0], Absolute) else None


def _component_order(model: Transformer) -> Tensor:
    """The index of nmt's component at each index of the engine's vectors [dim].

    If sines and cosines alternate in nmt, they come in halves in the engine. With all vectors
    between the layers in that order, too, the model computes the same.
    """
    sinusoids = find_sinusoids(model, "decoder")
    components = torch.arange(model.source_embedding.embedding_dim)
    if sinusoids is None or sinusoids.layout == "halves":
        return components
    return torch.cat([components[0::2], components[1::2]])
