"""Settings of the text: corpora, columns of integers parallel to them, and how words are cut."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal
from unicodedata import is_normalized

from nmt.config import check
from nmt.config.check import MANDATORY, Between, Name, NonNegativeInt, PositiveInt, Share, key
from nmt.errors import UserError

HEADS = "heads"  # the column of dependency heads
WORDS = "words"  # the column that every text has: which word a piece belongs to
CORPUS_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
COLUMN_NAME = re.compile("[a-z][a-z0-9_]*")  # it is part of file names and of error messages
Words = Annotated[int, Between(3, 1000)]  # of a sentence of data=toy

LEARNED = ("bpe", "unigram")  # kinds of segmenters
BPE, SPM, CODES, TOY = ("bpe",), ("spm",), ("codes",), ("toy",)


@dataclass
class Segmentation:
    """How words become pieces; the kind says which keys count.

    bpe: byte pair encoding (Sennrich et al. 2016), learned as subword-nmt does, on both sides.
    unigram: a unigram language model (Kudo 2018), learned by SentencePiece. spm, codes: files of
    SentencePiece or subword-nmt. imported: that of an imported model.
    """

    kind: Literal["bpe", "unigram", "spm", "codes", "imported"] = key(
        "bpe",
        "bpe, unigram: learned; spm, codes: files that exist; imported: that of an imported model",
    )
    tokenizer: Literal["moses", "none"] = key("moses", "what runs before segmentation")
    merges: NonNegativeInt = key(50000, "merge operations", BPE)
    min_frequency: NonNegativeInt = key(
        2, "bpe: a rarer pair is not merged; codes: pieces with a lower count are cut", BPE + CODES
    )
    vocabulary_size: Annotated[int, Between(8)] = key(
        32000, "pieces; fewer are made where the text gives fewer", ("unigram",)
    )
    character_coverage: Annotated[float, Between(0.98, 1)] = key(
        0.9995, "share of characters that get a piece", ("unigram",)
    )
    training_lines: NonNegativeInt = key(0, "lines sampled to learn from; 0: all", ("unigram",))
    shared_vocabulary: bool = key(
        False, "one vocabulary for both sides (needed by model.tie=all)", (*LEARNED, "imported")
    )
    source_model: str = key(MANDATORY, "SentencePiece model of source or both sides", SPM, True)
    target_model: str | None = key(None, "that of the target; null: source_model", SPM, True)
    codes: str = key(MANDATORY, "merges that subword-nmt learned, one per line", CODES, True)
    source_vocabulary: str = key(
        MANDATORY,
        "pieces of the source, or of both sides, one per line; a count may follow",
        CODES,
        True,
    )
    target_vocabulary: str | None = key(None, "of the target; null: the source's", CODES, True)

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        if self.kind in ("spm", "codes"):
            return self.target_model is None and self.target_vocabulary is None
        return self.shared_vocabulary


@dataclass
class Column:
    """Integers for the source text, in files parallel to it (which may be compressed)."""

    per: Literal["word", "sentence"] = key(MANDATORY, "integers of a line: one per word, or one")
    train: str = key(MANDATORY, "file parallel to the training text", path=True)
    dev: str = key(MANDATORY, "file parallel to the development text", path=True)
    test: str | None = key(None, "file parallel to the test text", path=True)


@dataclass
class Corpus:
    """One of several corpora: files that are in one directory, unless named otherwise."""

    root: str | None = key(None, "directory of its files; null: NAME in data.root", path=True)
    train_source: str | None = key(None, "training text in it; null: train.LANGUAGE", path=True)
    train_target: str | None = key(None, "the same, target side", path=True)
    dev_source: str | None = key(None, "development text in it; null: none", path=True)
    dev_target: str | None = key(None, "the same, target side", path=True)
    weight: Annotated[float, Between(1e-6, 1000)] = key(
        1.0, "how often each of its pairs occurs in an epoch, on average"
    )
    tag: str | None = key(None, "word put before each of its sources, as '>>de<<' or '<BT>'")


@dataclass
class Data:
    """A parallel corpus in pairs of text files, one sentence per line, and what is kept of it.

    data=toy writes its files itself (nmt.toy); its lengths are words of the source.
    """

    kind: Literal["files", "toy"] = key("files", "where the text comes from")
    name: Name = key("files", "names the run directory and the prepared corpus")
    source_language: str = key("de", "language code of the source, for Moses")
    target_language: str = key("en", "language code of the target, for Moses")
    max_length: PositiveInt = key(
        100, "drop a training pair if a side has more pieces, eos apart (Rosendahl et al. 2019)"
    )
    max_ratio: Annotated[float, Between(1, 1000)] | None = key(
        None, "drop a training pair if one side has so many times the other's pieces; null: keep it"
    )
    normalize: Literal["nfc", "nfkc", "none"] = key("nfc", "Unicode normal form of all text")
    invalid_utf8: Literal["fail", "drop"] = key("fail", "a line that is no UTF-8: stop, or drop")
    max_line_bytes: PositiveInt = key(65536, "drop a training or dev pair if a line has more")
    join: Annotated[int, Between(1, 64)] = key(
        1, "consecutive lines of a training example at most; an empty line is a border"
    )
    join_share: Share = key(0.5, "share of the examples that are to have several lines")
    join_length: Annotated[int, Between(2)] | None = key(
        None, "pieces of a side of such an example at most; null: max_length"
    )
    join_within: str | None = key(
        None, "column with an integer per line: only lines of the same one are joined"
    )
    bpe_dropout: Annotated[float, Between(0, 0.9)] = key(  # of all merges none is left: letters
        0.0, "segmenter=bpe: leave out merges with this probability (Provilkov et al. 2020)"
    )
    subword_alpha: Annotated[float, Between(0, 100)] | None = key(
        None, "segmenter=unigram: segmentations are drawn by p^alpha (Kudo 2018); null: none"
    )
    subword_nbest: Annotated[int, Between(2, 512)] = key(
        64, "draw from so many best segmentations of a line (Kudo 2018)"
    )
    user_symbols: list[str] = key(
        [], "words that are one piece in every segmenter, and are never split, as ['{name}','<BT>']"
    )
    protected: str | None = key(
        None,
        "file of patterns, as conf/data/protected.txt: what they match is translated as it is",
        path=True,
    )
    cache: str = key(
        "data/prepared", "directory of the prepared corpora, and of the text of data=toy", path=True
    )
    workers: Annotated[int, Between(1, 1024)] | None = key(
        None, "processes that prepare or segment text; null: as many as pay", effect=False
    )
    root: str | None = key(None, "directory of the files below; null: each is named", path=True)
    train_source: str = key(MANDATORY, "training text, source side", path=True)
    train_target: str = key(MANDATORY, "training text, target side", path=True)
    dev_source: str | None = key(
        None, "text that decides on learning rate and best checkpoint, source side", path=True
    )
    dev_target: str | None = key(None, "the same, target side", path=True)
    dev_lines: PositiveInt | None = key(
        None, "training pairs held out as development text, instead of two files"
    )
    test_source: str | None = key(None, "test text, source side; nmt-evaluate reads it", path=True)
    test_target: str | None = key(None, "the same, target side", path=True)
    columns: dict[str, Column] = key({}, "integers parallel to the source; add them with +")
    corpora: dict[str, Corpus] = key(
        {}, "several corpora, instead of train_source and train_target; add them with +"
    )
    train_pairs: PositiveInt = key(20000, "training pairs", TOY)
    train_shortest: Words = key(4, "words of the shortest training sentence", TOY)
    train_longest: Words = key(30, "words of the longest training sentence", TOY)
    dev_pairs: PositiveInt = key(300, "pairs of the development set, of training lengths", TOY)
    test_pairs: PositiveInt = key(1000, "pairs of the test set, spread over its lengths", TOY)
    test_shortest: Words = key(4, "words of the shortest test sentence", TOY)
    test_longest: Words = key(60, "words of the longest test sentence", TOY)
    corpus_seed: NonNegativeInt = key(1, "draws the sentences", TOY)

    def __post_init__(self) -> None:
        chosen = [name for name in ("dev_lines", "columns", "corpora") if getattr(self, name)]
        if len(chosen) > 1:
            first, second, *_ = chosen
            raise UserError(f"data.{first}: not with data.{second}; leave one of the two out")
        _check_columns(self.columns)
        _check_corpora(self.corpora)
        _check_symbols("data.user_symbols", self.user_symbols)
        has_dev = self.dev_lines or any(corpus.dev_source for corpus in self.corpora.values())
        if None in (self.dev_source, self.dev_target) and not has_dev:
            raise UserError(f"data.dev_source, data.dev_target: null; name both{self.other_dev}")

    @property
    def other_dev(self) -> str:
        """What to do without files of development text, as the end of an error."""
        if self.corpora:
            return ", or those of a corpus: data.corpora.NAME.dev_source and dev_target"
        return ", or hold out lines of the training text: data.dev_lines=N"


# keys that say which sentences data=toy draws
TOY_KEYS = tuple(name for name, declared in check.keys_of(Data).items() if declared.only == TOY)


def _check_columns(columns: dict[str, Column]) -> None:
    for name, column in columns.items():
        dotted = f"data.columns.{name}"
        if not COLUMN_NAME.fullmatch(name):
            raise UserError(f"{dotted}: a column is named by small letters, digits and _")
        if name == WORDS:
            raise UserError(f"{dotted}: every text has a column of this name; choose another")
        if column.per != "word" and name == HEADS:
            raise UserError(f"{dotted}.per={column.per}: each word has a head; say word")


def _check_corpora(corpora: dict[str, Corpus]) -> None:
    for name, corpus in corpora.items():
        dotted = f"data.corpora.{name}"
        if not CORPUS_NAME.fullmatch(name):
            raise UserError(f"{dotted}: a corpus is named by letters, digits and _")
        if (corpus.dev_source is None) != (corpus.dev_target is None):
            raise UserError(f"{dotted}: give dev_source and dev_target, or neither")
        _check_symbols(f"{dotted}.tag", [] if corpus.tag is None else [corpus.tag])


def _check_symbols(dotted: str, symbols: Iterable[str]) -> None:
    """Raise UserError for one that not every segmenter could leave whole."""
    for symbol in symbols:
        if (
            not (symbol.isprintable() and symbol.split() == [symbol])
            or not is_normalized("NFKC", symbol)
            or "\u2581" in symbol
            or symbol.endswith("@@")  # as all pieces but the last of a word do
        ):
            raise UserError(
                f"{dotted}={symbol}: expected characters without spaces, normalised by NFKC, "
                "without \u2581 and with no @@ at the end, such as <name>"
            )


def tags_of(data: Data) -> list[str]:
    """The words that stand before the sources of some corpora."""
    return sorted({corpus.tag for corpus in data.corpora.values() if corpus.tag})


def symbols_of(data: Data) -> tuple[str, ...]:
    """The words that are one piece of both sides."""
    return tuple(dict.fromkeys([*data.user_symbols, *tags_of(data)]))


def columns_of(data: Data) -> dict[str, str]:
    """Return name -> "word" or "sentence" of a corpus's columns; WORDS, too, if any is per word."""
    columns: dict[str, str] = {name: column.per for name, column in data.columns.items()}
    return columns | ({WORDS: "word"} if "word" in columns.values() else {})
