"""What the variables of a CTranslate2 directory say of a model's shape and positions."""

from dataclasses import replace
from itertools import product

import torch

from nmt.config import ImportedSegmenter, Settings
from nmt.encodings.sinusoids import sinusoids
from nmt.exchange.ctranslate2_weights import Parts
from nmt.overrides.compose import experiment_of

SAME = 1e-4  # largest difference of two sinusoids
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # ctranslate2.specs.common_spec.Activation
UNNAMED = "und"  # ISO 639-2: undetermined
SIDES = ("encoder", "decoder")
FROM_ZERO = "decoder/start_from_zero_embedding"  # as Marian's decoders do
PLAIN = (  # variables that decide on what is computed; they must be 0, or absent
    *("encoder/embeddings_merge", "encoder/multi_query_attention", "decoder/alibi"),
    *("decoder/alibi_use_positive_positions", "decoder/scale_alibi"),
    FROM_ZERO,
)


def encoding_of(parts: Parts) -> list[str]:
    """The overrides that choose the positions of both sides."""
    keys = [
        f"{side}/layer_{number}/self_attention/relative_position_keys"
        for side in SIDES
        for number in range(parts.layers(side))
    ]
    variables = parts.files.variables
    if any(key in parts for key in keys):
        shapes = {variables[key].shape if key in parts else None for key in keys}
        rows = {shape[0] for shape in shapes if shape is not None}
        if len(shapes) > 1 or min(rows) % 2 == 0:
            raise parts.wrong("layers whose relative positions differ in number cannot be read")
        tied = all(_is_same(parts, key, f"{key[:-4]}values") for key in keys)
        tau = min(rows) // 2
        return ["encoding=relative", f"tau={tau}", f"encoding.relative.tied={tied}".lower()]
    names = [f"{side}/position_encodings/encodings" for side in SIDES]
    if not any(name in parts for name in names):
        # OpenNMT-tf: sinusoids that CTranslate2 computes itself, as tensor2tensor did, from 1 on
        return ["encoding=absolute", *_sinusoids("halves", "tensor2tensor", 1)]
    table, other = (parts.tensor(name).squeeze() for name in names)
    if not torch.equal(table, other):
        raise parts.wrong(f"{names[0]} and {names[1]} differ, and should be one table")
    if not table.any():
        return ["encoding=none"]
    at = torch.arange(len(table))
    for layout, denominator, start in product(
        ("interleaved", "halves"), ("paper", "tensor2tensor"), (0, 1)
    ):
        usual = sinusoids(at + start, table.shape[1], layout, denominator)
        if (usual - table).abs().max() <= SAME:
            return ["encoding=absolute", *_sinusoids(layout, denominator, start)]
    raise parts.wrong(f"{names[0]} holds other positions than sinusoids")


def _sinusoids(layout: str, denominator: str, start: int) -> list[str]:
    key = "encoding.absolute"
    return [f"{key}.layout={layout}", f"{key}.denominator={denominator}",
            f"{key}.at.index.start={start}"]  # fmt: skip


def _is_same(parts: Parts, *names: str) -> bool:
    """Whether variables are one: an alias, or equal number by number."""
    first, *others = (parts.files.variables.get(name) for name in names)
    return first is not None and all(
        other is not None and first.shape == other.shape and bool((first == other).all())
        for other in others
    )


def settings_of(parts: Parts, encoding: list[str], longest: int | None) -> Settings:
    """What nmt-train would have been told; conf/ says what the files do not."""
    files, variables = parts.files, parts.files.variables
    for name in PLAIN:
        if found := parts.number(name, 0):
            raise parts.wrong(f"{name} is {found}; only 0 can be read")
    norms, heads, activations = (
        [parts.number(f"{side}/{key}", default) for side in SIDES]
        for key, default in (("pre_norm", 1), ("num_heads", 8), ("activation", 0))
    )
    for key, numbers in (("pre_norm", norms), ("num_heads", heads), ("activation", activations)):
        if len(set(numbers)) > 1:
            raise parts.wrong(f"{key} differs between encoder and decoder")
    if (activation := ACTIVATIONS.get(activations[0])) is None:
        raise parts.wrong(f"encoder/activation is {activations[0]}; nmt has no such function")
    widths = ("encoder/embeddings_0/weight", "encoder/layer_0/ffn/linear_0/weight")
    if missing := [name for name in widths if name not in variables]:
        raise parts.wrong(f"has no {missing[0]}")
    shared = files.source == files.target
    settings = experiment_of(
        [
            *("data=files", "data.root=elsewhere", "data.name=imported", "data.normalize=none"),
            *(f"data.source_language={UNNAMED}", f"data.target_language={UNNAMED}"),
            *([] if longest is None else [f"data.max_length={longest}"]),
            *("decode.unknown=allow", *encoding),
            *("decode.length_penalty=power", "decode.alpha=1.0"),
        ]
    ).settings
    model = replace(
        settings.model,
        encoder_layers=parts.layers("encoder"),
        decoder_layers=parts.layers("decoder"),
        dim=variables[widths[0]].shape[-1],
        feedforward_dim=variables[widths[1]].shape[0],
        heads=heads[0],
        norm="pre" if norms[0] else "post",
        tie=_tie(parts, shared),
        activation=activation,
        source_eos=bool(files.config.get("add_source_eos", False)),
    )
    segmenter = ImportedSegmenter(kind="imported", tokenizer="none", shared_vocabulary=shared)
    return replace(settings, segmenter=segmenter, model=model)


def _tie(parts: Parts, shared: bool) -> str:
    """Which embeddings are one matrix; where they are not scaled, each is kept by itself."""
    source, target = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
    scaled = [int(parts.files.variables.get(f"{s}/scale_embeddings", 1)) for s in SIDES]
    if 0 in scaled or not _is_same(parts, target, "decoder/projection/weight"):
        return "none"
    return "all" if shared and _is_same(parts, source, target) else "target"
