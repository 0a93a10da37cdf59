"""Start a model from a trained one, which may have another encoding (trainer.init_from).

Tensors that both have are copied; an encoding that only the new model has is set to change nothing,
where it can be (`Encoding.zero_initialise`), so that training goes on from exactly the parent's
function.
"""

import json
import logging
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nmt import modeldir
from nmt.checks import example
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.text.languages import language_id

SIZE = ("dim", "feedforward_dim", "heads")  # keys of the model that a child shares with its parent
LISTED = 6  # tensors of each kind that the log names
SAME = 1e-5  # difference of logits up to which two models compute the same

log = logging.getLogger(__name__)


class Graft(NamedTuple):
    """What became of each tensor; names consist of site, entry and parameter."""

    loaded: list[str]
    zero_initialised: list[str]  # new, and change nothing yet
    new: list[str]  # drawn at random
    dropped: list[str]  # of the parent
    difference: float  # largest difference of the logits at step 0, on made-up sentences
    parent_sha256: str  # of the parent's weights

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} tensors loaded"]
        for kind in ("zero_initialised", "new", "dropped"):
            if names := getattr(self, kind):
                more = f" and {len(names) - LISTED} more" if names[LISTED:] else ""
                parts.append(f"{kind.replace('_', '-')}: {', '.join(names[:LISTED])}{more}")
        is_same = self.difference < SAME
        start = "step 0 computes as the parent" if is_same else "the change must be learned first"
        return "; ".join([*parts, f"{start} (largest difference at step 0: {self.difference:.2g})"])


def check(settings: Settings, path: str | Path) -> None:
    """Read a parent; UserError if it is damaged (65), missing (66), of another size or language."""
    parent = modeldir.load(path)
    for key in SIZE:  # else tensors of the layers would not fit, or would mean something else
        size, needed = getattr(settings.model, key), getattr(parent.settings.model, key)
        if size != needed:
            raise UserError(
                f"model.{key}={size}: trainer.init_from={path} has {needed}, and its weights fit "
                "no other size; leave out model= and its keys, or train without it"
            )
    for key, side in (("source_language", parent.source), ("target_language", parent.target)):
        language_id(side.vocabulary, getattr(settings.decode, key), f"decode.{key}")


@torch.no_grad()
def graft(model: Transformer, settings: Settings, path: str | Path) -> Graft:
    """Copy to a new model the tensors that it shares with the trained model at `path`.

    Tensors of entries that the parent lacks, or has with other options, are not copied. `check`
    must have accepted the parent. Both have one vocabulary: `corpus.prepare` takes the parent's.
    """
    parent, sha256 = modeldir.reading(  # one checkpoint, also where its training goes on
        Path(path), lambda model: (modeldir.load(model), modeldir.weights_sha256(model))
    )
    parent_entries = _entries(parent.model, parent.settings)
    added = [e for key, e in _entries(model, settings).items() if key not in parent_entries]
    unchanging = {e for e in added if e.zero_initialise()}
    parent_tensors = _named_tensors(parent.model)
    tied = parent.model.state_dict(keep_vars=True)  # has each under all its names
    loaded, zero_initialised, new = list[str](), list[str](), list[str]()
    for name, (tensor, entry) in _named_tensors(model).items():
        old = parent_tensors[name][0] if name in parent_tensors else tied.get(name)
        if old is not None and old.shape == tensor.shape and entry not in added:
            tensor.copy_(old)
            loaded.append(name)
        else:
            (zero_initialised if entry in unchanging else new).append(name)
    dropped = sorted({*parent_tensors}.difference(loaded))
    report = Graft(loaded, zero_initialised, new, dropped, difference(model, parent.model), sha256)
    log.info("started from %s: %s", path, report)
    log.info("%s", describe_rate(settings, parent.settings))
    return report


def describe_rate(settings: Settings, parent: Settings) -> str:
    """Say which learning rate a child starts with, and how it compares with its parent's."""
    rate = f"optim.lr={settings.optim.lr:g}"
    if parent.trainer.init_from is not None:
        return f"{rate}; its parent was continued from another model at {parent.optim.lr:g}"
    trained = f"its parent was trained at {parent.optim.lr:g}"
    if parent.segmenter.kind == "imported":
        trained = "the parent does not say at which rate it was trained (OPUS-MT: 0.0003)"
    return f"{rate}; {trained}; half of that suits a kept encoding, all of it a new one"


def _entries(model: Transformer, settings: Settings) -> dict[tuple[str, str, str], Encoding]:
    """Return the entries of a model by site, name, and options other than `where`."""
    return {
        (site, e.name, json.dumps({**settings.encoding[e.name], "where": None}, sort_keys=True)): e
        for site, encodings in model.sites.items()
        for e in encodings
    }


def _named_tensors(model: Transformer) -> dict[str, tuple[Tensor, Encoding | None]]:
    """Return saved tensors and the entries that own them, by names without the entries' order.

    Random numbers that are drawn once and not trained, such as FoPE's, are among them.
    """
    entries = {
        f"{site}.{e.name}.{name}": (t, e)
        for site, encodings in model.sites.items()
        for e in encodings
        for name, t in modeldir.untie(e).items()
    }
    owned = {id(t) for t, _ in entries.values()}
    tensors = modeldir.untie(model).items()
    return {**{n: (t, None) for n, t in tensors if id(t) not in owned}, **entries}


@torch.no_grad()
def difference(*models: Transformer) -> float:
    """The largest difference of the logits of two models for four made-up pairs of sentences."""
    vocab = min(e.num_embeddings for m in models for e in (m.source_embedding, m.target_embedding))
    length = min(n for m in models for n in example.within(m, 20, 20))
    source, target = example.ids(4, length, vocab), example.ids(4, length, vocab, seed=1)
    columns = example.columns([e for m in models for e in m.entries], source)
    logits = []  # [4, length, vocab] each
    for model in models:
        device, training = next(model.parameters()).device, model.training
        moved = {name: c.to(device) for name, c in columns.items()}
        logits.append(model.eval()(source.to(device), target.to(device), moved).cpu())
        model.train(training)
    return float((logits[0] - logits[1]).abs().max())
