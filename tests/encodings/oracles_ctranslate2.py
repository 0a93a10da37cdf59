"""Whole models against CTranslate2, an inference engine in C++ (extra: ct2).

Weights are handed over as a specification; what it does with them, positions included, is its own.
"""

from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks.example import ids
from nmt.encodings.base import Encoding
from nmt.encodings.biases.t5 import T5
from nmt.encodings.input.learned import Learned
from nmt.encodings.vectors.relative import Relative
from nmt.model.layers import Attention
from nmt.model.transformer import Transformer
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.encodings.agreement import Agreement, Sides, theirs

VOCAB = 30
WORDS = ["<blank>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(4, VOCAB))]
BOS, EOS = 1, 2
STEPS = 12
Give = Callable[[Any, Any], None]
"""`(specification of a stack, our encoding)` hands the encoding's parameters over."""


def numbers(t: Tensor) -> Any:
    return t.detach().contiguous().numpy()


def linear(spec: Any, *parts: nn.Linear) -> None:
    spec.weight = numbers(torch.cat([p.weight for p in parts]))
    spec.bias = numbers(torch.cat([p.bias for p in parts]))


def norm(spec: Any, part: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = numbers(part.weight), numbers(part.bias)


def self_attention(spec: Any, part: Attention, before: nn.LayerNorm) -> None:
    norm(spec.layer_norm, before)
    linear(spec.linear[0], *cast(list[nn.Linear], [part.query, part.key, part.value]))
    linear(spec.linear[1], part.out)


def feed_forward(spec: Any, layer: Any) -> None:
    norm(spec.layer_norm, layer.around_feedforward.norm)
    linear(spec.linear_0, layer.feedforward.inner)
    linear(spec.linear_1, layer.feedforward.outer)


def shaw(spec: Any, e: Relative) -> None:
    assert e.key_table is not None and e.value_table is not None
    for layer, s in enumerate(spec.layer):
        s.self_attention.relative_position_keys = numbers(e.key_table[layer, 0])
        s.self_attention.relative_position_values = numbers(e.value_table[layer, 0])


def buckets(spec: Any, e: T5) -> None:
    for s in spec.layer:
        s.self_attention.relative_attention_bias = numbers(e.weight.T)
        s.self_attention.relative_attention_max_distance = np.dtype("int32").type(e.max_distance)


def vectors(spec: Any, e: Learned) -> None:
    spec.position_encodings.encodings = numbers(e.weight)


def nothing(spec: Any, e: Encoding | None = None) -> None:
    """For encodings without parameters."""


def no_positions(spec: Any) -> None:
    """Without a table it would add sinusoids."""
    spec.position_encodings.encodings = np.zeros((64, 16), "float32")


def translator(model: Any, encoder: dict[str, Any], decoder: dict[str, Any], give: Give) -> Any:
    """The same model in CTranslate2; `encoder` and `decoder` are its words for the encoding."""
    specs = theirs("ctranslate2.specs")
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(2, 2, **encoder), specs.TransformerDecoderSpec(2, 2, **decoder)
    )
    spec.encoder.embeddings[0].weight = numbers(model.source_embedding.weight)
    spec.decoder.embeddings.weight = numbers(model.target_embedding.weight)
    linear(spec.decoder.projection, model.output)
    for side, ours, site in (
        (spec.encoder, model.encoder, model.encoder_encodings),
        (spec.decoder, model.decoder, model.decoder_encodings),
    ):
        norm(side.layer_norm, ours.norm)
        for s, layer in zip(side.layer, ours.layers, strict=True):
            self_attention(s.self_attention, layer.attention, layer.around_attention.norm)
            feed_forward(s.ffn, layer)
        entries = list(site)
        give(side, entries[0]) if entries else no_positions(side)
    for s, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        norm(s.attention.layer_norm, layer.around_cross.norm)
        linear(s.attention.linear[0], layer.cross.query)
        linear(s.attention.linear[1], layer.cross.key, layer.cross.value)
        linear(s.attention.linear[2], layer.cross.out)
    spec.register_source_vocabulary(WORDS)
    spec.register_target_vocabulary(WORDS)
    spec.validate()
    with TemporaryDirectory() as directory:
        spec.save(directory)
        return theirs("ctranslate2").Translator(directory, inter_threads=1, intra_threads=1)


def text(ids: Tensor) -> list[str]:
    return [WORDS[i] for i in ids.tolist()]


def entries_of(model: Transformer) -> list[Encoding]:
    return [*model.encoder_encodings, *model.decoder_encodings]


def log_probs(words: list[str], give: Give, encoder: Any, decoder: Any) -> Sides:
    """Of each token of five given pairs, longer than the distances that tau or buckets tell."""
    model = moved(settings_of(*TINY, *words), vocab=VOCAB)
    engine = translator(model, encoder, decoder, give)
    pairs = [(ids(1, 11, VOCAB, seed), ids(1, 9, VOCAB, seed + 50)) for seed in range(5)]
    scored = engine.score_batch([text(s[0]) for s, _ in pairs], [text(t[0]) for _, t in pairs])

    def ours() -> Tensor:
        rows = []
        for source, target in pairs:
            logits = model(source, F.pad(target, (1, 0), value=BOS))[0]  # [target + 1, vocab]
            wanted = F.pad(target[0], (0, 1), value=EOS)[:, None]
            rows.append(logits.log_softmax(-1).gather(1, wanted)[:, 0])
        return torch.stack(rows)

    return Sides(entries_of(model), ours, torch.tensor([s.log_probs for s in scored]))


def greedy(words: list[str], give: Give, encoder: Any, decoder: Any) -> Sides:
    """Tokens of five greedy outputs and their log-probability: theirs with its cache, ours too."""
    model = moved(settings_of(*TINY, *words), vocab=VOCAB)
    engine = translator(model, encoder, decoder, give)
    sources = [ids(1, 11, VOCAB, seed) for seed in range(5)]
    results = engine.translate_batch(
        [text(s[0]) for s in sources],
        beam_size=1, min_decoding_length=0, max_decoding_length=STEPS,
        length_penalty=0, return_scores=True,
    )  # fmt: skip

    def row(tokens: list[int], score: float) -> Tensor:
        return torch.tensor([*tokens, *[EOS] * (STEPS - len(tokens)), score])

    def decoded(source: Tensor) -> Tensor:
        state, token, tokens, score = model.start(source), torch.tensor([BOS]), list[int](), 0.0
        for _ in range(STEPS):
            best = model.step(token, state).log_softmax(-1).max(-1)
            token, score = best.indices, score + float(best.values)
            if token == EOS:
                break
            tokens.append(int(token))
        return row(tokens, score)

    found = [row([WORDS.index(w) for w in r.hypotheses[0]], r.scores[0]) for r in results]
    return Sides(
        entries_of(model), lambda: torch.stack([decoded(s) for s in sources]), torch.stack(found)
    )


SHAW = (["encoding=relative", "tau=3"], shaw, {"relative_position": True})
SINUSOIDS = [
    "encoding=absolute",
    "encoding.absolute.layout=halves",
    "encoding.absolute.denominator=tensor2tensor",
    "encoding.absolute.at.index.start=1",
]
BUCKETS = ["encoding=t5", "encoding.t5.buckets=8", "encoding.t5.max_distance=6"]
HALVES = ["encoding=rotary", "encoding.rotary.layout=halves"]
ROTARY = {"rotary_dim": 0}
TOKENS = "whole model: log-probabilities of given tokens"


def whole(
    encoding: str, words: list[str], give: Give, encoder: Any, decoder: Any = None, **kind: Any
) -> Agreement:
    what = kind.get("what", TOKENS)
    compare = kind.get("compare", log_probs)
    sides = partial(compare, words, give, encoder, encoder if decoder is None else decoder)
    return Agreement(encoding, "ctranslate2", what, sides, 2e-5)


WHOLE_MODELS = [
    whole("relative tau=3", *SHAW),
    whole("relative tau=3", *SHAW, what="whole model: greedy outputs and scores, both with caches",
          compare=greedy),
    whole("absolute layout=halves denominator=tensor2tensor at={index:{start:1}}", SINUSOIDS,
          nothing, {}),
    whole("learned", ["encoding=learned"], vectors, {}),
    whole("t5 buckets=8 max_distance=6", BUCKETS, buckets, {"relative_attention_bias": True}),
    whole("rotary", ["encoding=rotary"], nothing, ROTARY),
    whole("rotary layout=halves", HALVES, nothing, ROTARY | {"rotary_interleave": False}),
    whole("alibi where=decoder", ["encoding=alibi", "encoding.alibi.where=decoder"], nothing, {},
          {"alibi": True}),
]  # fmt: skip
