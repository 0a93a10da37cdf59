"""Write a model for another engine; the files are kept if they are proven to compute the same.

A model that the engine does not support is refused before anything is written.
"""

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from nmt import build
from nmt.config.check import to_yaml
from nmt.config.settings import RESTRICTIONS, Settings
from nmt.encodings.positions import Index
from nmt.errors import UserError
from nmt.exchange import ctranslate2_write, model_card, proof
from nmt.exchange.interface import CERTIFICATE, Architecture, Export, ExportEngine, find_engine
from nmt.exchange.marian_weights import SPECIAL_PIECES, find_sinusoids
from nmt.exchange.site_positions import NEAREST
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.system import atomic, manifest
from nmt.text.side import Side
from nmt.text.unigram import language_codes

VOCAB = 12  # word types of a small model
STARTS = {  # model.target_bos -> how such a model differs, and the engine that has such models
    False: ("as this decoder starts from a vector of zeros, like Marian's own", "marian-npz"),
    True: ("as this decoder starts from the vector of a piece", "marian"),
}


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
    _check_model(small, model, engine)
    if engine.architecture is None:
        ctranslate2_write.read_positions(small, model)
    _check_segmenter_kind(settings.segmenter.kind, engine)


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
    _check_text(trained, engine)
    _check_model(trained.settings, trained.model, engine)
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

    `lines` of the source language are compared, by default made-up ones; see `proof`. In float32
    log-probabilities must agree within 1e-4, and greedy and beam outputs piece by piece; another
    precision is only measured. `title` and `license` are those of the card, `names` those of the
    languages in a package. If anything fails, nothing is written. Raises UserError: 2 if the engine
    does not support the model, 69 if it is not installed, 65 if it computes something else.
    """
    engine = find_engine(to)
    engine.library.require(f"--to {to}")
    prepared = prepare(trained, to)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.temporary_directory(path) as work:
        directory = work / "float32"
        scorer = prepared.write(directory, "float32")
        expected = proof.translate_samples(prepared.trained, scorer, lines)
        certificate = proof.certify(expected, scorer)
        if precision != "float32":
            directory = work / precision
            certificate[precision] = proof.measure(expected, prepared.write(directory, precision))
        title = title or path.name.removesuffix(engine.suffix)
        card = model_card.write_card(prepared, engine, certificate, path.name, title, license)
        (directory / manifest.README).write_bytes(card)
        (directory / CERTIFICATE).write_bytes(manifest.dump(certificate))
        if prepared.pack:
            atomic.replace(path, prepared.pack(directory, names))
        else:
            files = sorted(directory.iterdir())
            manifest.write(path, ((file.name, file.read_bytes()) for file in files))
    model_card.report(certificate)
    return certificate


def _check_model(settings: Settings, model: Transformer, engine: ExportEngine) -> None:
    """Raise UserError for an architecture, positions or a search that an engine lacks."""
    if engine.architecture is not None:
        _check_architecture(settings, model, engine, engine.architecture)
    for key, usual, why in (
        ("drop_residual", [], "no residual can be left out"),
        ("feedforward", "real", "it has no complex maps"),
    ):
        if (value := getattr(settings.model, key)) != usual:
            what = f"model.{key}={to_yaml(value)}: cannot be exported to {engine.title}, because"
            raise UserError(f"{what} {why}; train without it")
    for key, neutral in {"position_scale": 1, **RESTRICTIONS}.items():
        if (value := getattr(settings.decode, key)) != neutral:
            raise UserError(f"decode.{key}={value}: cannot be exported; add decode.{key}={neutral}")
    for e in model.cross_encodings:
        hooks = [hook for hook in NEAREST if hook in e.hooks]
        if hooks or e.score_scale is not None:
            raise UserError(
                f"encoding.{e.name}: cannot be exported to {engine.title}, because attention to "
                "the source knows no positions there; the nearest that can is "
                f"{NEAREST[hooks[0] if hooks else 'bias']}, without where=cross"
            )


def _check_architecture(
    settings: Settings, model: Transformer, engine: ExportEngine, architecture: Architecture
) -> None:
    advice = f"train with {architecture.overrides()}"
    for key, required in architecture.model.items():
        if (value := getattr(settings.model, key)) == required:
            continue
        difference = f"which has model.{key}={to_yaml(required)}"
        if key == "target_bos":
            difference, engine_name = STARTS[value]
            advice = f"export --to {engine_name}"
        raise UserError(
            f"model.{key}={to_yaml(value)}: cannot be exported to {engine.title}, {difference}; "
            f"{advice}, or export --to ctranslate2"
        )
    _, denominator, start = architecture.sinusoids
    for name in ("encoder", "decoder"):
        e = find_sinusoids(model, name)
        if e is None or (e.positions, e.denominator) != (Index(start), denominator):
            raise UserError(
                f"encoding.{'+'.join(e.name for e in model.sites[name])}: cannot be exported to "
                f"{engine.title}, which adds sinusoids to the embeddings of the {name} and has no "
                f"other positions; {advice}, or export --to ctranslate2"
            )


def _check_segmenter_kind(kind: str, engine: ExportEngine) -> None:
    """Raise UserError for merges of BPE if an engine has SentencePiece alone."""
    if kind in ("bpe", "codes") and engine.why_no_bpe is not None:
        what = f"segmenter.kind={kind}: cannot be exported to {engine.title}"
        raise UserError(f"{what}, which {engine.why_no_bpe}, or export --to ctranslate2")


def _check_text(trained: Trained, engine: ExportEngine) -> None:
    """Raise UserError for segmenters, pieces or languages that an engine treats differently."""
    if not engine.puts_languages:
        _refuse_languages(trained, engine)
    if engine.why_no_bpe is not None:
        for side in (trained.source, trained.target):
            _check_sentencepiece(side, engine)


def _refuse_languages(trained: Trained, engine: ExportEngine) -> None:
    for key in ("source_language", "target_language"):
        if name := getattr(trained.settings.decode, key):
            null = f"add decode.{key}=null if the lines themselves begin with one, or "
            raise UserError(
                f"decode.{key}={name}: cannot be exported to {engine.title}, where nothing puts a "
                f"language before a line; "
                f"{null if language_codes(trained.source.vocabulary) else ''}"
                "export --to ctranslate2"
            )


def _check_sentencepiece(side: Side, engine: ExportEngine) -> None:
    """Raise UserError unless text is segmented by SentencePiece alone, as in the engine."""
    _check_segmenter_kind(str(side.segmenter.to_json()["kind"]), engine)
    tokenizer = side.segmenter.tokenizer
    for is_wrong, what, why in (
        (
            tokenizer.symbols,
            "data.user_symbols, tags, data.protected",
            "has pieces of SentencePiece alone; export it --to ctranslate2",
        ),
        (
            tokenizer.kind != "none",
            f"segmenter.tokenizer={tokenizer.kind}",
            "runs SentencePiece on plain text; train with segmenter.tokenizer=none",
        ),
        (
            tokenizer.normalize == "nfkc",
            "data.normalize=nfkc",
            "would read much text differently; train with data.normalize=nfc or none",
        ),
    ):
        if is_wrong:
            raise UserError(f"{what}: cannot be exported to {engine.title}, which {why}")
    if engine.architecture and (special := SPECIAL_PIECES & {*side.vocabulary.to_json()}):
        what = f"the vocabulary holds {min(special)}"
        raise UserError(f"{what}, which has a meaning of its own in {engine.title}")
