"""A model as the files of a Marian model of Hugging Face: the way back of `marian_read.read`.

That family knows one form of model: norms after the sublayers and none above the stacks,
embeddings times the root of the width, sinusoids as halves of sines and cosines, SentencePiece.
Where sines and cosines alternate, the same numbers stand in another order: so do then the
components of all vectors that the layers pass on, and the model computes the same.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from nmt.config import Settings
from nmt.data.side import Side
from nmt.data.unigram import Unigram
from nmt.data.vocab import BOS, PAD, SPECIALS
from nmt.decode.torch_engine import FORBIDDEN
from nmt.encodings.base import Dims
from nmt.encodings.sinusoids import LAYOUTS, sinusoids
from nmt.errors import UserError
from nmt.exchange import marian_config, marian_weights, site_positions, unshared
from nmt.exchange.marian_read import EOS_PIECE, PAD_PIECE, UNK_PIECE
from nmt.exchange.marian_weights import Numbering
from nmt.exchange.settings import UNNAMED
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained

TABLE = 512  # positions, as those of OPUS-MT; more where training had more
SAME = 1e-5  # largest difference of two sinusoids
ENGINE = "Marian"

log = logging.getLogger(__name__)


class MarianFiles(NamedTuple):
    """All that decides on the files."""

    trained: Trained
    source: Numbering  # the ids that the files give
    target: Numbering
    positions: int  # of the table of sinusoids
    order: Tensor  # [dim] which of our components each of theirs is


def specification(trained: Trained) -> MarianFiles:
    """Find out how a model is written down; raises UserError for what that family has not."""
    if trained.settings.model.norm != "post":
        raise UserError(
            "model.norm=pre: cannot be exported to Marian, whose norms come after the sublayers; "
            "train with model.norm=post, or export --to ctranslate2"
        )
    if not trained.settings.model.source_eos:
        raise UserError(
            "model.source_eos=false: cannot be exported to Marian, whose models read the sign that "
            "ends a source; export --to ctranslate2"
        )
    unshared.refuse(trained.settings, trained.model, ENGINE)
    for name, side in (("source", trained.source), ("target", trained.target)):
        _refuse_segmenter(name, side)
    positions = max(TABLE, (trained.facts["longest_source"] or 0) + 1)
    order = _order(trained.settings, trained.model, positions)
    source, target = _numberings(trained.source, trained.target)
    return MarianFiles(trained, source, target, positions, order)


def files(written: MarianFiles) -> Iterator[tuple[str, bytes]]:
    """The files (name, bytes) of the directory."""
    trained, source, target, *_ = written
    settings = trained.settings
    yield "config.json", _json(_config(written))
    yield "generation_config.json", _json(_generation(settings, target, written.positions))
    languages = (settings.data.source_language, settings.data.target_language)
    yield "tokenizer_config.json", _json({
        **{f"{side}_lang": language for side, language in zip(("source", "target"), languages,
                                                             strict=True) if language != UNNAMED},
        "model_max_length": written.positions,
        "separate_vocabs": _separate(trained),
        "tokenizer_class": "MarianTokenizer",
    })  # fmt: skip
    yield "vocab.json", _json(_ids(source))
    if _separate(trained):
        yield "target_vocab.json", _json(_ids(target))
    for name, side in (("source", trained.source), ("target", trained.target)):
        assert isinstance(side.segmenter, Unigram)  # anything else was refused
        yield f"{name}.spm", side.segmenter.model
    tensors = _tensors(written)
    yield "model.safetensors", safetensors.torch.save(tensors, {"format": "pt"})


def _refuse_segmenter(name: str, side: Side) -> None:
    """Raise UserError where their tokenizer would make other pieces of a normalised line."""
    segmenter = side.segmenter
    if not isinstance(segmenter, Unigram):
        raise UserError(
            f"segmenter.kind={segmenter.to_json()['kind']}: cannot be exported to Marian, whose "
            "pieces are SentencePiece's; train with segmenter=unigram"
        )
    if segmenter.tokenizer.kind != "none":
        raise UserError(
            f"segmenter.tokenizer={segmenter.tokenizer.kind}: cannot be exported to Marian, which "
            "runs SentencePiece on plain text; train with segmenter.tokenizer=none"
        )
    if segmenter.tokenizer.normalize == "nfkc":
        raise UserError(
            "data.normalize=nfkc: cannot be exported to Marian, which would read much text "
            "otherwise; train with data.normalize=nfc or none"
        )
    special = {EOS_PIECE, UNK_PIECE, PAD_PIECE} & set(side.vocabulary.to_json())
    if special:
        raise UserError(
            f"the {name} vocabulary holds {min(special)}, which has a meaning of its own in Marian"
        )


def _order(settings: Settings, model: Transformer, positions: int) -> Tensor:
    """Which of our components each of theirs is; UserError unless positions are sinusoids."""
    layouts = {name: _layout(settings, model, name, positions) for name in ("encoder", "decoder")}
    if len(set(layouts.values())) > 1:
        raise UserError(
            f"encoding.layout: cannot be exported to Marian, because encoder and decoder differ "
            f"({', '.join(layouts.values())}); train both with encoding.absolute.layout=halves"
        )
    components = torch.arange(settings.model.dim)
    if layouts["encoder"] == "halves":
        return components
    return torch.cat([components[0::2], components[1::2]])


def _layout(settings: Settings, model: Transformer, name: str, positions: int) -> str:
    """The layout of a site's sinusoids."""
    site, shape = model.sites[name], settings.model
    entries = "+".join(e.name for e in site.each())
    refused = UserError(
        f"encoding.{entries}: cannot be exported to Marian, which adds sinusoids to the embeddings "
        f"of the {name} and knows no other positions; the nearest is encoding=absolute"
    )
    hooks = [hook for hook in site_positions.KINDS if hook != "embed"]
    if site.scale is not None or any(e.overrides(hook) for e in site.each() for hook in hooks):
        raise refused
    dims = Dims(name, 1, shape.heads, shape.dim, shape.dim // shape.heads, SPECIALS)
    table = site_positions.read(site, dims, positions).table
    at = torch.arange(positions)
    for layout in LAYOUTS:
        usual = sinusoids(at, shape.dim, layout)
        if table is not None and table.shape == usual.shape and _same(table, usual):
            return layout
    raise refused


def _same(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= SAME)


def _numberings(source: Side, target: Side) -> tuple[Numbering, Numbering]:
    """Their ids: </s>, <unk>, the pieces, <pad>, as in OPUS-MT.

    Both sides want one id of padding. Where one has more pieces, it comes before the pieces.
    """
    sizes = [len(side.vocabulary) - SPECIALS for side in (source, target)]
    first = 2 if sizes[0] == sizes[1] else 3
    made = []
    for side, size in zip((source, target), sizes, strict=True):
        pad = 2 + size if first == 2 else 2
        made.append(Numbering(side.vocabulary, [0, 1, *range(first, first + size)], pad))
    return made[0], made[1]


def _ids(side: Numbering) -> dict[str, int]:
    """The contents of a vocabulary, in the order of the ids."""
    eos, unk, *others = side.order
    ids = dict(zip(side.vocabulary.to_json(), others, strict=True))
    ids |= {EOS_PIECE: eos, UNK_PIECE: unk, PAD_PIECE: side.pad}
    return dict(sorted(ids.items(), key=lambda item: item[1]))


def _separate(trained: Trained) -> bool:
    return trained.source.vocabulary.to_json() != trained.target.vocabulary.to_json()


def _config(written: MarianFiles) -> dict[str, Any]:
    trained, source, target, positions, _ = written
    return {
        **marian_config.written(trained.settings.model),
        "architectures": ["MarianMTModel"],
        "decoder_start_token_id": target.pad,
        "vocab_size": len(source.theirs),
        "decoder_vocab_size": len(target.theirs),
        "dtype": "float32",
        "eos_token_id": target.order[0],
        "forced_eos_token_id": target.order[0],
        "is_encoder_decoder": True,
        "max_position_embeddings": positions,
        "pad_token_id": target.pad,
        "use_cache": True,
    }


def _generation(settings: Settings, target: Numbering, positions: int) -> dict[str, Any]:
    """How transformers decodes where nobody says otherwise: our settings, as far as it has them."""
    decode = settings.decode
    if decode.beam_size > 1 and decode.length_penalty != "power" and decode.alpha:
        log.warning(
            "decode.length_penalty=%s: transformers divides by length ** %g instead",
            decode.length_penalty, decode.alpha,
        )  # fmt: skip
    never = [target.theirs[i - BOS] for i in FORBIDDEN[decode.unknown] if i != PAD]
    return {
        "bad_words_ids": [[number] for number in never],
        "decoder_start_token_id": target.pad,
        "eos_token_id": target.order[0],
        "forced_eos_token_id": target.order[0],
        "max_length": positions,
        "num_beams": decode.beam_size,
        **({"length_penalty": decode.alpha} if decode.beam_size > 1 else {}),
        "pad_token_id": target.pad,
    }


def _tensors(written: MarianFiles) -> dict[str, Tensor]:
    """The weights under their names; those of a layer that is shared once for each pass."""
    trained, source, target, _, order = written
    model, shape = trained.model, trained.settings.model
    tensors: dict[str, Tensor] = {}
    for ours, (name, *_) in marian_weights.MATRICES[shape.tie].items():
        side = source if ours == "source_embedding" else target
        table: Any = model.get_submodule(ours)
        prefix = "" if name == marian_weights.OUTPUT else "model."
        tensors[prefix + name] = _rows(table.weight[:, order], side)
    bias = model.output.bias
    assert isinstance(bias, Tensor)
    tensors["final_logits_bias"] = _rows(bias, target)[None]
    passes = {"encoder": shape.encoder_layers, "decoder": shape.decoder_layers}
    for stack, count in passes.items():
        layers: Any = model.get_submodule(stack).layers
        for number in range(count):
            layer: nn.Module = layers[number % len(layers)]
            for theirs, inner in marian_weights.MODULES.items():
                if stack == "encoder" and "cross" in inner:
                    continue
                part = layer.get_submodule(inner)
                where = f"model.{stack}.layers.{number}.{theirs}"
                for kind, values in part.named_parameters():
                    tensors[f"{where}.{kind}"] = _ordered(values, inner, kind, order)
    return {name: t.detach().float().cpu().clone().contiguous() for name, t in tensors.items()}


def _ordered(values: Tensor, inner: str, kind: str, order: Tensor) -> Tensor:
    """A parameter with the components that go between layers in their order."""
    name = inner.rpartition(".")[2]
    if name in ("query", "key", "value", "inner"):  # read them
        return values[:, order] if kind == "weight" else values
    return values[order]  # write them, or are a norm


def _rows(table: Tensor, side: Numbering) -> Tensor:
    """Our rows in the order of their ids; that of our padding has no place there."""
    made = torch.zeros_like(table[BOS:])
    made[side.theirs] = table[BOS:]
    return made


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
