"""What an engine requires of a model; a model without it is refused before it is written."""

import torch
from torch import Tensor

from nmt.config.check import to_yaml
from nmt.config.settings import RESTRICTIONS, Settings
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Index
from nmt.errors import UserError
from nmt.exchange.export_engines import Architecture, ExportEngine
from nmt.exchange.marian_weights import SPECIAL_PIECES
from nmt.exchange.site_positions import NEAREST
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.unigram import Unigram, language_codes

STARTS = {  # model.target_bos -> how such a model differs, and the engine that has such models
    False: ("as this decoder starts from a vector of zeros, like Marian's own", "marian-npz"),
    True: ("as this decoder starts from the vector of a piece", "marian"),
}


def check_model(settings: Settings, model: Transformer, engine: ExportEngine) -> None:
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
        e = _find_absolute(model, name)
        if e is None or (e.positions, e.denominator) != (Index(start), denominator):
            raise UserError(
                f"encoding.{'+'.join(e.name for e in model.sites[name])}: cannot be exported to "
                f"{engine.title}, which adds sinusoids to the embeddings of the {name} and has no "
                f"other positions; {advice}, or export --to ctranslate2"
            )


def _find_absolute(model: Transformer, site: str) -> Absolute | None:
    """The sinusoids of a site, if they are its only encoding."""
    encodings = list(model.sites[site])
    return encodings[0] if len(encodings) == 1 and isinstance(encodings[0], Absolute) else None


def component_order(model: Transformer) -> Tensor:
    """The index of nmt's component at each index of the engine's vectors [dim].

    If sines and cosines alternate in nmt, they come in halves in the engine. With all vectors
    between the layers in that order, too, the model computes the same.
    """
    sinusoids = _find_absolute(model, "decoder")
    components = torch.arange(model.source_embedding.embedding_dim)
    if sinusoids is None or sinusoids.layout == "halves":
        return components
    return torch.cat([components[0::2], components[1::2]])


def check_segmenter_kind(kind: str, engine: ExportEngine) -> None:
    """Raise UserError for merges of BPE if an engine has SentencePiece alone."""
    if kind in ("bpe", "codes") and engine.why_no_bpe is not None:
        what = f"segmenter.kind={kind}: cannot be exported to {engine.title}"
        raise UserError(f"{what}, which {engine.why_no_bpe}, or export --to ctranslate2")


def check_text(trained: Trained, engine: ExportEngine) -> None:
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
    check_segmenter_kind(str(side.segmenter.to_json()["kind"]), engine)
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


def sentencepiece_of(side: Side) -> bytes:
    """The SentencePiece model of a side that was checked."""
    assert isinstance(side.segmenter, Unigram)
    return side.segmenter.model
