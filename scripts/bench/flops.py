"""Floating-point operations of a model's products, for real tokens only: padding is no work.

A multiplication and its addition are two operations. Only matrix products count, as is usual
(Chowdhery et al. 2022, PaLM, appendix B); attention counts the pairs that its mask allows.
"""

from collections.abc import Sequence

from nmt.config.settings import Model

BACKWARD = 2  # a product's two gradients are a product each


def encoding(size: Model, source: int) -> int:
    """Read a sentence of so many tokens: the encoder."""
    d = size.dim
    token = 2 * (4 * d * d + 2 * d * size.feedforward_dim)
    return size.encoder_layers * (source * token + 4 * d * source * source)


def decoding(size: Model, vocab: int, source: int, target: int) -> int:
    """Predict so many of `vocab` target tokens after the encoder, each state computed once."""
    d = size.dim
    # self-attention: 4 projections; cross-attention: query and output; feed-forward: 2
    token = 2 * (6 * d * d + 2 * d * size.feedforward_dim)
    memory = 2 * (2 * d * d)  # keys and values of a source token
    pairs = target * (target + 1) // 2 + source * target  # pairs that may be looked at
    layer = target * token + source * memory + 4 * d * pairs
    return size.decoder_layers * layer + target * 2 * d * vocab


def training(size: Model, vocab: int, source: Sequence[int], target: Sequence[int]) -> int:
    """Forward and backward over pairs of these lengths, eos included."""
    forward = sum(
        encoding(size, s) + decoding(size, vocab, s, t) for s, t in zip(source, target, strict=True)
    )
    return (1 + BACKWARD) * forward


def searching(size: Model, vocab: int, source: Sequence[int], target: int, beam: int) -> int:
    """Beam search for `target` tokens: the encoder and the keys of its states once per sentence."""
    d = size.dim
    memory = 2 * (2 * d * d) * size.decoder_layers
    return sum(
        encoding(size, s) + s * memory + beam * (decoding(size, vocab, s, target) - s * memory)
        for s in source
    )
