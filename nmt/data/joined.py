"""Test sets of joined lines, and the record next to them that can take the lines apart again.

Rosendahl et al. (2019), section 5: consecutive sentences of a test set are joined in pairs, source
and target alike, to see how a model copes with lengths beyond those of its training.

Moses keeps a full stop on its word where a small letter or a digit follows, as after an
abbreviation: so it does in a joined line whose second sentence begins with one. The model then
meets pieces that hardly a line of its training has, and its scores reflect that, too. The record
counts these lines ("seams"), and `by_sentence` has each line segmented sentence by sentence.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nmt
from nmt.data.corpus import file_of, read_text, uncompressed
from nmt.data.segmenter import JoinedLine
from nmt.data.tokenizer import Tokenizer, warn_of_unknown
from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest

KIND = "nmt test set"  # distinguishes a record from any other JSON file of that name
FORMAT = 2  # of the record; a reader refuses others
_SIDES = ("source", "reference")


class Joined(NamedTuple):
    """Lines of a test set, each joined from consecutive sentences."""

    parts: list[tuple[list[str], list[str]]]  # of each line: its source and reference sentences

    @property
    def sources(self) -> list[str]:
        """The source lines."""
        return [" ".join(sentences) for sentences, _ in self.parts]

    @property
    def references(self) -> list[str]:
        """The reference lines."""
        return [" ".join(sentences) for _, sentences in self.parts]


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
    are counted. Raises UserError (2) for k below 1.
    """
    if k < 1:
        raise UserError(f"joining {k} lines: give 1 or more", Exit.USAGE)
    numbers = [0] * len(sources) if documents is None else documents
    parts: list[tuple[list[str], list[str]]] = []
    document = None
    for source, reference, number in zip(sources, references, numbers, strict=True):
        if not parts or len(parts[-1][0]) == k or number != document:
            parts.append(([], []))
        parts[-1][0].append(source)
        parts[-1][1].append(reference)
        document = number
    return Joined(parts)


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
    holds the counts, the sentences of each line and, where lines were joined, how many of them
    Moses tokenises otherwise. Raises UserError: 2 for one language twice, 65 for a line that would
    not read back as it is, 73 where NAME.json is something else, where a text would replace an
    input, or where nothing can be written.
    """
    endings = (source_language, target_language, "json")
    source, reference, record = (directory / f"{name}.{ending}" for ending in endings)
    paths = source, reference
    if len({*paths, record}) < 3:
        names = ", ".join(path.name for path in (*paths, record))
        raise UserError(f"{names}: two files of one name; name two languages", Exit.USAGE)
    sources, references = joined.sources, joined.references
    for path, lines in zip(paths, (sources, references), strict=True):
        _check_lines(path, lines)
    plain: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "nmt": nmt.__version__,
        "lines": len(joined.parts),
        "sentences": sum(len(sentences) for sentences, _ in joined.parts),
        "about": about,
    }
    if any(len(sentences) > 1 for sentences, _ in joined.parts):
        plain["seams"] = _count_seams(joined, source_language, target_language)
    for i, side in enumerate(_SIDES):
        plain[side] = [line[i] for line in joined.parts]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if record.exists() and not _is_record(record):
            raise UserError(
                f"{record}: not the record of a test set; choose another name, or move it away",
                Exit.CANT_CREATE,
            )
        inputs = {Path(i["path"]).resolve() for i in about.get("inputs", ())}
        for path in paths:
            if path.resolve() in inputs:
                raise UserError(f"{path}: is an input; choose another name", Exit.CANT_CREATE)
        # The record is written first: after a kill it fits no text, which is an error. Texts
        # without their record would look like a set that was never joined.
        atomic.replace(record, _dump(plain))
        atomic.replace(source, _bytes(sources))
        atomic.replace(reference, _bytes(references))
    except OSError as error:
        where = error.filename or directory
        raise UserError(f"{where}: {error.strerror}", Exit.CANT_CREATE) from None
    return paths


def described(inputs: Sequence[Path], k: int, **about: Any) -> dict[str, Any]:
    """Return an `about` for `write`: k, path and SHA-256 of each input, and `about`."""
    files = [{"path": str(path), "sha256": manifest.sha256_of(file_of(path))} for path in inputs]
    return {"k": k, "inputs": files, **about}


def parts_of(source: Path, reference: Path) -> list[tuple[list[str], list[str]]] | None:
    """Return the sentences of each line of a test set: as many lines as the files have.

    None where no record lies next to the source, or where it says that no lines were joined.
    Raises UserError (65) where record and files disagree.
    """
    where, record = _record(source)
    if record is None:
        return None
    sides = [
        _sentences(path, where, record, side)
        for side, path in zip(_SIDES, (source, reference), strict=True)
    ]
    return list(zip(*sides, strict=True)) if "seams" in record else None


def by_sentence(source: Path) -> list[JoinedLine]:
    """Return the lines of a joined source text, which know their sentences.

    Raises UserError: 66 without a record, or where it says that no lines were joined; 65 where
    record and text disagree.
    """
    where, record = _record(source)
    if record is None or "seams" not in record:
        why = "no record of a joined test set" if record is None else "says that nothing was joined"
        raise UserError(
            f"{where}: {why}, by which {source} could be read sentence by sentence; "
            "join its lines by nmt-recipe testset",
            Exit.NO_INPUT,
        )
    lines = _sentences(source, where, record, "source")
    return [JoinedLine(" ".join(sentences), sentences) for sentences in lines]


def seams(source: Path) -> dict[str, int]:
    """Return how many lines of a joined set Moses tokenises otherwise than their sentences.

    Counts the lines with such a source, with such a reference, and with either (`lines`); nothing
    for a text that was not joined. Raises UserError (65) for a damaged record.
    """
    record = _record(source)[1]
    return record.get("seams", {}) if record else {}


def _count_seams(joined: Joined, *languages: str) -> dict[str, int]:
    """Return what `seams` returns."""
    warn_of_unknown(languages)
    sides = zip(*joined.parts, strict=True)
    source, reference = (
        differs_from_sentences(sentences, language)
        for sentences, language in zip(sides, languages, strict=True)
    )
    either = [a or b for a, b in zip(source, reference, strict=True)]
    return {"source": sum(source), "reference": sum(reference), "lines": sum(either)}


def differs_from_sentences(lines: Sequence[Sequence[str]], language: str) -> list[bool]:
    """Return for each line, given as its sentences, whether Moses tokenises them otherwise."""
    tokenizer = Tokenizer("nfc", "moses", language)
    alone = iter(tokenizer.lines([sentence for line in lines for sentence in line]))
    joined = tokenizer.lines([" ".join(line) for line in lines])
    return [
        text.split() != [word for _ in line for word in next(alone).split()]
        for text, line in zip(joined, lines, strict=True)
    ]


def _record(source: Path) -> tuple[Path, dict[str, Any] | None]:
    """Return where the record of a source text lies, and the record if there is one.

    Raises UserError (65) for a record that is damaged, or of another format.
    """
    where = uncompressed(source).with_suffix(".json")
    record = _read(where) if where.is_file() else None
    if record is not None and record.get("format") != FORMAT:
        raise UserError(
            f"{where}: format {record.get('format')!r}, written by nmt {record.get('nmt')}; "
            f"this version reads {FORMAT}; make the set again",
            Exit.DATA,
        )
    return where, record


def _read(where: Path) -> dict[str, Any] | None:
    """Read a record of whatever format; None for other JSON. UserError (65): damaged."""
    record = manifest.parse(where.read_bytes(), where)
    return record if isinstance(record, dict) and record.get("kind") == KIND else None


def _is_record(where: Path) -> bool:
    """Whether a file is a record, of whatever format: any may be made again."""
    try:
        return _read(where) is not None
    except UserError:
        return False


def _sentences(path: Path, where: Path, record: dict[str, Any], side: str) -> list[list[str]]:
    """Return the sentences of each line of a text; UserError (65) where the record has others."""
    sentences: Any = record.get(side)
    lines = read_text(path)
    try:
        same = [" ".join(of_line) for of_line in sentences] == lines
    except TypeError:
        same = False
    if not same:
        raise UserError(
            f"{path}: is not the {side} that {where} describes; "
            "make the set again, or remove the record",
            Exit.DATA,
        )
    return sentences


def _check_lines(path: Path, lines: Sequence[str]) -> None:
    """Raise UserError (65) for a line that would not read back as it is."""
    for number, line in enumerate(lines, start=1):
        if "\n" in line or line.endswith("\r") or (number == 1 and line.startswith("\ufeff")):
            raise UserError(
                f"{path}:{number}: the line ends in a carriage return, holds a line feed, or "
                f"begins the file with a byte order mark; remove it from the input: {line[:40]!r}",
                Exit.DATA,
            )


def _bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _dump(plain: dict[str, Any]) -> bytes:
    """JSON with one key to a line: the counts on top stay readable above the sentences."""
    rows = [
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in plain.items()
    ]
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()
