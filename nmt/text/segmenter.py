"""All segmenters, and reading one from a model directory."""

from typing import Any, TypeAlias

from nmt.text import json_values
from nmt.text.bpe import Bpe
from nmt.text.marian import MarianSegmenter
from nmt.text.unigram import Unigram

# Text to pieces and back: `decode(encode(text))` gives the normalised text, but after the tokenizer
# of Moses, which is not undone exactly. A MarianSegmenter is a Unigram.
Segmenter: TypeAlias = Bpe | Unigram


def segmenter_from_json(value: Any) -> Segmenter:
    """Build the segmenter whose `to_json` returned `value`; UserError (65) if there is none."""
    kinds: dict[str, type[Segmenter]] = {cls.kind: cls for cls in (Bpe, Unigram, MarianSegmenter)}
    kind = value.get("kind") if isinstance(value, dict) else None
    return kinds[json_values.one_of(kind, [*kinds], "segmenter.kind")].from_json(value)
