"""Features that no other engine has, refused before anything is written for one."""

from nmt.config.settings import RESTRICTIONS, Settings
from nmt.errors import UserError
from nmt.exchange.site_positions import NEAREST
from nmt.model.transformer import Transformer
from nmt.text.side import Segmenter
from nmt.text.unigram import Unigram


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
        if hooks or e.scale is not None:
            raise UserError(
                f"encoding.{e.name}: cannot be exported to {engine}, because attention to the "
                "source knows no positions there; the nearest that can is "
                f"{NEAREST[hooks[0] if hooks else 'bias']}, without where=cross"
            )


def plain_sentencepiece(segmenter: Segmenter, engine: str, why_no_bpe: str) -> Unigram:
    """Return a segmenter that is SentencePiece on normalised text, and nothing else.

    Raises UserError for others: the engine would cut a line otherwise.
    """

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
