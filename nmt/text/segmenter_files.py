"""Segmenters and vocabularies of both sides from files of SentencePiece or subword-nmt."""

from pathlib import Path

from nmt.config.data import Data, Segmentation
from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.lines import read_text
from nmt.text.protection import tokenizers_of
from nmt.text.side import Side, Sides
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram
from nmt.text.vocab import is_piece

VERSION = "#version: 0.2"  # of subword-nmt's files; version 0.1 marks the ends of words otherwise


def sides_of_files(data: Data, choice: Segmentation) -> Sides:
    """Read the files that the settings name.

    Raises UserError: 66 for a file that is missing, 65 for one that is something else.
    """
    source, target = tokenizers_of(data, choice)
    if choice.kind == "spm":
        return [
            _sentencepiece(source, "source_model", choice.source_model),
            _sentencepiece(target, "target_model", choice.target_model or choice.source_model),
        ]
    merges = _merges(Path(choice.codes))
    paths = (choice.source_vocabulary, choice.target_vocabulary or choice.source_vocabulary)
    pieces = [_pieces(Path(path), choice.min_frequency) for path in paths]
    return [
        Side.of(Bpe(tokenizer, merges, side_pieces), side_pieces)
        for tokenizer, side_pieces in zip((source, target), pieces, strict=True)
    ]


def _sentencepiece(tokenizer: Tokenizer, key: str, path: str) -> Side:
    try:
        segmenter = Unigram(tokenizer, Path(path).read_bytes())
        if not segmenter.pieces:  # of an empty file
            raise RuntimeError
    except OSError as error:
        raise UserError(f"segmenter.{key}={path}: {error.strerror}", Exit.NO_INPUT) from None
    except RuntimeError:
        raise UserError(f"segmenter.{key}={path}: no SentencePiece model", Exit.DATA) from None
    return Side.of(segmenter, segmenter.pieces)


def _merges(path: Path) -> list[str]:
    hint = "name the file of subword-nmt learn-bpe: segmenter.codes"
    version, *merges = read_text(path, hint) or [""]
    if version != VERSION:
        raise UserError(
            f"{path}:1: expected {VERSION!r}, as subword-nmt learn-bpe writes it from 0.2 on",
            Exit.DATA,
        )
    for number, merge in enumerate(merges, start=2):
        if merge.count(" ") != 1 or not all(merge.split(" ")):
            raise UserError(f"{path}:{number}: expected two symbols and a space", Exit.DATA)
    return [merge for merge in merges if all(map(is_piece, merge.split(" ")))]


def _pieces(path: Path, min_frequency: int) -> list[str]:
    pieces: dict[str, int] = {}
    hint = "name a file of subword-nmt get-vocab"
    for number, line in enumerate(read_text(path, hint), start=1):
        where = f"{path}:{number}"
        piece, _, count = line.replace("\t", " ").partition(" ")
        is_count = not count or (count.isascii() and count.isdigit() and len(count) < 20)
        if not piece or piece in pieces or not is_count:
            problem = "expected a piece that no line before has, and perhaps a count"
            raise UserError(f"{where}: {problem}", Exit.DATA)
        if min_frequency and not count:
            raise UserError(f"{where}: has no count; set segmenter.min_frequency=0", Exit.DATA)
        pieces[piece] = int(count or 0)
    frequent = (piece for piece, count in pieces.items() if count >= min_frequency)
    if not (usable := [*filter(is_piece, frequent)]):
        raise UserError(f"{path}: no piece occurs {min_frequency} times", Exit.DATA)
    return usable
