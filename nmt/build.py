"""From settings to a model: the last file that knows what a config looks like."""

from functools import partial

import torch

from nmt.config import Settings, columns_of
from nmt.encodings.registry import create
from nmt.errors import UserError
from nmt.model.transformer import Transformer


def transformer(settings: Settings, source_size: int, target_size: int) -> Transformer:
    """Make the model, its weights drawn from torch's global generator.

    Raises UserError that names the key whose value cannot be.
    """
    model = settings.model
    if model.dim % model.heads:
        raise UserError(f"model.heads={model.heads}: must divide model.dim={model.dim}")
    try:
        return Transformer(model, source_size, target_size, partial(create, settings.encoding))
    except ValueError as e:
        place = "" if str(e).startswith("encoding.") else "model: "
        raise UserError(f"{place}{e}") from None


def check(settings: Settings) -> None:
    """Refuse impossible choices before any data is touched; costs no memory."""
    with torch.device("meta"):
        model = transformer(settings, 8, 8)
    _check_columns(settings, model)
    layers = settings.model.encoder_layers
    if wrong := [n for n in settings.model.drop_residual if not 1 <= n <= layers]:
        raise UserError(f"model.drop_residual={wrong}: the encoder has layers 1 to {layers}")
    if settings.model.tie == "all" and not settings.segmenter.shared_vocabulary:
        raise UserError("model.tie=all: needs segmenter.shared_vocabulary=true")
    if settings.trainer.max_epochs is None and settings.trainer.max_steps is None:
        raise UserError("trainer.max_epochs and trainer.max_steps are null: give one of them")


def _check_columns(settings: Settings, model: Transformer) -> None:
    """Refuse an encoding that reads a column which the corpus does not have."""
    offered = columns_of(settings.data)
    for site, encodings in model.sites.items():
        for e in encodings.each():
            for name in sorted(e.columns):
                if name not in offered:
                    has = ", ".join(sorted(offered)) or "none"
                    raise UserError(
                        f"encoding.{e.name}: reads a column {name!r} beside the source, which "
                        f"this corpus does not have (it has {has}); see data.columns"
                    )
                if site != "encoder" and offered[name] != "sentence":
                    raise UserError(
                        f"encoding.{e.name}: the column {name!r} numbers source words, so it "
                        f"says nothing to where={site}"
                    )
