"""nmt-recipe testset: put test sets together, and join their lines into longer ones."""

import argparse
import logging
import re
import sys
from pathlib import Path

from nmt.cli.parser import Parser, integer
from nmt.data.corpus import uncompressed
from nmt.errors import UserError
from nmt.experiments import outputs

log = logging.getLogger(__name__)

USAGE = "nmt-recipe testset DIR --name NAME --source SRC ... --reference REF ... [OPTION ...]"
DESCRIPTION = "Put test sets together, and join their lines into longer ones."
EPILOG = """
Line N of a source and its reference belong together; .gz files are read, too. Several sets become
one, in their order. Each K consecutive lines are joined by one space, also across the borders of
sets (as for concat_seq of Rosendahl et al. 2019), but with --documents only lines of the same
document; -k 1 joins nothing. The last joined line may have fewer sentences. Empty lines stay, as
empty sentences.

NAME.json, next to NAME.de and NAME.en (by the languages), has the SHA-256 of the inputs and the
sentences of each line. If a sentence begins with a small letter or a digit, the Moses
tokeniser leaves the full stop before it attached to its word, which no training line does. The
number of joined lines that it tokenises differently from their sentences is printed and recorded.
--by-sentence of nmt-translate and nmt-evaluate (by_sentence=true of nmt-train experiment=table3)
segments each sentence separately instead. stdout has the lines of each set.

  nmt-recipe testset sets --name newstest_all -k 1 --source *.de --reference *.en
  nmt-recipe testset sets --name concat_seq --source test.de --reference test.en"""


def command(argv: list[str]) -> None:
    """Read, join, write, count."""
    options = parse_arguments(argv)
    from nmt.recipes import testsets

    outputs.check_writable([], directories=[options.directory])
    pairs = []
    for source, reference in zip(options.sources, options.references, strict=True):
        pairs.append((uncompressed(source).stem, source, reference))
        if uncompressed(reference).stem != pairs[-1][0]:
            log.warning("%s and %s: taken for one test set", source, reference)
    place = options.directory, _languages(options), options.name
    written = testsets.join_sets(pairs, *place, options.k, options.documents)
    for text in written.texts:
        log.info("wrote %s", text)
    sys.stdout.writelines(f"{name}: {count:,} lines\n" for name, count in written.lines.items())
    sys.stdout.write(tokenisation_difference(written.texts[0], written.lines[options.name]))


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The options; raises UserError, or SystemExit as argparse does."""
    parser = Parser("nmt-recipe testset", usage=USAGE, description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="where the set is written")
    add("--name", required=True, help="of the files: NAME.de, NAME.en, NAME.json")
    for name, plural, value, what in (
        ("--source", "sources", "SRC", "test sets, in their order"),
        ("--reference", "references", "REF", "as the sources"),
    ):
        add(name, dest=plural, metavar=value, nargs="+", required=True, type=Path, help=what)
    add("-k", type=integer(1), default=2, help="lines joined into one (default %(default)s)")
    documents = "name of each line's document, one a line; joins stay inside"
    add("--documents", type=Path, metavar="FILE", help=documents)
    add("--source-language", metavar="CODE", help="default: the ending of the source's name")
    add("--target-language", metavar="CODE", help="default: that of the reference's")
    options = parser.parse_args(argv)
    if not options.name or options.name[0] == "." or re.search(r"[/\\\x00-\x1f]", options.name):
        raise UserError(f"{options.name!r}: no name for a file; give a word without /")
    if len(options.sources) != len(options.references):
        counts = f"{len(options.sources)} sources, but {len(options.references)} references"
        raise UserError(f"{counts}; give as many")
    return options


def tokenisation_difference(source: Path, lines: int) -> str:
    """How many lines of a joined set are tokenised otherwise; nothing where none was joined."""
    from nmt.data.joined import seams

    if not (count := seams(source)):
        return ""
    share = f"{count['lines']:,} of {lines:,} lines ({count['lines'] / lines:.1%})"
    sides = f"{count['source']:,} sources, {count['reference']:,} references"
    return f"{source.stem}: Moses reads {share} otherwise than their sentences: {sides}\n"


def _languages(options: argparse.Namespace) -> tuple[str, str]:
    """The languages as given, or as all names end; UserError where they do not say."""

    languages = []
    for option, code, paths in (
        ("--source-language", options.source_language, options.sources),
        ("--target-language", options.target_language, options.references),
    ):
        endings = {uncompressed(path).suffix.removeprefix(".") for path in paths}
        if code is None and (len(endings) > 1 or "" in endings):
            raise UserError(
                f"{', '.join(map(str, paths))}: the names do not end in one language; "
                f"give {option} CODE"
            )
        languages.append(code or endings.pop())
    return languages[0], languages[1]
