"""nmt-compare: train every encoding at one budget, and rank them by source length."""

import json
import logging
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli.parser import Parser, once
from nmt.cli.words import run
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.experiments.processes import cores

if TYPE_CHECKING:
    from nmt.compare.ranking import MissingSystem, Ranking
    from nmt.data.prepare import Prepared
    from nmt.experiments.run import Entrant, Test

log = logging.getLogger(__name__)

USAGE = """nmt-compare encoding=all|A,B,... [--runs DIR] [OPTION ...] [KEY=VALUE ...]"""
ABOUT = """
Trains one model per encoding, several at once, translates the test set with each, and ranks them
by the longest sources in one table. KEY=VALUE are words of nmt-train, the same for all:

  nmt-compare encoding=all experiment=compare --runs runs/all --table all.md --plot all.png
  nmt-compare encoding=relative,[absolute,relative],lstm experiment=compare

The same command again goes on where it stopped, and does nothing twice. A run that fails does not
stop the others: it is named below the table, and the exit code says so.
"""
SEED = 12345  # of the bootstrap, as in nmt-evaluate
SOURCE, REFERENCE = "source", "reference"  # whose lengths the buckets hold
EVERY = "all"  # encoding=all


class Asked(NamedTuple):
    """What the words of the command line say."""

    runs: Path
    jobs: int
    bounds: list[int]
    metric: str
    lengths: str
    samples: int
    json: Path | None
    table: Path | None
    plot: Path | None
    encodings: list[str]  # values of encoding=
    words: list[str]  # of nmt-train, for all
    lenient: bool  # encoding=all: what cannot be is left out, and said


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Plan, train, translate, score, show; then say what failed."""
    asked = understood(argv)
    outputs.prepare([asked.json, asked.table], asked.plot)
    from nmt.experiments import run as contest

    entrants, left_out = contest.plan(asked.encodings, asked.words, asked.runs, asked.lenient)
    if not entrants:
        raise UserError(f"no encoding fits: {left_out[0].label}: {left_out[0].why}")
    for each in left_out:
        log.warning("%s: left out: %s", each.label, each.why)
    test, corpora = contest.prepared(entrants)
    log.info("%d encodings, %d at once; models and logs: %s", *_counts(entrants, asked), asked.runs)
    failed = contest.train_all(entrants, corpora, asked.jobs)
    trained = _without(entrants, failed)
    translations, lost = contest.translate_all(trained, test, asked.jobs)
    failed += lost
    if scored := _without(trained, lost):
        log.info("scoring")
        command_line = shlex.join(["nmt-compare", *argv])
        made = ranking(
            asked, scored, test, corpora, translations, [*failed, *left_out], command_line
        )
        _keep(asked, made)
    if failed:
        told = "; ".join(f"{each.label}: {each.why}; see {each.log}" for each in failed)
        raise UserError(f"{len(failed)} of {len(entrants)} encodings failed: {told}", Exit.DIVERGED)


def _counts(entrants: list["Entrant"], asked: Asked) -> tuple[int, int]:
    return len(entrants), min(asked.jobs, len(entrants))


def _without(entrants: list["Entrant"], missing: list["MissingSystem"]) -> list["Entrant"]:
    lost = {each.label for each in missing}
    return [entrant for entrant in entrants if entrant.name not in lost]


def understood(argv: list[str]) -> Asked:
    """Read the words; raises UserError, or SystemExit as argparse does."""
    parser = Parser(
        prog="nmt-compare",
        usage=USAGE,
        description=ABOUT,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="KEY=VALUE", help="encoding=..., and words of nmt-train")
    add("--runs", default="runs/compare", metavar="DIR", help="of the models (%(default)s)")
    add("--jobs", type=int, default=cores(), metavar="N", help="processes (default: one per core)")
    add("--bounds", default="25,50,75", help="last length of each bucket (default %(default)s)")
    add(
        "--lengths",
        choices=(SOURCE, REFERENCE),
        default=SOURCE,
        help="whose lengths; default source",
    )
    add("--metric", default="BLEU", help="one of those of nmt-evaluate (default %(default)s)")
    add("--samples", type=int, default=1000, metavar="N", help="of the bootstrap (default 1000)")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    add("--table", type=Path, metavar="FILE", help="write the table as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw it: .png, .svg or .pdf")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    given = parser.parse_intermixed_args(argv)
    if given.jobs < 1 or given.samples < 40:
        raise UserError("--jobs must be at least 1, and --samples at least 40")
    from nmt.compare.buckets import parse_bounds
    from nmt.compare.scores import parse_names

    metrics = parse_names(given.metric) or []
    if len(metrics) != 1:
        raise UserError(f"--metric {given.metric}: give one; --json has BLEU and exact as well")
    encodings, words = _encodings(given.words, given.config_dir)
    own = {
        key: getattr(given, key) for key in ("jobs", "lengths", "samples", "json", "table", "plot")
    }
    return Asked(
        **own,
        runs=Path(given.runs),
        bounds=parse_bounds(given.bounds),
        metric=metrics[0],
        encodings=encodings,
        words=words,
        lenient="encoding=all" in given.words,
    )


def _encodings(given: list[str], config_dir: str | None) -> tuple[list[str], list[str]]:
    """The encodings to compare, and the words that all share."""
    from nmt.experiments.run import choices
    from nmt.overrides.options import beside, folders_of, options_of
    from nmt.overrides.quoting import split

    flags, words = split([*beside(config_dir), *given])
    if flags:
        raise UserError(f"{flags[0]}: no such option; see --help")
    once(words)
    for word in given:
        if word.startswith(("runs=", "name=")):
            raise UserError(f"{word}: each run has its own; use --runs DIR")
    named = [word.partition("=")[2] for word in words if word.startswith("encoding=")]
    if len(named) != 1 or not named[0]:
        raise UserError("encoding=: say once what to compare, encoding=all or encoding=A,B,C")
    rest = [word for word in words if not word.startswith("encoding=")]
    if named[0] != EVERY:
        return choices(named[0]), rest
    return options_of("encoding", folders_of(rest) or ()), rest


def ranking(
    asked: Asked,
    entrants: list["Entrant"],
    test: "Test",
    corpora: dict[str, "Prepared"],
    translations: dict[str, list[str]],
    missing: list["MissingSystem"],
    command_line: str,
) -> "Ranking":
    """Score all translations and put beside them what is known of the models."""
    from nmt.compare.ranking import EXACT, Ranking
    from nmt.compare.report import Report
    from nmt.compare.scoring import BLEU, Bootstrap, TranslatedTest, score
    from nmt.config import freeze
    from nmt.data.corpus import read_text
    from nmt.experiments import run as contest

    sources, references = read_text(test.source), read_text(test.reference)
    first = entrants[0]
    language = first.asked.settings.data.target_language
    segmenter = corpora[first.name].source.segmenter
    if asked.lengths == SOURCE:
        lengths = [len(segmenter.encode(line)) for line in sources]
        unit = "subword pieces of the source"
    else:
        lengths, unit = [len(line.split()) for line in references], "words of the reference"
    longest = [_longest(asked, corpora[e.name], segmenter.to_json()) for e in entrants]
    translated = TranslatedTest(
        references=references,
        hypotheses=[[translations[e.name]] for e in entrants],
        language=language,
        sources=sources,
        lengths=lengths,
        unit=unit,
        longest_trained=longest,
        metrics=list(dict.fromkeys([asked.metric, BLEU, EXACT])),
    )
    report = Report(
        systems=[
            contest.compared(e, corpora[e.name], limit)
            for e, limit in zip(entrants, longest, strict=True)
        ],
        tests=[score(translated, Bootstrap(asked.bounds, asked.samples, SEED))],
        samples=asked.samples,
        seed=SEED,
        date=date.today().isoformat(),
        command=command_line,
        notes=contest.caption(first.asked.settings, asked.jobs),
        about={
            **outputs.sources({"reference": test.reference, "source": test.source}),
            "settings": {e.name: freeze(e.asked.settings) for e in entrants},
        },
    )
    return Ranking(report, asked.metric, missing)


def _longest(asked: Asked, corpus: "Prepared", counted: dict[str, Any]) -> int | None:
    """The longest source in training, if it was counted in the same pieces as the test's."""
    same = corpus.source.segmenter.to_json() == counted
    return int(corpus.facts["longest_source"]) if asked.lengths == SOURCE and same else None


def _keep(asked: Asked, made: "Ranking") -> None:
    """Write the files that were asked for, then the table, whose reader may go away."""
    from nmt.compare import heatmap, text

    if asked.json:
        plain = json.dumps(made.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        outputs.write(asked.json, f"{plain}\n".encode())
    if asked.table:
        outputs.write(asked.table, text.markdown(made).encode())
    if asked.plot:
        try:
            heatmap.draw(made, asked.plot)
        except OSError as error:
            raise UserError(f"{asked.plot}: {error.strerror}", Exit.CANT_CREATE) from None
    sys.stdout.write(text.ranking(made))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
