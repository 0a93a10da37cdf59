"""Start a model with one encoding from a trained model with another.

What both have is copied; an encoding that only the new model has is set to change nothing, where
it can be (`Encoding.zero_initialise`), so that training goes on from exactly the parent's function.
"""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt import build, modeldir
from nmt.checks import example
from nmt.config.settings import Settings, freeze
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.text.languages import language_id

SIZE = ("dim", "feedforward_dim", "heads")  # keys of the model that a child shares with its parent
NAMED = 6  # tensors of each kind that the log names

log = logging.getLogger(__name__)


@dataclass
class Graft:
    """What happened to each tensor; names consist of site, entry and parameter."""

    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)  # drawn at random
    zero_initialised: list[str] = field(default_factory=list)  # new, and change nothing yet
    dropped: list[str] = field(default_factory=list)  # of the parent
    difference: float = 0.0  # largest difference of the logits on made-up sentences
    effects: list[str] = field(default_factory=list)  # of each entry that came or went, alone
    origin: dict[str, Any] = field(default_factory=dict)
    """Of the parent, for state.json: SHA-256 of its weights, and config and corpus of its run."""

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} tensors loaded"]
        for kind in ("zero_initialised", "new", "dropped"):
            if names := getattr(self, kind):
                more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
                parts.append(f"{kind.replace('_', '-')}: {', '.join(names[:NAMED])}{more}")
        is_equal = self.difference < 1e-5
        start = "step 0 computes as the parent" if is_equal else "the change must be learned first"
        parts.append(f"{start} (largest difference at step 0: {self.difference:.2g})")
        return "; ".join([*parts, *self.effects])


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


def graft(model: Transformer, settings: Settings, path: str | Path) -> Graft:
    """Copy to a new model the tensors that it shares with the trained model at `path`.

    `check` must have accepted that model. Both have one vocabulary: `corpus.prepare` takes the
    parent's.
    """
    parent, sha256 = modeldir.reading(  # one checkpoint, also where its training goes on
        Path(path), lambda model: (modeldir.load(model), modeldir.weights_sha256(model))
    )
    after, before = _entries(model, settings), _entries(parent.model, parent.settings)
    added = [e for key, e in after.items() if key not in before]
    removed = [e for key, e in before.items() if key not in after]
    report = _copy(model, parent.model, added)
    report.difference = difference(model, parent.model)
    for change, entries, whole in (("taken away", removed, parent.model), ("added", added, model)):
        for name in sorted({e.name for e in entries}):
            report.effects.append(f"{name} {change}: {_effect(whole, name)}")
    report.origin = {
        "weights_sha256": sha256,
        "config": freeze(parent.settings),
        "fingerprint": parent.facts.get("fingerprint"),
    }
    log.info("started from %s: %s", path, report)
    return report


def _entries(model: Transformer, settings: Settings) -> dict[tuple[str, str, str], Encoding]:
    """Return the entries of a model by site, name, and options other than `where`."""
    return {
        (site, e.name, json.dumps({**settings.encoding[e.name], "where": None}, sort_keys=True)): e
        for site, encodings in model.sites.items()
        for e in encodings
    }


@torch.no_grad()
def _copy(model: Transformer, parent: Transformer, added: list[Encoding]) -> Graft:
    """Copy tensors of equal name and shape, except those of added entries."""
    report, named = Graft(), _named(parent)
    tied = parent.state_dict(keep_vars=True)  # has each under all its names
    unchanging = {e for e in added if e.zero_initialise()}
    for name, (tensor, entry) in _named(model).items():
        old = named[name][0] if name in named else tied.get(name)
        if old is not None and old.shape == tensor.shape and entry not in added:
            tensor.copy_(old)
            report.loaded.append(name)
        else:
            (report.zero_initialised if entry in unchanging else report.new).append(name)
    report.dropped = sorted(set(named) - set(report.loaded))
    return report


def _named(model: Transformer) -> dict[str, tuple[Tensor, Encoding | None]]:
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


def _effect(model: Transformer, name: str) -> str:
    """Say how much the logits change if the entries of a name are left out."""
    entries = [e for e in model.entries if e.name == name]
    projects = (e.streams > 1 or e.changes_width or not e.projects_keys for e in entries)
    if any(projects) or any(e.may_lack_gradients for e in entries):
        return "not measured alone, as it comes with other projections"
    without = build.shallow(model)
    for encodings in without.sites.values():
        encodings.entries = nn.ModuleList(e for e in encodings if e.name != name)
    return f"changes the logits by up to {difference(model, without):.2g}"
