"""A model with random weights that never ends a sentence."""

from pathlib import Path

import torch

from nmt import build, modeldir
from nmt.config.settings import Settings
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS, PAD, UNK
from scripts.bench import corpus

NEVER = -1e9  # output bias of what no translation may hold


def make(directory: Path, settings: Settings, vocab: int) -> Path:
    """Write a model directory; returns it."""
    torch.manual_seed(settings.seed)
    model = build.transformer(settings, vocab, vocab).eval()
    with torch.no_grad():
        model.output.bias[[PAD, BOS, EOS, UNK]] = NEVER
    side = corpus.side(vocab)
    facts = {"longest_source": corpus.LONGEST, "longest_target": corpus.LONGEST, "step": 0}
    manifest.write(directory / "model", modeldir.parts(settings, model, side, side, facts))
    return directory / "model"
