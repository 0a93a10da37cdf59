"""One side of a language pair: how its text becomes ids, and ids text."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from nmt.text import json_values
from nmt.text.protection import Protection
from nmt.text.segmenter import Segmenter, segmenter_from_json
from nmt.text.vocab import Vocabulary


class Side:
    """A segmenter and the vocabulary that numbers its pieces."""

    def __init__(self, segmenter: Segmenter, vocabulary: Vocabulary) -> None:
        self.segmenter, self.vocabulary = segmenter, vocabulary
        self.protection = Protection(segmenter.tokenizer)

    @classmethod
    def of(cls, segmenter: Segmenter, pieces: Iterable[str]) -> "Side":
        """Return a side that knows these pieces, and the symbols of its tokenizer."""
        return cls(segmenter, Vocabulary(dict.fromkeys([*pieces, *segmenter.tokenizer.symbols])))

    def ids(self, text: str) -> list[int]:
        """Number the pieces of one line of text, ending in EOS; an empty line gives EOS alone."""
        return self.vocabulary.ids(self.segmenter.encode(text))

    def text(self, ids: Iterable[int]) -> str:
        """Return one line of text for the ids before the first EOS."""
        return self.segmenter.decode(self.vocabulary.pieces(ids))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` needs, as plain values."""
        return {"segmenter": self.segmenter.to_json(), "vocabulary": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> "Side":
        """Build the side again; UserError (65) if the value is not from `to_json`."""
        fields = json_values.checked(value, "side", segmenter=dict, vocabulary=list)
        return cls(
            segmenter_from_json(fields["segmenter"]), Vocabulary.from_json(fields["vocabulary"])
        )


Sides: TypeAlias = Sequence[Side]  # source and target
