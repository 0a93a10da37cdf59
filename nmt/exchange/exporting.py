"""From a model to the files of another engine, kept where they are proven to compute the same."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.errors import UserError
from nmt.exchange import (
    argos,
    ctranslate2_write,
    marian_directory,
    model_card,
    proof,
    transformers_write,
)
from nmt.exchange.interface import CERTIFICATE, CTRANSLATE2, TRANSFORMERS, Export, Library
from nmt.exchange.model_card import CardOptions
from nmt.modeldir import Trained
from nmt.system import atomic, manifest

WRITERS: Mapping[str, tuple[Library, Callable[[Trained], Export]]] = {
    "ctranslate2": (CTRANSLATE2, ctranslate2_write.prepare),
    "marian": (TRANSFORMERS, transformers_write.prepare_marian),
    "marian-npz": (CTRANSLATE2, marian_directory.prepare),
    "m2m100": (TRANSFORMERS, transformers_write.prepare_m2m100),
    "argos": (CTRANSLATE2, argos.prepare),
}  # by name: what runs such models, and what raises UserError for one that cannot be such


def refuse_target(trained: Trained) -> None:
    """Raise UserError for a model that the engine of its trainer.target cannot hold.

    Its trainable parameters are moved, since training would move them: to freeze some may help.
    """
    target, draw = trained.settings.trainer.target, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in trained.model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=draw), alpha=0.01)
    _, prepare = WRITERS[str(target)]
    try:
        prepare(trained)
    except UserError as error:
        raise UserError(f"trainer.target={target}: {error}") from None


def export(
    trained: Trained,
    path: Path,
    lines: Sequence[str] | None = None,
    to: str = "ctranslate2",
    precision: str = "float32",
    card: CardOptions | None = None,
    names: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model at a path as the engine `to` reads it; returns its certificate.

    `lines`: of the source language, to compare on; by default made-up ones. Joined and made-up
    lines beyond the length of training are added. Log-probabilities in float32 must agree within
    1e-4, and greedy and beam outputs piece by piece; another precision is measured besides. How
    many lines the Python on its card translates as nmt-translate does, is counted if that searches.
    `card`: what its README.md says besides; by default the name of the path. `names`: of the
    languages, in a package. The path must not exist; where anything fails, nothing is there
    afterwards. Raises UserError: 2 for what the engine cannot express, 69 where it is not
    installed, 65 where it computes something else.
    """
    library, prepare = WRITERS[to]
    library.require(f"--to {to}")
    form = prepare(trained)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.temporary_directory(path) as work:
        directory = work / "float32"
        scorer = form.write(directory, "float32")
        ours = proof.translate_samples(form.trained, scorer, lines)
        certificate = proof.certify(ours, scorer)
        if precision != "float32":
            directory = work / precision
            certificate[precision] = proof.measure(ours, form.write(directory, precision))
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))  # the code reads it
        if form.code and trained.settings.decode == trained.settings.decode.by_beam():
            code = form.code(str(directory))
            counts = model_card.count_equal(trained, code, ours.lines, precision)
            certificate["as_nmt_translate"] = counts
        options = card or CardOptions(path.name.removesuffix(form.suffix))
        text = model_card.card(form, certificate, options, path.name)
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))
        (directory / manifest.README).write_bytes(text)
        if form.pack:
            atomic.replace(path, form.pack(directory, names))
        else:
            files = sorted(directory.iterdir())
            manifest.write(path, ((file.name, file.read_bytes()) for file in files))
    proof.report(certificate)
    return certificate
