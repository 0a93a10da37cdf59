"""Write a model as a directory of CTranslate2 4.8, with the files that nmt and the card read.

CTranslate2's positions are in src/layers/attention.cc and transformer.cc: vectors by distance (key
minus query), the last for all beyond; biases in T5's buckets, half of them for one distance each
and the rest in logarithmic steps; a table of positions, beyond which it raises an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.settings import Decode, Settings
from nmt.decode.engine import within_table
from nmt.decode.torch_engine import FORBIDDEN
from nmt.encodings.base import Dims
from nmt.exchange import ctranslate2_engine, model_card, site_positions
from nmt.exchange.ctranslate2_names import (
    ACTIVATIONS,
    LONGEST,
    SPECIAL,
    STACKS,
    Naming,
    SideNames,
    list_prefixes,
    name_ids,
    output_options,
    pair_modules,
    search_options,
)
from nmt.exchange.interface import CTRANSLATE2, EngineScorer, Export, Output
from nmt.exchange.proof import MOST
from nmt.exchange.site_positions import SitePositions
from nmt.model.transformer import Transformer
from nmt.modeldir import SETTINGS_BESIDE, Trained
from nmt.system import manifest


def prepare(trained: Trained) -> Export:
    """Prepare the export of a model; UserError for what CTranslate2 cannot express."""
    naming, sites = fit(trained)

    def write(directory: Path, precision: str) -> EngineScorer:
        scorer = write_weights(trained, naming, sites, directory, precision)
        files = model_card.list_files(trained) | {
            "source.json": manifest.dump(trained.source.to_json()),
            "target.json": manifest.dump(trained.target.to_json()),
            "facts.json": manifest.dump(trained.facts),
            SETTINGS_BESIDE: ctranslate2_engine.settings_file(trained.settings, precision),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
        return scorer

    most = naming.target.longest and naming.target.longest - 1
    code = partial(model_card.write_program, trained, most=most)
    return Export(trained, write, code)


def fit(trained: Trained) -> tuple[Naming, Mapping[str, SitePositions]]:
    """Names and positions of an export; UserError for what CTranslate2 cannot express."""
    sites = read_positions(trained.settings, trained.model)
    vocabularies = trained.source.vocabulary, trained.target.vocabulary
    tables = sites["encoder"].limit, sites["decoder"].limit
    languages = list_prefixes(trained.settings.decode, *vocabularies)
    sides = map(SideNames, name_ids(*vocabularies), tables, languages)
    return Naming(*sides), sites


def write_weights(
    trained: Trained,
    naming: Naming,
    sites: Mapping[str, SitePositions],
    directory: Path,
    precision: str,
) -> EngineScorer:
    """Write CTranslate2's files into a new directory, and open it."""
    spec = make_specification(trained, sites, naming)
    spec.optimize(quantization=precision)
    directory.mkdir()
    spec.save(str(directory))
    computed_in = "float32" if precision == "float32" else "default"
    return CTranslate2Scorer(directory, naming, trained.settings.decode, computed_in)


def read_positions(settings: Settings, model: Transformer) -> dict[str, SitePositions]:
    """The positions of encoder and decoder; UserError if CTranslate2 cannot express them."""
    shape = settings.model
    width = shape.dim // shape.heads
    stacks = {
        "encoder": (shape.encoder_layers, model.source_embedding.num_embeddings),
        "decoder": (shape.decoder_layers, model.target_embedding.num_embeddings),
    }
    return {
        name: site_positions.read(
            model.sites[name], Dims(name, layers, shape.heads, shape.dim, width, vocab), LONGEST
        )
        for name, (layers, vocab) in stacks.items()
    }


def make_specification(trained: Trained, sites: Mapping[str, SitePositions], naming: Naming) -> Any:
    """The TransformerSpec of a model, with these positions."""
    from ctranslate2 import specs

    model: Any = trained.model
    shape = trained.settings.model
    options = {
        "pre_norm": shape.norm == "pre",
        "activation": specs.common_spec.Activation(ACTIVATIONS[shape.activation]),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(
            shape.encoder_layers, shape.heads, **options, **_position_options(sites["encoder"])
        ),
        specs.TransformerDecoderSpec(
            shape.decoder_layers, shape.heads, **options, **_position_options(sites["decoder"])
        ),
    )
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    _fill(spec.decoder.projection, model.output)
    for name, parts in pair_modules(shape):
        _fill(_part(spec, name), *map(model.get_submodule, parts))
    spec.decoder.start_from_zero_embedding = not shape.target_bos
    for name in STACKS:
        _set_positions(getattr(spec, name), sites[name], both_sides=name == "encoder")
    spec.register_source_vocabulary(naming.source.names)
    spec.register_target_vocabulary(naming.target.names)
    _, bos, eos, unk = naming.target.names[: len(SPECIAL)]
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = bos, eos, unk
    spec.config.decoder_start_token = bos
    spec.config.layer_norm_epsilon = shape.norm_epsilon
    spec.config.add_source_bos = False
    spec.config.add_source_eos = shape.source_eos
    spec.validate()
    return spec


def _position_options(positions: SitePositions) -> dict[str, Any]:
    options: dict[str, Any] = {
        "relative_position": positions.keys is not None,
        "relative_attention_bias": positions.bias is not None,
    }
    if (turns := positions.turns) is not None:
        options |= {"rotary_dim": turns.dim, "rotary_interleave": turns.interleaved}
        options["rotary_base"] = turns.base
        if turns.slow != 1:
            from ctranslate2.specs.attention_spec import RotaryScalingType

            options["rotary_scaling_type"] = RotaryScalingType.Linear
            options["rotary_scaling_factor"] = turns.slow
    return options


def _set_positions(stack: Any, positions: SitePositions, *, both_sides: bool) -> None:
    """Set the positions of a stack; `both_sides`: it looks ahead, too."""
    if positions.table is not None:
        stack.position_encodings.encodings = _array(positions.table)
    for number, layer in enumerate(stack.layer):
        attention = layer.self_attention
        if positions.keys is not None and positions.values is not None:
            attention.relative_position_keys = _array(positions.keys[number])
            attention.relative_position_values = _array(positions.values[number])
        if positions.bias is not None:
            buckets = make_t5_buckets(positions.bias[number], both_sides)  # [buckets, heads]
            attention.relative_attention_bias = _array(buckets)
            most = len(buckets)  # beyond the buckets of one distance each
            attention.relative_attention_max_distance = np.dtype("int32").type(most)
        if positions.scale is not None:
            attention.queries_scale = np.dtype("float32").type(positions.scale)


def make_t5_buckets(by_distance: Tensor, both_sides: bool) -> Tensor:
    """Biases by distance [heads, 2 n - 1] as a table of T5 [buckets, heads].

    The first half of a side's buckets is for the distances 0 .. n - 1, one each; the second half is
    for all beyond, which get the number of distance n - 1. Keys ahead come second.
    """
    n = (by_distance.shape[1] + 1) // 2
    behind, ahead = by_distance[:, :n].flip(1), by_distance[:, n - 1 :]
    sides = [behind, ahead] if both_sides else [behind]
    return torch.cat([part for s in sides for part in (s, s[:, -1:].expand(-1, n))], dim=1).T


def _part(spec: Any, name: str) -> Any:
    for word in name.split("/"):
        if not hasattr(spec, word):  # one of several
            word, _, number = word.rpartition("_")
            spec = getattr(spec, word)[int(number)]
        else:
            spec = getattr(spec, word)
    return spec


def _fill(spec: Any, *maps: nn.Module) -> None:
    """Set a norm, or a linear map made of several; one that is missing is the identity."""
    last: Any = maps[-1]
    if isinstance(last, nn.LayerNorm):
        spec.gamma, spec.beta = _array(last.weight), _array(last.bias)
        return
    size = last.weight.shape[1]
    parts = [m if isinstance(m, nn.Linear) else None for m in maps]
    matrices = [torch.eye(size) if p is None else p.weight for p in parts]
    biases = [torch.zeros(size) if p is None else p.bias for p in parts]
    spec.weight, spec.bias = _array(torch.cat(matrices)), _array(torch.cat(biases))


def _array(t: Tensor) -> Any:
    """A copy: CTranslate2 quantises in place."""
    return np.array(t.detach().float().cpu().numpy(), order="C")


class CTranslate2Scorer(EngineScorer):
    """A directory that CTranslate2 reads, on the CPU and one thread."""

    library = CTRANSLATE2

    def __init__(
        self, directory: Path, naming: Naming, decode: Decode, precision: str = "float32"
    ) -> None:
        """`precision` of the computations; "default": that of the weights."""
        from ctranslate2 import Translator

        self._reader = Translator(
            str(directory), compute_type=precision, inter_threads=1, intra_threads=1
        )
        self._naming, self._decode = naming, (decode := decode.by_beam())
        self.computed_in = self._reader.compute_type
        self.barred = FORBIDDEN[decode.unknown]
        # behind a prefix CTranslate2 bars eos from all beams but the first (its pull request 290)
        self.misses_empty = bool(naming.target.language)
        self.longest_source, self.longest_target = (side.longest for side in naming)
        # high enough for the longest source
        longest = MOST if self.longest_source is None else self.longest_source - 1
        limit = int(decode.max_length_ratio * longest) + decode.max_length_offset
        of_output = output_options(naming, 1, within_table(limit, self.longest_target))
        self.options = search_options(naming, decode) | of_output

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Log-probabilities of each target's ids and eos, in batches of mixed lengths."""
        scored = self._reader.score_batch(
            [self._naming.source.to_names(source) for source, _ in pairs],
            [self._naming.target.to_names(target) for _, target in pairs],
            max_batch_size=8,
            max_input_length=0,
        )
        before = len(self._naming.target.language)
        return (torch.tensor(result.log_probs[before:]) for result in scored)

    def output(self, source: list[int], limit: int, beam: int) -> Output:
        options = search_options(self._naming, replace(self._decode, beam_size=beam, alpha=0.0))
        options |= output_options(self._naming, 1, limit + 1)  # eos, too
        (result,) = self._reader.translate_batch([self._naming.source.to_names(source)], **options)
        ids = self._naming.target.to_ids(result.hypotheses[0])
        return Output(ids[:limit], len(ids) <= limit)
