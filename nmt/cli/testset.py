"""nmt-testset: put test sets together, and join their lines into longer ones."""

import argparse
import logging
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.command import run
from nmt.cli.parser import Parser
from nmt.errors import Exit, UserError
from nmt.experiments import outputs

if TYPE_CHECKING:
    from nmt.compare.buckets import Bucket

log = logging.getLogger(__name__)

DESCRIPTION = "Put test sets together, and join their lines into longer ones."
EPILOG = """
Line N of a source and its reference belong together; a line ends at LF; .gz is read too. Lines
are joined by one space, source and reference alike, and what is left at the end makes a shorter
line. Empty lines stay: they count as a sentence and add nothing but the joining space.

Beside NAME.de and NAME.en (by the languages) lies NAME.json, the record: SHA-256 of inputs and
outputs, counts, and the sentences of each line, by which nmt-report can take joined lines apart.
Where a small letter or a digit begins a sentence, Moses keeps the full stop before it on its word,
as in no line of training: how many joined lines it tokenises otherwise than their sentences is said
and recorded, and --by-sentence (nmt-translate, nmt-evaluate, nmt-report; by_sentence=true of
nmt-train experiment=table3) reads each as the pieces of its sentences.
The lines by source length and those tokenised otherwise go to stdout, all else to stderr.

nmt-testset all --help and nmt-testset join --help tell more."""
ALL = """Put test sets one behind the other (newstest_all), and join each 2 consecutive
lines of the whole, also across the borders of the sets (concat_seq; Rosendahl et al. 2019).
Sets of the paper, known by their file names (newstest2008.de, ...), are compared with the line
counts that were published."""
JOIN = """Join each K consecutive lines of one test set; with --documents only lines of the
same document. 1 joins nothing, and copies the set."""
WORDS = "words"


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Read, join, write, count."""
    options = understood(argv)
    from nmt.compare.buckets import make, parse_bounds

    groups = make(parse_bounds(options.bounds))
    outputs.check_places([], directories=[options.directory])
    measure, unit = _measure(options.lengths)  # before anything is written: MODEL may be mistyped
    sets, joined_source = _all(options) if options.does == "all" else _join(options)
    sys.stdout.write(table({n: list(map(measure, lines)) for n, lines in sets}, groups, unit))
    sys.stdout.write(seams_text(joined_source, len(sets[-1][1])))


def understood(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        "nmt-testset",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    kinds = parser.add_subparsers(dest="does", required=True, metavar="all|join")
    whole = kinds.add_parser(
        "all",
        help="many test sets as one, and that one with its lines joined",
        description=ALL,
    )
    add = whole.add_argument
    add("directory", type=Path, metavar="DIR", help="where the sets are written")
    add("--sources", nargs="+", required=True, type=Path, metavar="SRC", help="in their order")
    add("--references", nargs="+", required=True, type=Path, metavar="REF", help="as the sources")
    add("--name", default="newstest_all", help="of the whole (default %(default)s)")
    add("--joined-name", default="concat_seq", metavar="NAME", help="default %(default)s")
    one = kinds.add_parser(
        "join",
        help="one test set with its lines joined",
        description=JOIN,
    )
    add = one.add_argument
    add("directory", type=Path, metavar="DIR", help="where the set is written")
    add("--name", required=True, help="of the files: NAME.de, NAME.en, NAME.json")
    add("--source", required=True, type=Path, metavar="SRC", help="the test set")
    add("--reference", required=True, type=Path, metavar="REF", help="its right translations")
    add(
        "--documents",
        type=Path,
        metavar="FILE",
        help="name of each line's document, one a line; joins stay inside",
    )
    for kind in (whole, one):
        add = kind.add_argument
        add("-k", type=int, default=2, help="lines joined into one (default %(default)s)")
        add("--source-language", metavar="CODE", help="default: the ending of the source's name")
        add("--target-language", metavar="CODE", help="default: that of the reference's")
        add(
            "--bounds",
            default="25,50,75,100",
            help="last length of each bucket (default %(default)s)",
        )
        add("--lengths", metavar="MODEL", help="counts its source pieces (default: words)")
    options = parser.parse_args(argv)
    if options.k < 1:
        raise UserError(f"-k {options.k}: give 1 or more", Exit.USAGE)
    for name in (options.name, getattr(options, "joined_name", options.name)):
        if not name or name[0] == "." or re.search(r"[/\\\x00-\x1f]", name):
            raise UserError(f"{name!r}: no name for a file; give a word without /", Exit.USAGE)
    if options.does == "all" and options.name == options.joined_name:
        raise UserError(f"{options.name}: two sets of this name; change --joined-name", Exit.USAGE)
    return options


def table(sets: dict[str, list[int]], groups: "Sequence[Bucket]", unit: str) -> str:
    """Lines, sum and maximum of the source lengths of each set, and its lines in each bucket."""
    from nmt.compare.buckets import members

    heading = ["", "lines", "sum", "longest", *(group.name for group in groups)]
    rows = [heading]
    for name, lengths in sets.items():
        inside = [len(members(group, lengths)) for group in groups]
        rows.append([name, *(f"{n:,}" for n in (len(lengths), sum(lengths), max(lengths)))])
        rows[-1] += [f"{n:,}" for n in inside]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    return "\n".join([f"lines by source length in {unit}", *lines]) + "\n"


def seams_text(source: Path, lines: int) -> str:
    """How many lines of a joined set are tokenised otherwise; nothing where none was joined."""
    from nmt.data.joined import seams

    count = seams(source)
    if not count:
        return ""
    share = f"{count['lines']:,} of {lines:,} lines ({count['lines'] / lines:.1%})"
    sides = f"{count['source']:,} sources, {count['reference']:,} references"
    return f"{source.stem}: Moses reads {share} otherwise than their sentences: {sides}\n"


def _all(options: argparse.Namespace) -> tuple[list[tuple[str, list[str]]], Path]:
    """Write both sets; names and source lines of all, the joined one last, and its source."""
    from nmt.recipes.testsets import build

    if len(options.sources) != len(options.references):
        counts = f"{len(options.sources)} sources, but {len(options.references)} references"
        raise UserError(f"{counts}; give as many", Exit.USAGE)
    pairs = list(zip(options.sources, options.references, strict=True))
    for source, reference in pairs:
        if _plain(source).stem != _plain(reference).stem:
            log.warning("%s and %s: taken for one test set", source, reference)
    built = build(
        [(_plain(source).stem, source, reference) for source, reference in pairs],
        options.directory,
        *_languages(options, options.sources, options.references),
        options.k,
        (options.name, options.joined_name),
    )
    _log_written((*built.whole, *built.joined))
    sets = [(portion.name, portion.sources) for portion in built.portions]
    whole = [line for _, sources in sets for line in sources]
    listed = [*sets, (options.name, whole), (options.joined_name, built.lines.sources)]
    return listed, built.joined[0]


def _join(options: argparse.Namespace) -> tuple[list[tuple[str, list[str]]], Path]:
    """Write the joined set; names and source lines of the set that was read, and of the new."""
    from nmt.data import joined
    from nmt.recipes.testsets import document_numbers, read

    sources, references = read(options.source, options.reference)
    inputs, more = [options.source, options.reference], {}
    numbers = None
    if options.documents:
        numbers = document_numbers(options.documents, len(sources))
        inputs.append(options.documents)
        more = {"documents": len(set(numbers))}
        log.info("%d documents", more["documents"])
    lines = joined.join(sources, references, options.k, numbers)
    about = joined.described(inputs, options.k, **more)
    languages = _languages(options, [options.source], [options.reference])
    written = joined.write(options.directory, options.name, *languages, lines, about)
    _log_written(written)
    return [(_plain(options.source).name, sources), (options.name, lines.sources)], written[0]


def _log_written(paths: Sequence[Path]) -> None:
    for path in paths:
        log.info("wrote %s", path)


def _plain(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz"))


def _languages(
    options: argparse.Namespace, sources: Sequence[Path], references: Sequence[Path]
) -> tuple[str, str]:
    """The languages as given, or as all names end; UserError where they do not say."""
    languages = []
    for option, code, paths in (
        ("--source-language", options.source_language, sources),
        ("--target-language", options.target_language, references),
    ):
        endings = {_plain(path).suffix.removeprefix(".") for path in paths}
        if code is None and (len(endings) > 1 or "" in endings):
            raise UserError(
                f"{', '.join(map(str, paths))}: the names do not end in one language; "
                f"give {option} CODE",
                Exit.USAGE,
            )
        languages.append(code or endings.pop())
    return languages[0], languages[1]


def _measure(model: str | None) -> tuple[Callable[[str], int], str]:
    """How long a source is, and in which unit: words, or pieces of a model."""
    if model is None:
        return (lambda line: len(line.split())), WORDS
    from nmt import modeldir  # torch takes seconds to import

    trained = modeldir.load(model)
    segmenter = trained.source.segmenter
    longest = trained.facts["longest_source"]
    known = "of unknown length" if longest is None else f"of up to {longest}"
    unit = f"subword pieces of {model} (trained on sources {known})"
    return (lambda line: len(segmenter.encode(line))), unit


if __name__ == "__main__":
    sys.exit(main())
