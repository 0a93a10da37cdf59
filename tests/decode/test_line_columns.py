"""Columns go through the translator in step with their lines, or are refused by name."""

from functools import cache
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.config.compose import experiment_of
from nmt.config.settings import Settings
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import Vocabulary
from tests.decode.copying import Copying, CopyState, decode, model_of

PIECES = [letter + end for letter in "abcdefgh" for end in ("", "@@")]
LINES = ["ab c", "", "h", "abc d ef", "a b c d", "gh"]
HEADS = ["0 1", "", "0", "2 0 2", "0 1 2 3", "0"]
LANGUAGE = ["3", "4", "5", "6", "7", "8"]


class Watched(Copying):
    """Remembers what stood beside each source, by its ids."""

    def __init__(self, vocabulary: Vocabulary, columns: set[str]) -> None:
        super().__init__(vocabulary)
        self.columns, self.seen = columns, dict[tuple[int, ...], dict[str, list[int]]]()

    def start(
        self, source: Tensor, columns: dict[str, Tensor], lengths: Tensor | None
    ) -> CopyState:
        for row in range(len(source)):
            ids = tuple(source[row][source[row] > 0].tolist())
            for name, values in columns.items():
                assert values.dtype == torch.int64 and len(values) == len(source)
                assert values.shape[1] == (1 if name == "language" else source.shape[1])
                assert not values[row, len(ids) :].any()
            self.seen[ids] = {n: v[row, : len(ids)].tolist() for n, v in columns.items()}
        return super().start(source, columns, lengths)


@cache
def settings(*names: str) -> Settings:
    per = {"language": "sentence"}
    words = [
        f"+data.columns.{n}={{per: {per.get(n, 'word')},train: a,dev: b,test: null}}" for n in names
    ]
    return experiment_of(["data=files", "data.root=x", *words]).settings


def translator(wanted: set[str], *names: str, **options: Any) -> Translator:
    vocabulary = Vocabulary(PIECES)
    side = Side(Bpe(Tokenizer("nfc", "none", "de"), [], PIECES), vocabulary)
    model = cast(Any, Watched(vocabulary, wanted).eval())
    return Translator.of(
        Trained(settings(*names), model, side, side, {"longest_source": 30}), decode(**options)
    )


def beside(some: Translator, line: str) -> dict[str, list[int]]:
    """What the model was given beside a line."""
    return model_of(some).seen[tuple(some.source.ids(line))]


@pytest.mark.parametrize(("window", "batch_tokens"), [(2, 9), (99, 999)])
def test_each_line_has_its_own_columns_whatever_the_batches(window: int, batch_tokens: int) -> None:
    some = translator(
        {"heads", "language", "words"}, "heads", "language",
        window=window, batch_tokens=batch_tokens,
    )  # fmt: skip
    assert some.texts(LINES, {"heads": HEADS, "language": iter(LANGUAGE)}) == LINES
    assert beside(some, "ab c") == {
        "heads": [0, 0, 1, 0], "language": [3], "words": [0, 0, 1, 2]
    }  # fmt: skip
    assert beside(some, "abc d ef") == {
        "heads": [4, 4, 4, 0, 4, 4, 0], "language": [6], "words": [0, 0, 0, 1, 2, 2, 3]
    }  # fmt: skip
    assert beside(some, "a b c d")["heads"] == [0, 1, 2, 3, 0]
    assert beside(some, "gh")["language"] == [8]


def test_words_need_no_file() -> None:
    some = translator({"words"})
    assert some.texts(["ab c"]) == ["ab c"]
    assert beside(some, "ab c") == {"words": [0, 0, 1, 2]}


def test_an_integer_beyond_the_table_is_refused_with_its_line() -> None:
    some = translator({"language"}, "language")
    some.engine.column_ranges = {"language": range(2)}
    assert some.texts(["ab c"], {"language": ["1"]}) == ["ab c"]
    with pytest.raises(UserError, match=r"line 2: column 'language' has 2, .* holds 0 to 1") as e:
        some.texts(["ab c", "h"], {"language": ["1", "2"]})
    assert e.value.code == Exit.DATA


def test_a_cut_source_keeps_a_tree() -> None:
    some = translator({"heads"}, "heads", too_long="truncate", max_source=3)
    assert some.texts(["ab c d", "h"], {"heads": ["3 1 0", "0"]}) == ["ab c", "h"]
    assert beside(some, "ab c") == {"heads": [0, 0, 1, 0], "words": [0, 0, 1, 2]}


@pytest.mark.parametrize(
    ("given", "message", "code"),
    [
        (
            {"heads": HEADS},
            "column language: this model reads it with the text; give --columns language=FILE",
            Exit.USAGE,
        ),
        (
            {"heads": HEADS, "language": LANGUAGE, "tag": LANGUAGE},
            "column tag: unknown to this model; its corpus had heads, language",
            Exit.USAGE,
        ),
        (
            {"heads": HEADS, "language": [*LANGUAGE, "9"]},
            "the text: only 6 lines, but column language has more; they must be parallel",
            Exit.DATA,
        ),
        (
            {"heads": [*HEADS[:3], "0 1", *HEADS[4:]], "language": LANGUAGE},
            "column heads, line 4: 2 integers, but the source line has 3 words; mend the file",
            Exit.DATA,
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(
    given: dict[str, list[str]], message: str, code: Exit
) -> None:
    some = translator({"heads", "language"}, "heads", "language", window=2)
    with pytest.raises(UserError) as error:
        some.texts(LINES, given)
    assert (str(error.value), error.value.code) == (message, code)
