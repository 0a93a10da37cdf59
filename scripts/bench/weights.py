"""A model with random weights that never ends a sentence, for the product and for CTranslate2."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmt import build, manifest, modeldir
from nmt.config import Settings
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
from nmt.model.attention import Attention
from nmt.model.transformer import Transformer
from scripts.bench import corpus

NEVER = -1e9  # output bias of what no translation may hold
POSITIONS = 512  # of the tables that are handed over


def make(directory: Path, settings: Settings, vocab: int) -> tuple[Path, Path]:
    """Write a model directory, and the same weights under neutral names (.npz)."""
    torch.manual_seed(settings.seed)
    model = build.transformer(settings, vocab, vocab).eval()
    with torch.no_grad():
        model.output.bias[[PAD, BOS, EOS, UNK]] = NEVER
    side = corpus.side(vocab)
    facts = {"longest_source": corpus.LONGEST, "longest_target": corpus.LONGEST, "step": 0}
    path = directory / "model"
    manifest.write(path, modeldir.parts(settings, model, side, side, facts))
    np.savez(directory / "weights.npz", **export(model))
    return path, directory / "weights.npz"


@torch.no_grad()
def export(model: Transformer) -> dict[str, Any]:
    """The weights of a pre-norm model, as `peers/ctranslate2_.py` reads them.

    Encodings that add vectors to embeddings become tables of positions; of others nothing is
    handed over, so that the other model has no positions there.
    """
    found: dict[str, Any] = {}  # name -> float32 array

    def give(name: str, *parts: Tensor | nn.Parameter) -> None:
        found[name] = torch.cat([p.detach() for p in parts]).float().contiguous().numpy()

    def both(name: str, *parts: nn.Module) -> None:
        give(f"{name}.weight", *(_tensor(p, "weight") for p in parts))
        give(f"{name}.bias", *(_tensor(p, "bias") for p in parts))

    def attention(name: str, part: Attention, norm: nn.LayerNorm) -> None:
        both(f"{name}.norm", norm)
        both(f"{name}.query", part.query)
        both(f"{name}.memory", part.key, part.value)
        both(f"{name}.out", part.out)

    give("source", model.source_embedding.weight)
    give("target", model.target_embedding.weight)
    both("output", model.output)
    for site, stack, encodings in (
        ("encoder", model.encoder, model.encoder_encodings),
        ("decoder", model.decoder, model.decoder_encodings),
    ):
        both(f"{site}.norm", stack.norm)
        give(f"{site}.positions", _positions(site, encodings, model.output.in_features))
        for number, layer in enumerate[Any](stack.layers):
            name = f"{site}.{number}"
            attention(f"{name}.self", layer.attention, layer.around_attention.norm)
            if site == "decoder":
                attention(f"{name}.cross", layer.cross, layer.around_cross.norm)
            both(f"{name}.feedforward.norm", layer.around_feedforward.norm)
            both(f"{name}.feedforward.inner", layer.feedforward.inner)
            both(f"{name}.feedforward.outer", layer.feedforward.outer)
    return found


def _tensor(part: nn.Module, name: str) -> Tensor:
    found = getattr(part, name)
    assert isinstance(found, Tensor)
    return found


def _positions(site: str, encodings: Encodings, dim: int) -> Tensor:
    """What the encodings add to embeddings [positions, dim]."""
    n = POSITIONS if encodings.limit is None else min(POSITIONS, encodings.limit)
    at = torch.arange(n)[None]
    tokens = torch.full((1, n), UNK + 1)
    context = Context(site, at, at, at, lengths=torch.tensor([n]), tokens=tokens)
    return encodings.embed(torch.zeros(1, n, dim), context)[0]
