"""From a model to the files of another engine, kept where they are proven to compute the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.errors import UserError
from nmt.exchange import card_code, model_card, proof
from nmt.exchange.adapter import CERTIFICATE, Adapter
from nmt.exchange.argos_adapter import ArgosAdapter
from nmt.exchange.ctranslate2_adapter import CTranslate2Adapter
from nmt.exchange.marian_adapter import M2M100Adapter, MarianAdapter
from nmt.exchange.marian_npz_adapter import MarianNpzAdapter
from nmt.exchange.model_card import CardOptions
from nmt.modeldir import Trained
from nmt.system import atomic, manifest

ADAPTERS: Mapping[str, type[Adapter]] = {
    "ctranslate2": CTranslate2Adapter,
    "marian": MarianAdapter,
    "marian-npz": MarianNpzAdapter,
    "m2m100": M2M100Adapter,
    "argos": ArgosAdapter,
}


def refuse_target(trained: Trained) -> None:
    """Raise UserError for a model that the engine of its trainer.target cannot hold.

    Its trainable parameters are moved, since training would move them: to freeze some may help.
    """
    target, draw = trained.settings.trainer.target, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in trained.model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=draw), alpha=0.01)
    try:
        ADAPTERS[str(target)](trained)
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
    kind = ADAPTERS[to]
    kind.library.require(f"--to {to}")
    adapter = kind(trained)
    adapter.names = names
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.temporary_directory(path) as work:
        directory = work / "float32"
        scorer = adapter.written(directory, "float32")
        ours = proof.translate_samples(adapter.trained, scorer, lines)
        certificate = proof.certify(ours, scorer)
        if precision != "float32":
            directory = work / precision
            certificate[precision] = proof.measure(ours, adapter.written(directory, precision))
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))  # the code reads it
        decode = trained.settings.decode
        if (code := adapter.code(str(directory))) and decode == decode.by_beam():
            certificate["as_nmt_translate"] = card_code.count_equal(trained, code, ours.lines)
        options = card or CardOptions(path.name.removesuffix(kind.suffix))
        text = model_card.card(adapter, certificate, options, path.name)
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))
        (directory / manifest.README).write_bytes(text)
        adapter.save(path, directory)
    proof.report(certificate)
    return certificate
