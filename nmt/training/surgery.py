"""Start a model with one encoding from a trained model with another.

What both have is copied; an encoding that only the new model has is set to change nothing, where
it can be (`Encoding.zero_initialise`), so that training goes on from exactly the parent's function.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt import config, modeldir
from nmt.data.vocab import Vocabulary
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.model import example
from nmt.model.transformer import Transformer

Sentences = tuple[Tensor, Tensor, dict[str, Tensor]]

SIZE = ("dim", "feedforward_dim", "heads")  # keys of the model that a child shares with its parent
NAMED = 6  # tensors of each kind that the log names

log = logging.getLogger(__name__)


class Configured(NamedTuple):
    """A model, and the settings that say what its entries are."""

    model: Transformer
    settings: config.Settings


@dataclass
class Graft:
    """What became of each tensor; names say the site and the entry of an encoding."""

    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)  # drawn at random
    zero_initialised: list[str] = field(default_factory=list)  # new, and change nothing yet
    dropped: list[str] = field(default_factory=list)  # of the parent
    difference: float = 0.0  # largest difference of the logits on made-up sentences
    exchanged: list[str] = field(default_factory=list)  # what each entry alone does to them

    def __str__(self) -> str:
        """Say in a few lines what was done."""
        parts = [f"{len(self.loaded)} tensors loaded"]
        for what in ("zero_initialised", "new", "dropped"):
            if names := getattr(self, what):
                more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
                parts.append(f"{what.replace('_', '-')}: {', '.join(names[:NAMED])}{more}")
        exact = "as the parent" if self.difference < 1e-5 else "not as the parent"
        parts.append(f"step 0 computes {exact} (largest difference {self.difference:.2g})")
        return "; ".join([*parts, *self.exchanged])


def check(settings: config.Settings, path: str | Path) -> None:
    """Raise UserError for a parent that is damaged or missing (65, 66), or has another size (2).

    Every byte is compared with its manifest, so that nothing is wrong with it later.
    """
    _refuse_other_size(settings, modeldir.load(path).settings, path)


def _refuse_other_size(
    settings: config.Settings, parent: config.Settings, path: str | Path
) -> None:
    """Raise UserError where tensors of the layers would not fit, or would mean something else."""
    for key in SIZE:
        size, theirs = getattr(settings.model, key), getattr(parent.model, key)
        if size != theirs:
            raise UserError(
                f"model.{key}={size}: trainer.init_from={path} has {theirs}, and its weights fit "
                "no other size; leave out model= and its keys, or train without it"
            )


def graft(
    model: Transformer,
    settings: config.Settings,
    path: str | Path,
    source: Vocabulary,
    target: Vocabulary,
) -> Graft:
    """Give a fresh model what the trained model at `path` has in common with it.

    Raises UserError if the parent was trained on other vocabularies or has another size.
    """
    parent = modeldir.load(path)
    for side, own, theirs in (("source", source, parent.source), ("target", target, parent.target)):
        if own.to_json() != theirs.vocabulary.to_json():
            raise UserError(
                f"trainer.init_from={path}: its {side} vocabulary is another one; "
                "train on the same prepared corpus with the same segmenter"
            )
    _refuse_other_size(settings, parent.settings, path)
    report = Graft()
    child, origin = Configured(model, settings), Configured(parent.model, parent.settings)
    came, went = _not_in(child, origin), _not_in(origin, child)
    unchanging = {e for e in came if e.zero_initialise()}
    _copy(model, parent.model, came, unchanging, report)
    report.difference = difference(model, parent.model)
    for what, entries, of in (("taken away", went, parent.model), ("added", came, model)):
        for name in sorted({e.name for e in entries}):
            report.exchanged.append(f"{name} {what}: {_effect(of, name)}")
    log.info("started from %s: %s", path, report)
    return report


def _not_in(one: Configured, other: Configured) -> list[Encoding]:
    """The entries of one model that the other does not have at the same site as they are."""
    return [
        e
        for site, encodings in one.model.sites.items()
        for e in encodings.each()
        if not _has(other, site, e.name, _options(one.settings, e.name))
    ]


def _has(configured: Configured, site: str, name: str, options: dict[str, Any]) -> bool:
    """Whether a model has an entry of this name and these options at this site."""
    names = {e.name for e in configured.model.sites[site].each()}
    return name in names and _options(configured.settings, name) == options


def _options(settings: config.Settings, name: str) -> dict[str, Any]:
    """An entry's options, but for the sites that it serves."""
    return {k: v for k, v in settings.encoding.get(name, {}).items() if k != "where"}


def _copy(
    model: Transformer,
    parent: Transformer,
    came: list[Encoding],
    unchanging: set[Encoding],
    report: Graft,
) -> None:
    """Copy equal names of equal shape, the body's and those of entries that are the same."""
    theirs, own = _named(parent), _named(model)
    with torch.no_grad():
        for name, (tensor, owner) in own.items():
            old = theirs.get(name)
            if old is not None and old[0].shape == tensor.shape and owner not in came:
                tensor.copy_(old[0])
                report.loaded.append(name)
            else:
                (report.zero_initialised if owner in unchanging else report.new).append(name)
    report.dropped = sorted(set(theirs) - set(report.loaded))


def _named(model: Transformer) -> dict[str, tuple[Tensor, nn.Module]]:
    """Each parameter with the entry or the model that owns it; entries under their own names."""
    entries: dict[str, tuple[Tensor, nn.Module]] = {}
    inside: set[int] = set()
    for site, encodings in model.sites.items():
        for e in encodings.each():
            for name, p in e.named_parameters():
                entries[f"{site}.{e.name}.{name}"] = p, e
                inside.add(id(p))
    body = {n: (p, model) for n, p in model.named_parameters() if id(p) not in inside}
    return {**body, **entries}


def difference(model: Transformer, parent: Transformer) -> float:
    """The largest difference of the logits of two models on made-up sentences."""
    sentences = _sentences(model, parent)
    return float((_logits(model, sentences) - _logits(parent, sentences)).abs().max())


def _effect(model: Transformer, name: str) -> str:
    """How much the logits change if only the entries of this name are left out."""
    sentences = _sentences(model)
    here = [e for site in model.sites.values() for e in site.each() if e.name == name]
    facts = [e.facts for e in here]
    if any(f.streams > 1 or f.changes_width or not f.projects_keys for f in facts):
        return "not measured alone, as it has projections of its own"
    with_it = _logits(model, sentences)
    kept = {site: encodings.entries for site, encodings in model.sites.items()}
    try:
        for encodings in model.sites.values():
            left = [e for e in encodings.each() if e.name != name]
            encodings.entries = nn.ModuleList(left)
        without = _logits(model, sentences)
    finally:
        for site, encodings in model.sites.items():
            encodings.entries = kept[site]
    return f"changes the logits by up to {float((with_it - without).abs().max()):.2g}"


def _sentences(*models: Transformer) -> Sentences:
    """Made-up pairs that all models can read: source and target ids [4, n], columns."""
    vocab = min(e.num_embeddings for m in models for e in (m.source_embedding, m.target_embedding))
    limits = [n for m in models for n in (m.source_limit, m.target_limit) if n]
    length = min([20, *limits])
    source, target = example.ids(4, length, vocab), example.ids(4, length, vocab, seed=1)
    return source, target, example.columns(set().union(*(m.columns for m in models)), source)


@torch.no_grad()
def _logits(model: Transformer, sentences: Sentences) -> Tensor:
    """Logits [4, n, vocab] without dropout."""
    source, target, columns = sentences
    device, training = next(model.parameters()).device, model.training
    model.eval()
    there = {name: c.to(device) for name, c in columns.items()}
    logits = model(source.to(device), target.to(device), there)
    model.train(training)
    return logits.cpu()
