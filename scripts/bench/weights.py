"""A model with random weights that never ends a sentence, for nmt and for CTranslate2."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmt import build, modeldir
from nmt.config import Settings
from nmt.data.vocab import BOS, EOS, PAD, UNK
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
from nmt.storage import manifest
from scripts.bench import corpus

NEVER = -1e9  # output bias of what no translation may hold
POSITIONS = 512  # of the tables that are handed over


def make(directory: Path, settings: Settings, vocab: int) -> tuple[Path, Path]:
    """Write a model directory, and the same weights as `peers/ctranslate2_.py` reads them (.npz).

    Encodings that add vectors to embeddings become tables of positions; of others nothing is
    handed over, so that the other model has no positions there.
    """
    torch.manual_seed(settings.seed)
    model = build.transformer(settings, vocab, vocab).eval()
    with torch.no_grad():
        model.output.bias[[PAD, BOS, EOS, UNK]] = NEVER
        arrays = model.state_dict() | {
            f"{site}.positions": _positions(site, model.sites[site], settings.model.dim)
            for site in ("encoder", "decoder")
        }
    side = corpus.side(vocab)
    facts = {"longest_source": corpus.LONGEST, "longest_target": corpus.LONGEST, "step": 0}
    manifest.write(directory / "model", modeldir.parts(settings, model, side, side, facts))
    np.savez(directory / "weights.npz", **{name: t.float().numpy() for name, t in arrays.items()})
    return directory / "model", directory / "weights.npz"


def _positions(site: str, encodings: Encodings, dim: int) -> Tensor:
    """What the encodings add to embeddings [positions, dim]."""
    n = min(POSITIONS, encodings.max_length(training=False) or POSITIONS)
    at = torch.arange(n)[None]
    tokens = torch.full((1, n), UNK + 1)
    context = Context(site, at, at, at, lengths=torch.tensor([n]), tokens=tokens)
    return encodings.embed(torch.zeros(1, n, dim), context)[0]
