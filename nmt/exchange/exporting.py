"""Write a model for another engine; the files are kept if they are proven to compute the same."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from nmt import build
from nmt.config.check import to_yaml
from nmt.config.settings import Engine, Model, Settings
from nmt.errors import UserError
from nmt.exchange import (
    argos,
    ctranslate2_write,
    families,
    marian_directory,
    model_card,
    proof,
    transformers_write,
)
from nmt.exchange.interface import CERTIFICATE, CTRANSLATE2, TRANSFORMERS, Export, Library
from nmt.exchange.settings import sinusoids
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system import atomic, manifest

WRITERS: Mapping[str, tuple[Library, Callable[[Trained], Export]]] = {
    "ctranslate2": (CTRANSLATE2, ctranslate2_write.prepare),
    "marian": (TRANSFORMERS, transformers_write.prepare_marian),
    "marian-npz": (CTRANSLATE2, marian_directory.prepare),
    "m2m100": (TRANSFORMERS, transformers_write.prepare_m2m100),
    "argos": (CTRANSLATE2, argos.prepare),
}  # name of an engine -> its library, and the writer, which raises UserError for unfit models
# engines of one shape and one form of positions
FAMILIES = {"marian": families.MARIAN, "marian-npz": families.MARIAN_NPZ, "m2m100": families.M2M100}
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
            _check_form(settings, target)
        else:
            _move(trained.model)
            WRITERS[target][1](trained)
    except UserError as error:
        why = str(error).replace("export --to ", "choose trainer.target=")
        raise UserError(f"trainer.target={target}: {why}") from None


def _check_form(settings: Settings, target: Engine) -> None:
    """Refuse shape, positions and kind of segmenter that an engine does not have."""
    with torch.random.fork_rng(devices=[]):
        small = build.shrink(settings)
        model = build.transformer(small, VOCAB, VOCAB).eval()
    for name in settings.trainer.freeze:
        with suppress(ValueError):  # of a layer that the small model lacks
            build.freeze(model, [name])
    _move(model)
    if (family := FAMILIES.get(target)) is None:
        ctranslate2_write.positions(small, model)
    else:
        form = [*sinusoids(*family.sinusoids), "segmenter=unigram"]
        for key, value in family.required.items():
            form += [f"model.{key}={to_yaml(value)}"] * (value != getattr(Model, key))
        try:
            families.check_form(small, model, family)
        except UserError as error:
            holds = f"all that it holds: {' '.join(form)}"
            raise UserError(f"{error}; {holds}; or choose trainer.target=ctranslate2") from None
    if target != "ctranslate2" and settings.segmenter.kind in ("bpe", "codes"):
        what = f"segmenter.kind={settings.segmenter.kind}: {target} knows SentencePiece alone"
        raise UserError(f"{what}; train with segmenter=unigram, or export --to ctranslate2")


def _move(model: Transformer) -> None:
    """Move the trainable parameters of a model away from where they start."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=draw), alpha=0.01)


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
    precision is only measured. The Python on the card need not agree: the lines that it translates
    as nmt-translate does are counted. `title` and `license` are those of the card, `names` those of
    the languages in a package. If anything fails, nothing is written. Raises UserError: 2 if the
    engine does not support the model, 69 if it is not installed, 65 if it computes something else.
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
        name = path.stem if form.pack else path.name
        text = model_card.card(form, certificate, path.name, title or name, license)
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))
        (directory / manifest.README).write_bytes(text)
        if form.pack:
            atomic.replace(path, form.pack(directory, names))
        else:
            files = sorted(directory.iterdir())
            manifest.write(path, ((file.name, file.read_bytes()) for file in files))
    proof.report(certificate)
    return certificate
