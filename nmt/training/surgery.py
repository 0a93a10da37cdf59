"""Start a model with one encoding from a trained model with another.

What both have is copied; an encoding that only the new model has is set to change nothing, where
it can be (`Encoding.zero_initialise`), so that training goes on from exactly the parent's function.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt import config, modeldir
from nmt.data.vocab import Vocabulary
from nmt.encodings.base import Encoding
from nmt.errors import UserError
from nmt.model import example
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained

log = logging.getLogger(__name__)


@dataclass
class Graft:
    """What became of each tensor; names say the site and the entry of an encoding."""

    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)  # drawn at random
    zero_initialised: list[str] = field(default_factory=list)  # new, and change nothing yet
    dropped: list[str] = field(default_factory=list)  # of the parent
    difference: float = 0.0  # largest difference of the logits on made-up sentences

    def __str__(self) -> str:
        """Say in a few lines what was done."""
        parts = [f"{len(self.loaded)} tensors loaded"]
        for what in ("zero_initialised", "new", "dropped"):
            if names := getattr(self, what):
                parts.append(f"{what.replace('_', '-')}: {', '.join(names)}")
        exact = "as the parent" if self.difference < 1e-5 else "not as the parent"
        parts.append(f"step 0 computes {exact} (largest difference {self.difference:.2g})")
        return "; ".join(parts)


def graft(
    model: Transformer,
    settings: config.Settings,
    path: str | Path,
    source: Vocabulary,
    target: Vocabulary,
) -> Graft:
    """Give a fresh model what the trained model at `path` has in common with it.

    Raises UserError if the parent was trained on other vocabularies or shares no layer.
    """
    parent = modeldir.load(path)
    for side, own, theirs in (("source", source, parent.source), ("target", target, parent.target)):
        if own.to_json() != theirs.vocabulary.to_json():
            raise UserError(
                f"trainer.init_from={path}: its {side} vocabulary is another one; "
                "train on the same prepared corpus with the same segmenter"
            )
    report = Graft()
    unchanging = {e for site, e in _new_entries(model, settings, parent) if e.zero_initialise()}
    _copy(model, settings, parent, unchanging, report)
    report.difference = difference(model, parent.model)
    log.info("started from %s: %s", path, report)
    return report


def _new_entries(
    model: Transformer, settings: config.Settings, parent: Trained
) -> list[tuple[str, Encoding]]:
    """The entries of each site that the parent does not have as they are."""
    return [
        (site, e)
        for site, encodings in model.sites.items()
        for e in encodings.each()
        if not _same(e, site, settings, parent)
    ]


def _same(e: Encoding, site: str, settings: config.Settings, parent: Trained) -> bool:
    """Whether the parent has an entry of this name and these options at this site."""
    theirs = {other.name for other in parent.model.sites[site].each()}
    options = (s.encoding.get(e.name, {}) for s in (settings, parent.settings))
    mine, old = ({k: v for k, v in each.items() if k != "where"} for each in options)
    return e.name in theirs and mine == old


def _copy(
    model: Transformer,
    settings: config.Settings,
    parent: Trained,
    unchanging: set[Encoding],
    report: Graft,
) -> None:
    """Copy equal names of equal shape, the body's and those of entries that are the same."""
    fresh = {id(e) for _, e in _new_entries(model, settings, parent)}
    theirs, own = _named(parent.model), _named(model)
    with torch.no_grad():
        for name, (tensor, owner) in own.items():
            old = theirs.get(name)
            if old is not None and old[0].shape == tensor.shape and id(owner) not in fresh:
                tensor.copy_(old[0])
                report.loaded.append(name)
            else:
                (report.zero_initialised if owner in unchanging else report.new).append(name)
    report.dropped = sorted(set(theirs) - set(report.loaded))
    if not any(name.startswith("encoder.layers") for name in report.loaded):
        raise UserError(
            "trainer.init_from: no layer of the parent has the shape of this model's; "
            "use the parent's model.dim and model.feedforward_dim"
        )


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
    device = next(model.parameters()).device
    vocab = min(model.source_embedding.num_embeddings, model.target_embedding.num_embeddings)
    limits = [m for each in (model, parent) for m in (each.source_limit, each.target_limit) if m]
    length = min([20, *limits])
    source, target = example.ids(4, length, vocab), example.ids(4, length, vocab, seed=1)
    columns = example.columns(model.columns | parent.columns, source)
    training = model.training
    model.eval()
    with torch.no_grad():
        new, old = (
            m.to(device)(source.to(device), target.to(device), _on(columns, device))
            for m in (model, parent)
        )
    model.train(training)
    return float((new - old).abs().max())


def _on(columns: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: c.to(device) for name, c in columns.items()}
