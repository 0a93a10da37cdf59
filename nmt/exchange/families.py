"""Models that other engines support; others are refused before anything is written.

Marian has norms after the sublayers and none above the stacks, embeddings times the root of the
width, sinusoids as halves of sines and cosines, SentencePiece. M2M100 and NLLB have norms before
the sublayers, one matrix for all embeddings, fairseq's sinusoids from position 2 on.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.config.settings import RESTRICTIONS, Settings
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Index
from nmt.encodings.sinusoids import Denominator, Layout
from nmt.errors import UserError
from nmt.exchange.marian_ids import SPECIAL
from nmt.exchange.settings import sinusoids
from nmt.exchange.site_positions import NEAREST
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.side import Segmenter
from nmt.text.unigram import Unigram, language_codes


def refuse(settings: Settings, model: Transformer, engine: str) -> None:
    """Raise UserError for parts of a model that only this toolkit computes."""
    for key, usual, why in (
        ("drop_residual", [], "no residual can be left out"),
        ("feedforward", "real", "it has no complex maps"),
    ):
        if (value := getattr(settings.model, key)) != usual:
            what = f"model.{key}={str(value).lower()}: cannot be exported to {engine}, because"
            raise UserError(f"{what} {why}; train without it")
    for key, neutral in {"position_scale": 1, **RESTRICTIONS}.items():
        if (value := getattr(settings.decode, key)) != neutral:
            raise UserError(f"decode.{key}={value}: cannot be exported; add decode.{key}={neutral}")
    for e in model.cross_encodings:
        hooks = [hook for hook in NEAREST if hook in e.hooks]
        if hooks or e.score_scale is not None:
            raise UserError(
                f"encoding.{e.name}: cannot be exported to {engine}, because attention to the "
                "source knows no positions there; the nearest that can is "
                f"{NEAREST[hooks[0] if hooks else 'bias']}, without where=cross"
            )


def refuse_languages(trained: Trained) -> None:
    """Raise UserError for languages in the settings; these engines put no piece before a line."""
    for key in ("source_language", "target_language"):
        if name := getattr(trained.settings.decode, key):
            null = f"add decode.{key}=null if the lines themselves begin with one, or "
            raise UserError(
                f"decode.{key}={name}: cannot be exported there, where nothing puts a language "
                f"before a line; {null if language_codes(trained.source.vocabulary) else ''}"
                "export --to ctranslate2"
            )


def plain_sentencepiece(segmenter: Segmenter, engine: str, why_no_bpe: str) -> Unigram:
    """The segmenter; UserError unless it is SentencePiece on plain text, as in the engine."""

    def refuse(what: str, why: str) -> UserError:
        return UserError(f"{what}: cannot be exported to {engine}, which {why}")

    if not isinstance(segmenter, Unigram):
        raise refuse(f"segmenter.kind={segmenter.to_json()['kind']}", why_no_bpe)
    tokenizer = segmenter.tokenizer
    if tokenizer.symbols:
        why = "knows pieces of SentencePiece alone; export it --to ctranslate2"
        raise refuse("data.user_symbols, tags, data.protected", why)
    if tokenizer.kind != "none":
        why = "runs SentencePiece on plain text; train with segmenter.tokenizer=none"
        raise refuse(f"segmenter.tokenizer={tokenizer.kind}", why)
    if tokenizer.normalize == "nfkc":
        why = "would read much text otherwise; train with data.normalize=nfc or none"
        raise refuse("data.normalize=nfkc", why)
    return segmenter


class Family(NamedTuple):
    """Models of one architecture in another engine."""

    engine: str
    title: str  # of the engine, for people
    sinusoids: tuple[Layout, Denominator, int]  # and their first position
    required: Mapping[str, object]  # keys under `model`


_USUAL = {"norm_epsilon": 1e-5, "source_eos": True}
MARIAN = Family(
    "Marian",
    "Hugging Face transformers (Marian)",
    ("halves", "paper", 0),
    {**_USUAL, "norm": "post", "target_bos": True},
)
M2M100 = Family(
    "M2M100",
    "Hugging Face transformers (M2M100, NLLB)",
    ("halves", "tensor2tensor", 2),
    {**_USUAL, "norm": "pre", "target_bos": True, "tie": "all"},
)
MARIAN_NPZ = Family(
    "Marian",
    "Marian",
    ("halves", "tensor2tensor", 0),
    {**_USUAL, "norm": "post", "target_bos": False},
)


def check_form(settings: Settings, model: Transformer, family: Family) -> None:
    """Raise UserError for a model whose shape or positions are not those of a family."""
    for key, required in family.required.items():
        if (value := getattr(settings.model, key)) != required:
            advice = f"train with model.{key}={str(required).lower()}"
            if key == "target_bos":
                advice = f"export --to {'marian' if value else 'marian-npz'}"
            what = f"model.{key}={str(value).lower()}: cannot be exported to {family.title}"
            raise UserError(f"{what}; {advice}, or export --to ctranslate2")
    component_order(model, family)
    refuse(settings, model, family.engine)


def check(trained: Trained, family: Family) -> list[Unigram]:
    """Segmenters of source and target; UserError for a model that is not of the family."""
    check_form(trained.settings, trained.model, family)
    why = "knows pieces of SentencePiece alone; train with segmenter=unigram"
    sides = trained.source, trained.target
    segmenters = [plain_sentencepiece(s.segmenter, family.engine, why) for s in sides]
    for side in sides:
        if special := SPECIAL & set(side.vocabulary.to_json()):
            what = f"the vocabulary holds {min(special)}"
            raise UserError(f"{what}, which has a meaning of its own in {family.engine}")
    return segmenters


def component_order(model: Transformer, family: Family) -> Tensor:
    """Our component at each index of the engine's vectors [dim]; UserError for other positions.

    If sines and cosines alternate here, they have another order there. With all vectors between
    the layers in that order, too, the model computes the same.
    """
    layout, denominator, start = family.sinusoids
    for name in ("encoder", "decoder"):
        entries = list(model.sites[name])
        e = entries[0] if len(entries) == 1 else None
        if not (
            isinstance(e, Absolute) and (e.positions, e.denominator) == (Index(start), denominator)
        ):
            raise UserError(
                f"encoding.{'+'.join(e.name for e in entries)}: cannot be exported to "
                f"{family.engine}, which adds sinusoids to the embeddings of the {name} and knows "
                f"no other positions; the nearest is {' '.join(sinusoids(*family.sinusoids))}"
            )
        layout = e.layout
    components = torch.arange(model.source_embedding.embedding_dim)
    if layout == "halves":
        return components
    return torch.cat([components[0::2], components[1::2]])
