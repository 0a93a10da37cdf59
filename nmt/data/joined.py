"""Test sets of joined lines, and the record beside them that can take the lines apart again.

Rosendahl et al. (2019), section 5: consecutive sentences of a test set joined in pairs, source
and target alike, to see how a model fares beyond the lengths of its training. The record counts
the lines that Moses reads otherwise than their sentences; where one asks for it, each line is read
as the pieces of its sentences (`by_sentence`).
"""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nmt
from nmt.data.corpus import raw_lines, read_text
from nmt.data.seams import JoinedLine, joined_line, otherwise
from nmt.data.tokenizer import warn_of_unknown
from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest

KIND = "nmt test set"  # tells a record from any other JSON file of the same name
FORMAT = 1  # of the record; a reader refuses others
_SIDES = ("source", "reference")


class Joined(NamedTuple):
    """Lines of a test set, each joined from consecutive sentences."""

    sources: list[str]
    references: list[str]
    parts: list[tuple[list[str], list[str]]]  # of each line: its source and reference sentences


def join(
    sources: Sequence[str],
    references: Sequence[str],
    k: int = 2,
    documents: Sequence[int] | None = None,
) -> Joined:
    """Join each k consecutive lines by one space; what is left at the end makes a shorter line.

    `documents` holds a number for each line; a line never joins two that differ in it, so that
    each document has its own shorter line at its end. Sentences stay as they are, byte for byte:
    an empty one adds nothing but the joining space, and is a sentence like any other when they
    are counted. Raises UserError (65) for unequal numbers of lines, (2) for k below 1.
    """
    if k < 1:
        raise UserError(f"joining {k} lines: give 1 or more", Exit.USAGE)
    numbers = [0] * len(sources) if documents is None else documents
    if not len(sources) == len(references) == len(numbers):
        beside = "" if documents is None else f", {len(documents)} document numbers"
        raise UserError(
            f"{len(sources)} sources, {len(references)} references{beside}: "
            "line N of all must belong together",
            Exit.DATA,
        )
    parts: list[tuple[list[str], list[str]]] = []
    document = None
    for source, reference, number in zip(sources, references, numbers, strict=True):
        if not parts or len(parts[-1][0]) == k or number != document:
            parts.append(([], []))
        parts[-1][0].append(source)
        parts[-1][1].append(reference)
        document = number
    return Joined([" ".join(s) for s, _ in parts], [" ".join(r) for _, r in parts], parts)


def write(
    directory: Path,
    name: str,
    source_language: str,
    target_language: str,
    joined: Joined,
    about: dict[str, Any],
) -> tuple[Path, Path]:
    """Write NAME.de, NAME.en (by the languages) and NAME.json, the record; return the texts.

    `about` goes into the record as it is: k, and the inputs (see `described`). The record also
    holds the counts, the SHA-256 of both texts and, where lines were joined, the characters of
    each sentence and how many lines Moses reads otherwise (see `seams`). Raises UserError: 2 for
    one language twice, 65 for a line that would not read back as it is, 73 where NAME.json is
    something else, where a text would take the place of an input, or where nothing can be written.
    """
    endings = (source_language, target_language, "json")
    paths = [directory / f"{name}.{ending}" for ending in endings]
    if len(set(paths)) < 3:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{names}: two files of one name; name two languages", Exit.USAGE)
    record = paths.pop()
    texts = [_text(*side) for side in zip(paths, (joined.sources, joined.references), strict=True)]
    plain: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "nmt": nmt.__version__,
        "lines": len(joined.parts),
        "sentences": sum(len(sources) for sources, _ in joined.parts),
        "source": _side(paths[0], texts[0], joined.sources),
        "reference": _side(paths[1], texts[1], joined.references),
        "about": about,
    }
    if any(len(sources) > 1 for sources, _ in joined.parts):
        plain["seams"] = _count_seams(joined, source_language, target_language)
        plain["characters"] = [[[len(s) for s in side] for side in line] for line in joined.parts]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if record.exists() and _read(record) is None:
            raise UserError(
                f"{record}: not the record of a test set; choose another name", Exit.CANT_CREATE
            )
        for path in paths:
            if any(path.resolve() == Path(i["path"]).resolve() for i in about.get("inputs", ())):
                raise UserError(f"{path}: is an input; choose another name", Exit.CANT_CREATE)
        # The record goes first. If we are killed, it fits no text and says so; texts without
        # their record would pass for a set that nobody joined.
        for path, data in zip([record, *paths], [_dump(plain), *texts], strict=True):
            atomic.replace(path, data)
    except OSError as error:
        where = error.filename or directory
        raise UserError(f"{where}: {error.strerror}", Exit.CANT_CREATE) from None
    return paths[0], paths[1]


def described(inputs: Sequence[Path], k: int, **more: Any) -> dict[str, Any]:
    """What `write` wants to know: k, path and SHA-256 of each input, and what else is told."""
    return {
        "k": k,
        "inputs": [{"path": str(path), "sha256": file_sum(path)} for path in inputs],
        **more,
    }


def file_sum(path: Path) -> str:
    """SHA-256 of a file as it lies on the disk."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def parts_of(source: Path, reference: Path) -> list[tuple[list[str], list[str]]] | None:
    """The sentences of each line of a test set: as many lines as the files have.

    None where no record lies beside the source, or where it says that nothing was joined.
    Raises UserError (65) where record and files disagree, whoever changed them.
    """
    where = _beside(source)
    record = _read(where) if where.is_file() else None
    if record is None:
        return None
    texts = [
        _vouched(path, where, record, key)
        for key, path in zip(_SIDES, (source, reference), strict=True)
    ]
    if "characters" not in record:
        return None
    sides = [
        _sentences(lines, where, record, key) for key, lines in zip(_SIDES, texts, strict=True)
    ]
    return list(zip(*sides, strict=True))


def by_sentence(source: Path) -> list[JoinedLine]:
    """The lines of a joined source text, which know their sentences by the record beside it.

    Raises UserError: 66 without such a record, or where it says that nothing was joined; 65 where
    record and text disagree.
    """
    where = _beside(source)
    record = _read(where) if where.is_file() else None
    if record is None or "characters" not in record:
        why = "no record of a joined test set" if record is None else "says that nothing was joined"
        raise UserError(
            f"{where}: {why}, by which {source} could be read sentence by sentence; "
            "join its lines by nmt-recipe testset",
            Exit.NO_INPUT,
        )
    lines = _vouched(source, where, record, "source")
    return list(map(joined_line, lines, _sentences(lines, where, record, "source")))


def seams(source: Path) -> dict[str, int]:
    """Lines of a joined set that Moses reads otherwise than their sentences; of any text, none.

    Counts the lines with such a source, with such a reference, and with either (`lines`). Raises
    UserError (65) for a damaged record.
    """
    where = _beside(source)
    record = _read(where) if where.is_file() else None
    return record.get("seams", {}) if record else {}


def _count_seams(joined: Joined, source_language: str, target_language: str) -> dict[str, int]:
    """What `seams` gives."""
    warn_of_unknown("moses", source_language, target_language)
    sources = otherwise(joined.sources, [s for s, _ in joined.parts], source_language)
    references = otherwise(joined.references, [r for _, r in joined.parts], target_language)
    either = [a or b for a, b in zip(sources, references, strict=True)]
    return {"source": sum(sources), "reference": sum(references), "lines": sum(either)}


def _beside(source: Path) -> Path:
    """Where the record of a source text lies."""
    return source.with_name(source.name.removesuffix(".gz")).with_suffix(".json")


def _vouched(path: Path, where: Path, record: dict[str, Any], key: str) -> list[str]:
    """The lines of a text; UserError (65) unless they are those of the record."""
    lines = read_text(path)
    if _sum(lines) != record[key]["sha256"]:
        raise UserError(
            f"{path}: is not the {key} that {where} describes; "
            "make the set again, or remove the record",
            Exit.DATA,
        )
    return lines


def _sentences(
    lines: Sequence[str], where: Path, record: dict[str, Any], key: str
) -> list[list[str]]:
    """The sentences of each line of one side, by the record at `where`."""
    try:
        return [
            _cut(line, lengths[_SIDES.index(key)])
            for line, lengths in zip(lines, record["characters"], strict=True)
        ]
    except (TypeError, ValueError, LookupError):
        raise UserError(
            f"{where}: its sentences do not make up the lines; make the set again", Exit.DATA
        ) from None


def _text(path: Path, lines: Sequence[str]) -> bytes:
    """The bytes of a text file; UserError unless they read back as the lines that they are."""
    data = "".join(f"{line}\n" for line in lines).encode()
    again = [line.raw.decode() for line in raw_lines(io.BytesIO(data))]
    if again != list(lines):
        at = next((n for n, two in enumerate(zip(again, lines, strict=False)) if two[0] != two[1]))
        raise UserError(
            f"{path}:{at + 1}: the line ends in a carriage return, holds a line feed, or begins "
            f"the file with a byte order mark; remove it from the input: {lines[at][:40]!r}",
            Exit.DATA,
        )
    return data


def _side(path: Path, text: bytes, lines: Sequence[str]) -> dict[str, Any]:
    tokens = [len(line.split()) for line in lines]
    return {
        "file": path.name,
        "sha256": hashlib.sha256(text).hexdigest(),
        "tokens": sum(tokens),  # between white space
        "longest": max(tokens, default=0),
    }


def _sum(lines: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _dump(plain: dict[str, Any]) -> bytes:
    """JSON with one key to a line: the counts on top stay readable above thousands of lengths."""
    rows = [
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in plain.items()
    ]
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def _read(where: Path) -> dict[str, Any] | None:
    """The record; None for JSON that is none. UserError (65): damaged, or of another format."""
    record = manifest.parse(where.read_bytes(), where)
    if not isinstance(record, dict) or record.get("kind") != KIND:
        return None
    if record.get("format") != FORMAT:
        raise UserError(
            f"{where}: format {record.get('format')!r}, written by nmt {record.get('nmt')}; "
            f"this version reads {FORMAT}; make the set again",
            Exit.DATA,
        )
    if not all(isinstance(record.get(k), dict) and "sha256" in record[k] for k in _SIDES):
        raise UserError(f"{where}: names no texts; make the set again", Exit.DATA)
    return record


def _cut(line: str, lengths: Sequence[int]) -> list[str]:
    """Take a line apart; ValueError unless sentences of these lengths and spaces make it up."""
    sentences, start = [], 0
    for length in lengths:
        sentences.append(line[start : start + length])
        start += length + 1
    if not lengths or " ".join(sentences) != line or list(map(len, sentences)) != list(lengths):
        raise ValueError("other lengths")
    return sentences
