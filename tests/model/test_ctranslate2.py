"""A whole model with Shaw's encoding against an implementation by others (extra: ct2)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from nmt.model.attention import Attention
from nmt.model.transformer import Transformer

ct2 = pytest.importorskip("ctranslate2", reason="pip install 'nmt[ct2]'")
Make = Callable[..., Transformer]


def linear(spec: Any, *parts: nn.Linear) -> None:
    spec.weight = torch.cat([p.weight for p in parts]).detach().numpy()
    spec.bias = torch.cat([p.bias for p in parts]).detach().numpy()


def norm(spec: Any, part: nn.Module) -> None:
    assert isinstance(part, nn.LayerNorm)
    spec.gamma, spec.beta = part.weight.detach().numpy(), part.bias.detach().numpy()


def self_attention(spec: Any, part: Attention, before: nn.Module, tables: Any, layer: int) -> None:
    norm(spec.layer_norm, before)
    linear(spec.linear[0], part.query, cast(nn.Linear, part.key), part.value)
    linear(spec.linear[1], part.out)
    spec.relative_position_keys = tables.key_table[layer, 0].detach().numpy()
    spec.relative_position_values = tables.value_table[layer, 0].detach().numpy()


def translator(model: Any, directory: Path, size: int) -> Any:
    spec = ct2.specs.TransformerSpec.from_config(
        (2, 2), 2, pre_norm=True, with_relative_position=True
    )
    spec.encoder.embeddings[0].weight = model.source_embedding.weight.detach().numpy()
    spec.decoder.embeddings.weight = model.target_embedding.weight.detach().numpy()
    norm(spec.encoder.layer_norm, model.encoder.norm)
    norm(spec.decoder.layer_norm, model.decoder.norm)
    linear(spec.decoder.projection, model.output)
    for n, (s, layer) in enumerate(zip(spec.encoder.layer, model.encoder.layers, strict=True)):
        tables = model.encoder_encodings.entries[0]
        before = layer.around_attention.norm
        self_attention(s.self_attention, layer.attention, before, tables, n)
        feed_forward(s.ffn, layer)
    for n, (s, layer) in enumerate(zip(spec.decoder.layer, model.decoder.layers, strict=True)):
        tables = model.decoder_encodings.entries[0]
        before = layer.around_attention.norm
        self_attention(s.self_attention, layer.attention, before, tables, n)
        norm(s.attention.layer_norm, layer.around_cross.norm)
        linear(s.attention.linear[0], layer.cross.query)
        linear(s.attention.linear[1], layer.cross.key, layer.cross.value)
        linear(s.attention.linear[2], layer.cross.out)
        feed_forward(s.ffn, layer)
    words = ["<blank>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(4, size))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    directory.mkdir()
    spec.save(str(directory))
    return ct2.Translator(str(directory), inter_threads=1, intra_threads=1), words


def feed_forward(spec: Any, layer: Any) -> None:
    norm(spec.layer_norm, layer.around_feedforward.norm)
    linear(spec.linear_0, layer.feedforward.inner)
    linear(spec.linear_1, layer.feedforward.outer)


def test_log_probabilities_agree(tiny: Make, ids: Callable[..., Tensor], tmp_path: Path) -> None:
    """Sources and targets longer than tau, scored token by token by both."""
    model = tiny("encoding=relative", "tau=3")
    theirs, words = translator(model, tmp_path / "model", 30)
    for seed in range(5):
        source, target = ids(1, 11, seed=seed), ids(1, 9, seed=seed + 50)
        result = theirs.score_batch(
            [[words[i] for i in source[0]]], [[words[i] for i in target[0]]]
        )[0]
        prefix = torch.cat([torch.tensor([[1]]), target], 1)
        log_probs = model(source, prefix)[0].log_softmax(-1)
        wanted = [*target[0].tolist(), 2]
        ours = [float(log_probs[t, w].detach()) for t, w in enumerate(wanted)]
        assert result.log_probs == pytest.approx(ours, abs=2e-5)


def test_greedy_output_agrees(tiny: Make, ids: Callable[..., Tensor], tmp_path: Path) -> None:
    """Theirs with its own cache, ours with ours."""
    model = tiny("encoding=relative", "tau=3")
    theirs, words = translator(model, tmp_path / "model", 30)
    for seed in range(5):
        source = ids(1, 11, seed=seed)
        result = theirs.translate_batch(
            [[words[i] for i in source[0]]], beam_size=1, max_decoding_length=12
        )[0]
        with torch.inference_mode():
            state, token, out = model.start(source), torch.tensor([1]), []
            for _ in range(12):
                token = model.step(token, state).argmax(-1)
                if token == 2:
                    break
                out.append(words[token])
        assert result.hypotheses[0] == out
