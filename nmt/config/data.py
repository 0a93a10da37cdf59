"""Settings of the text: corpora, and columns of integers parallel to them."""

import re
from dataclasses import dataclass, fields
from typing import Any
from unicodedata import is_normalized

from nmt.errors import UserError
from nmt.schema import knob


def _check_symbols(where: str, symbols: Any) -> None:
    """Raise UserError for one, or for one of a list, that not every segmenter could leave whole."""
    for symbol in symbols if isinstance(symbols, list) else [symbols]:
        if isinstance(symbol, str) and (
            not (symbol.isprintable() and symbol.split() == [symbol])
            or not is_normalized("NFKC", symbol)
            or "\u2581" in symbol
            or symbol.endswith("@@")  # as all pieces but the last of a word do
        ):
            raise UserError(
                f"{where}={symbol}: expected characters without spaces, normalised by NFKC, "
                "without \u2581 and with no @@ at the end, such as <name>"
            )


@dataclass
class Column:
    """Integers for the source text, in files parallel to it (which may be compressed)."""

    per: str = knob("integers of a line: one for each word, or one", choices=("word", "sentence"))
    train: str = knob("file parallel to the training text")
    dev: str = knob("file parallel to the development text")
    test: str | None = knob("file parallel to the test text")


HEADS = "heads"  # the column of dependency heads
WORDS = "words"  # the column that every text has: which word a piece belongs to
CORPUS_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
COLUMN_NAME = re.compile("[a-z][a-z0-9_]*")  # it is part of file names and of error messages


def _check_columns(where: str, values: Any) -> None:
    """Check a mapping of names to columns."""
    for name, value in values.items():
        if not isinstance(name, str) or not COLUMN_NAME.fullmatch(name):
            raise UserError(f"{where}.{name}: a column is named by small letters, digits and _")
        if name == WORDS:
            raise UserError(f"{where}.{name}: made of all text; choose another name")
        if value["per"] != "word" and name == HEADS:
            raise UserError(f"{where}.{name}.per={value['per']}: each word has a head; say word")


@dataclass
class Corpus:
    """One of several corpora: files that are in one directory, unless named otherwise."""

    root: str | None = knob("directory of its files; null: NAME in data.root", absent=None)
    train_source: str | None = knob("training text in it; null: train.LANGUAGE", absent=None)
    train_target: str | None = knob("the same, target side", absent=None)
    dev_source: str | None = knob("development text in it; null: none", absent=None)
    dev_target: str | None = knob("the same, target side", absent=None)
    weight: float = knob(
        "how often each of its pairs occurs in an epoch, on average", least=1e-6, absent=1.0
    )
    tag: str | None = knob(
        "word put before each of its sources, as >>de<< or <BT>", check=_check_symbols, absent=None
    )


def _check_corpora(where: str, values: Any) -> None:
    """Check a mapping of names to corpora."""
    for name, value in values.items():
        if not isinstance(name, str) or not CORPUS_NAME.fullmatch(name):
            raise UserError(f"{where}.{name}: a corpus is named by letters, digits and _")
        if (value.get("dev_source") is None) != (value.get("dev_target") is None):
            raise UserError(f"{where}.{name}: give dev_source and dev_target, or neither")


@dataclass
class Data:
    """A parallel corpus in pairs of text files, one sentence per line, and what is kept of it."""

    kind: str = knob("where the text comes from", choices=("files", "toy"))
    name: str = knob("names the run directory and the prepared corpus")
    source_language: str = knob("language code of the source, for Moses")
    target_language: str = knob("language code of the target, for Moses")
    max_length: int = knob("drop a training pair if a side has more pieces, eos apart", least=1)
    max_ratio: float | None = knob(
        "drop a training pair if a side has more than so many times the pieces of the other; null: "
        "keep it",
        least=1,
        most=1000,
        absent=None,
    )
    normalize: str = knob("Unicode normal form of all text", choices=("nfc", "nfkc", "none"))
    invalid_utf8: str = knob("a line that is no UTF-8: stop, or drop", choices=("fail", "drop"))
    max_line_bytes: int = knob("drop a training or development pair if a line has more", least=1)
    join: int = knob("consecutive lines of a training example at most", least=1, most=64, absent=1)
    join_share: float = knob(
        "share of the examples that are to have several lines", least=0, most=1, absent=0.5
    )
    join_length: int | None = knob(
        "pieces of a side of such an example at most; null: max_length", least=2, absent=None
    )
    join_within: str | None = knob(
        "column with an integer per line: only lines of the same one are joined", absent=None
    )
    bpe_dropout: float = knob(
        "segmenter=bpe: probability of leaving out a merge in training (Provilkov et al. 2020)",
        least=0,
        most=0.9,  # of all merges none is left: letters, which translation never sees
        absent=0.0,
    )
    subword_alpha: float | None = knob(
        "segmenter=unigram: training segmentations are drawn by p^alpha (Kudo 2018); null: none",
        least=0,
        most=100,
        absent=None,
    )
    subword_nbest: int | None = knob(
        "draw from so many best segmentations of a line; null: from all",
        least=2,
        most=512,
        absent=None,
    )
    user_symbols: list[str] = knob(
        "words that are one piece in every segmenter, and are never split",
        check=_check_symbols,
        absent=[],
    )
    protected: str | None = knob(
        "file of patterns: what they match is translated as it is; null: none", absent=None
    )
    cache: str = knob("directory of the prepared corpora, and of the text of data=toy")
    workers: int | None = knob(
        "processes that prepare text; null: one per thread", least=1, most=1024
    )
    root: str | None = knob(
        "directory that the file names below refer to; null: each is named", absent=None
    )
    train_source: str = knob("training text, source side")
    train_target: str = knob("training text, target side")
    dev_source: str | None = knob(
        "text that decides on learning rate and best checkpoint, source side"
    )
    dev_target: str | None = knob("the same, target side")
    dev_lines: int | None = knob(
        "pairs of the training text that take its place, and are not trained on",
        least=1,
        absent=None,
    )
    test_source: str | None = knob("test text, source side; nmt-evaluate reads it")
    test_target: str | None = knob("test text, target side; nmt-evaluate reads it")
    columns: dict[str, Column] = knob(
        "integers parallel to the source; add them with +", of=Column, check=_check_columns
    )
    corpora: dict[str, Corpus] = knob(
        "several corpora, in the place of train_source and train_target; add them with +",
        of=Corpus,
        check=_check_corpora,
        absent={},
    )

    def __post_init__(self) -> None:
        given = [key for key in ("dev_lines", "columns", "corpora") if getattr(self, key)]
        if len(given) > 1:
            first, second, *_ = given
            raise UserError(f"data.{first}: not with data.{second}; leave one of the two out")
        has_dev = self.dev_lines or any(corpus.dev_source for corpus in self.corpora.values())
        if None in (self.dev_source, self.dev_target) and not has_dev:
            raise UserError(f"data.dev_source, data.dev_target: null; name both{self.other_dev}")

    @property
    def other_dev(self) -> str:
        """Where development text may be from but its two files, as errors say it."""
        if self.corpora:
            return ", or those of a corpus: data.corpora.NAME.dev_source and dev_target"
        return ", or hold out lines of the training text: data.dev_lines=N"


@dataclass
class Toy(Data):
    """Text of the embedded German-English grammar, which nmt.data.toy.recipe writes into root.

    Lengths are counted in words of the source.
    """

    train_pairs: int = knob("training pairs", least=1)
    train_shortest: int = knob("words of the shortest training sentence", least=3, most=1000)
    train_longest: int = knob("words of the longest training sentence", least=3, most=1000)
    dev_pairs: int = knob("pairs of the development set, of training lengths", least=1)
    test_pairs: int = knob("pairs of the test set, spread evenly over its lengths", least=1)
    test_shortest: int = knob("words of the shortest test sentence", least=3, most=1000)
    test_longest: int = knob("words of the longest test sentence", least=3, most=1000)
    corpus_seed: int = knob("draws the sentences", least=0)


# keys that say which sentences are drawn
RECIPE = tuple(f.name for f in fields(Toy)[len(fields(Data)) :])


def tags_of(data: Data) -> list[str]:
    """The words that stand before the sources of some corpora."""
    return sorted({corpus.tag for corpus in data.corpora.values() if corpus.tag})


def symbols_of(data: Data) -> tuple[str, ...]:
    """The words that are one piece of both sides."""
    return tuple(dict.fromkeys([*data.user_symbols, *tags_of(data)]))


def columns_of(data: Data) -> dict[str, str]:
    """The columns that a corpus has for its source: name -> "word" or "sentence".

    Where one has an integer per word, there is also WORDS.
    """
    columns = {name: column.per for name, column in data.columns.items()}
    return columns | ({WORDS: "word"} if "word" in columns.values() else {})
