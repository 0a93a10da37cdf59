"""Read CTranslate2 directories, into which OpenNMT, Eole, fairseq and OPUS-MT can be converted.

Supported are Transformers with sinusoids, Shaw's relative positions, or none. A variable that has
no counterpart here is refused by name.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from nmt import modeldir
from nmt.config.data import LEARNED
from nmt.config.settings import Model, Settings
from nmt.encodings.sinusoids import Denominator, Layout, sinusoids
from nmt.exchange import ctranslate2_file
from nmt.exchange.argos import METADATA
from nmt.exchange.ctranslate2_file import CTranslate2Files
from nmt.exchange.ctranslate2_names import (
    ACTIVATIONS,
    STACKS,
    Naming,
    SideNames,
    list_prefixes,
    pair_modules,
)
from nmt.exchange.ctranslate2_write import CTranslate2Scorer
from nmt.exchange.interface import CTRANSLATE2, Imported, Sinusoids, invalid
from nmt.exchange.marian_weights import ABSENT, NEVER, EngineIds, number_pieces
from nmt.exchange.settings import UNNAMED, make_trained, read_unigram, settings_of
from nmt.foreign import CTRANSLATE2_WEIGHTS
from nmt.modeldir import SETTINGS_BESIDE
from nmt.system import manifest
from nmt.text.side import Segmenter, Side
from nmt.text.unigram import MarianSegmenter, Unigram

PADDINGS = ("<blank>", "<pad>")  # names of padding in vocabularies
LANGUAGE = re.compile("__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}")  # a piece of M2M100, of NLLB
SAME, ROUNDED = 1e-4, 1e-7  # largest difference of two sinusoids, and what each position adds
TIED = {  # model.tie -> matrices that are the same as another one
    "none": (),
    "target": ("output",),
    "all": ("target_embedding", "output"),
}
FROM_ZERO = "decoder/start_from_zero_embedding"  # as Marian's decoders do
PLAIN = (  # variables of other architectures; they must be 0 or absent
    *("encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi"),
    *("decoder/alibi_use_positive_positions", "decoder/scale_alibi"),
)


def read(directory: Path, trained_length: int | None = None) -> Imported:
    """Read a model with its segmenters: source.json and target.json, or .spm."""
    files = ctranslate2_file.read(directory)
    from_zero = bool(files.number(FROM_ZERO, 0))
    names = files.source, files.target
    ids = [_ids(files, side, from_zero) for side in names]
    kind = MarianSegmenter if from_zero else Unigram
    sides = [
        Side(_segmenter(directory, name, kind), side.vocabulary)
        for name, side in zip(("source", "target"), ids, strict=True)
    ]
    package = manifest.read(path, None) if (path := directory / METADATA).exists() else {}
    languages = [str(package.get(f"{end}_code", UNNAMED)) for end in ("from", "to")]
    shared = files.source == files.target
    shape, search = _shape(files), {"alpha": 1.0}
    settings = settings_of(_encoding(files), search, shape, trained_length, shared, languages)
    if (directory / SETTINGS_BESIDE).exists():  # by nmt-export: how its text is read and searched
        sealed = manifest.VerifiedDirectory(directory, "a whole directory of nmt-export")
        exported = modeldir.settings_of(sealed, SETTINGS_BESIDE)
        cut = exported.segmenter
        if cut.kind in LEARNED:  # files say it by their number
            cut = replace(cut, shared_vocabulary=shared)
        settings = replace(settings, data=exported.data, segmenter=cut, decode=exported.decode)
    tensors = _tensors(files, settings, *ids)
    files.refuse_rest()
    trained = make_trained(
        directory / CTRANSLATE2_WEIGHTS, settings, tensors, sides, trained_length
    )
    languages_before = list_prefixes(settings.decode, *(side.vocabulary for side in ids))
    naming = []
    for side, pieces, language in zip(ids, names, languages_before, strict=True):
        named = ["" if i in side.absent else pieces[n] for i, n in enumerate(side.numbers)]
        naming.append(SideNames(named, language=language))
    scorer = partial(CTranslate2Scorer, directory, Naming(*naming), settings.decode)
    return Imported(trained, CTRANSLATE2, scorer)


def _ids(files: CTranslate2Files, names: Sequence[str], from_zero: bool) -> EngineIds:
    """The ids of a side; UserError (65) for a config that nmt does not support."""
    path, config = files.directory / "config.json", files.config
    if config.get("add_source_bos"):
        raise invalid(path, "add_source_bos=true cannot be read")
    eos, unk, start = (config.get(f"{key}_token") for key in ("eos", "unk", "decoder_start"))
    special = [eos, unk] if from_zero else [eos, unk, start]
    if missing := [piece for piece in special if piece not in names]:
        raise invalid(path, f"the vocabulary has no {missing[0]}")
    if start == eos and (language := next(filter(LANGUAGE.fullmatch, names), None)):
        advice = "import the directory of M2M100 or NLLB that was converted"
        raise invalid(path, f"the piece {language} chooses a language; {advice}")
    padding = next((piece for piece in PADDINGS if piece in names), None)
    numbers = [names.index(piece) for piece in special]
    pad = ABSENT if padding is None else names.index(padding)
    start = ABSENT if from_zero else numbers[2]
    return number_pieces(files.directory, names, [pad, start, *numbers[:2]])


def _segmenter(directory: Path, name: str, kind: type[Unigram]) -> Segmenter:
    segmenter, model = directory / f"{name}.json", directory / f"{name}.spm"
    if segmenter.exists():
        return Side.from_json(manifest.read(segmenter, None)).segmenter
    if not model.exists():
        advice = "put the SentencePiece model of that side there"
        raise invalid(directory, f"no {segmenter.name} and no {model.name}; {advice}")
    return read_unigram(kind, model, UNNAMED)


def _encoding(files: CTranslate2Files) -> list[str]:
    """The overrides that choose the positions."""
    keys = [
        f"{side}/layer_{number}/self_attention/relative_position_keys"
        for side in STACKS
        for number in range(files.layers(side))
    ]
    variables = files.variables
    if any(key in variables for key in keys):
        shapes = {variables[key].shape if key in variables else (0,) for key in keys}
        rows = min(shapes)[0]
        if len(shapes) > 1 or rows % 2 == 0:
            raise files.error("layers whose relative positions differ in number cannot be read")
        tied = all(files.are_equal(key, f"{key[:-4]}values") for key in keys)
        return ["encoding=relative", f"tau={rows // 2}", f"encoding.relative.tied={tied}".lower()]
    names = [f"{side}/position_encodings/encodings" for side in STACKS]
    if not any(name in variables for name in names):
        # OpenNMT-tf: sinusoids that CTranslate2 computes itself, as tensor2tensor did, from 1 on
        return Sinusoids("halves", "tensor2tensor", 1).overrides()
    table, of_decoder = (files.tensor(name).squeeze() for name in names)
    if not torch.equal(table, of_decoder):
        raise files.error(f"{names[0]} and {names[1]} differ, and should be one table")
    if not table.any():
        return ["encoding=none"]
    at = torch.arange(len(table))
    for layout, denominator, start in product(get_args(Layout), get_args(Denominator), range(3)):
        usual = sinusoids(at + start, table.shape[1], layout, denominator)
        if ((usual - table).abs() <= SAME + ROUNDED * at[:, None]).all():
            return Sinusoids(layout, denominator, start).overrides()
    raise files.error(f"{names[0]} holds positions that are no sinusoids")


def _shape(files: CTranslate2Files) -> dict[str, Any]:
    """The keys under `model`, from variables and config.json."""
    for name in PLAIN:
        if number := files.number(name, 0):
            raise files.error(f"{name} is {number}; only 0 can be read")
    both = {}
    for key, default in (("pre_norm", 1), ("num_heads", 8), ("activation", 0)):
        numbers = {files.number(f"{stack}/{key}", default) for stack in STACKS}
        if len(numbers) > 1:
            raise files.error(f"{key} differs between encoder and decoder")
        both[key] = numbers.pop()
    activation = {n: name for name, n in ACTIVATIONS.items()}.get(both["activation"])
    if activation is None:
        raise files.error(f"encoder/activation is {both['activation']}; nmt has no such function")
    *_, dim = files.tensor("encoder/embeddings_0/weight").shape
    inner, *_ = files.tensor("encoder/layer_0/ffn/linear_0/weight").shape
    return {
        "encoder_layers": files.layers("encoder"),
        "decoder_layers": files.layers("decoder"),
        "dim": dim,
        "feedforward_dim": inner,
        "heads": both["num_heads"],
        "norm": "pre" if both["pre_norm"] else "post",
        "norm_epsilon": files.config.get("layer_norm_epsilon") or Model.norm_epsilon,
        "tie": _tie(files, dim),
        "activation": activation,
        "source_eos": bool(files.config.get("add_source_eos", False)),
        "target_bos": not files.number(FROM_ZERO, 0),
    }


def _tie(files: CTranslate2Files, dim: int) -> str:
    """model.tie: which embeddings are one matrix; none if their factors differ from nmt's."""
    source, target = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
    if {files.scale(stack, dim) for stack in STACKS} != {1} or not files.are_equal(
        target, "decoder/projection/weight"
    ):
        return "none"
    return "all" if files.source == files.target and files.are_equal(source, target) else "target"


def _tensors(
    files: CTranslate2Files, settings: Settings, source: EngineIds, target: EngineIds
) -> dict[str, Tensor]:
    """The tensors under nmt's names, embeddings in the order of nmt's ids."""
    shape, tensors = settings.model, dict[str, Tensor]()
    for name, module, ids in (
        ("encoder/embeddings_0", "source_embedding", source),
        ("decoder/embeddings", "target_embedding", target),
        ("decoder/projection", "output", target),
    ):
        rows = _rows(files, name, files.tensor(f"{name}/weight"), ids)
        if module != "output":
            rows = rows * files.scale(name[:7], shape.dim)
        tensors[f"{module}.weight"] = rows
    tensors["output.bias"] = _rows(files, name, _bias(files, name, target.size), target)
    tensors["output.bias"][target.absent] = NEVER
    for module in TIED[shape.tie]:
        del tensors[f"{module}.weight"]
    for name, held in pair_modules(shape):
        if name.endswith("layer_norm"):
            tensors[f"{held[0]}.weight"] = files.tensor(f"{name}/gamma")
            tensors[f"{held[0]}.bias"] = files.tensor(f"{name}/beta")
            continue
        weight = files.tensor(f"{name}/weight")
        parts = weight.chunk(len(held)), _bias(files, name, len(weight)).chunk(len(held))
        for module, w, b in zip(held, *parts, strict=False):  # sizes are compared later
            tensors |= {f"{module}.weight": w, f"{module}.bias": b}
    for side in STACKS if "relative" in settings.encoding else ():
        layers = [f"{side}/layer_{n}/self_attention" for n in range(files.layers(side))]
        for role in ("keys", "values"):
            tables = [files.tensor(f"{layer}/relative_position_{role}") for layer in layers]
            if role == "keys" or not settings.encoding["relative"]["tied"]:
                name = f"{side}_encodings.entries.0.{role[:-1]}_table"
                tensors[name] = torch.stack(tables)[:, None]  # [layers, 1, 2 tau + 1, head_dim]
    return tensors


def _rows(files: CTranslate2Files, name: str, table: Tensor, ids: EngineIds) -> Tensor:
    if len(table) != ids.size:
        raise files.error(f"{name} has {len(table)} rows, but the vocabulary {ids.size} pieces")
    return ids.rows_in_nmt(table)


def _bias(files: CTranslate2Files, name: str, size: int) -> Tensor:
    """Bias of a linear map, zeros if it has none."""
    return files.tensor(f"{name}/bias") if f"{name}/bias" in files.variables else torch.zeros(size)
