"""Write a model for another engine; the files are kept if they are proven to compute the same."""

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from nmt import build
from nmt.config.settings import Settings
from nmt.errors import UserError
from nmt.exchange import ctranslate2_write, model_card, proof, requirements
from nmt.exchange.export_engines import find_engine
from nmt.exchange.interface import CERTIFICATE, Export
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system import atomic, manifest

VOCAB = 12  # word types of a small model


def refuse_target(settings: Settings, trained: Trained | None = None) -> None:
    """Raise UserError if the engine of trainer.target does not support the model of these settings.

    Without the model, before any text is prepared, that is decided by a small one. Trainable
    parameters are moved, since training would move them: freezing some may help.
    """
    if (target := settings.trainer.target) is None:
        return
    try:
        if trained is None:
            check_settings(settings, target)
        else:
            _move(trained.model)
            prepare(trained, target)
    except UserError as error:
        why = str(error).replace("export --to ", "choose trainer.target=")
        raise UserError(f"trainer.target={target}: {why}") from None


def check_settings(settings: Settings, to: str) -> None:
    """Raise UserError if an engine does not support the models of these settings.

    That is decided by a small one, whose trainable parameters are not where they start.
    """
    engine = find_engine(to)
    with torch.random.fork_rng(devices=[]):
        small = build.shrink(settings)
        model = build.transformer(small, VOCAB, VOCAB).eval()
    for name in settings.trainer.freeze:
        with suppress(ValueError):  # of a layer that the small model lacks
            build.freeze(model, [name])
    _move(model)
    requirements.check_model(small, model, engine)
    if engine.architecture is None:
        ctranslate2_write.read_positions(small, model)
    requirements.check_segmenter_kind(settings.segmenter.kind, engine)


def _move(model: Transformer) -> None:
    """Move the trainable parameters of a model away from where they start."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=draw), alpha=0.01)


def prepare(trained: Trained, to: str) -> Export:
    """Prepare the export of a model, without writing; UserError if an engine does not support it.

    The engine need not be installed.
    """
    engine = find_engine(to)
    requirements.check_text(trained, engine)
    requirements.check_model(trained.settings, trained.model, engine)
    module, function = engine.writer.split(".")
    export: Export = getattr(import_module(f"nmt.exchange.{module}"), function)(trained)
    return export


def export(
    trained: Trained,
    path: Path,
    lines: Sequence[str] | None = None,
    to: str = "ctranslate2",
    precision: str = "float32",
    title: str | None = None,
    license: str | None = None,
    names: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model at a new path as the engine `to` reads it; returns its certificate.

    `lines` of the source language are compared, by default made-up ones; see `samples`. In float32
    log-probabilities must agree within 1e-4, and greedy and beam outputs piece by piece; another
    precision is only measured. `title` and `license` are those of the card, `names` those of the
    languages in a package. If anything fails, nothing is written. Raises UserError: 2 if the engine
    does not support the model, 69 if it is not installed, 65 if it computes something else.
    """
    engine = find_engine(to)
    engine.library.require(f"--to {to}")
    form = prepare(trained, to)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.temporary_directory(path) as work:
        directory = work / "float32"
        scorer = form.write(directory, "float32")
        expected = proof.translate_samples(form.trained, scorer, lines)
        certificate = proof.certify(expected, scorer)
        if precision != "float32":
            directory = work / precision
            certificate[precision] = proof.measure(expected, form.write(directory, precision))
        title = title or path.name.removesuffix(engine.suffix)
        card = model_card.card(form, engine, certificate, path.name, title, license)
        (directory / manifest.README).write_bytes(card)
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))
        if form.pack:
            atomic.replace(path, form.pack(directory, names))
        else:
            files = sorted(directory.iterdir())
            manifest.write(path, ((file.name, file.read_bytes()) for file in files))
    proof.report(certificate)
    return certificate
