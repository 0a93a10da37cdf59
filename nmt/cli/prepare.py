"""nmt-prepare: segment, filter and store a corpus, and report what was dropped."""

import sys

from nmt import __version__
from nmt.cli import help
from nmt.cli.command import run
from nmt.cli.help import Manual
from nmt.cli.parser import once

MANUAL = Manual(
    "nmt-prepare",
    """
nmt-prepare [data=OPTION] [segmenter=OPTION] [KEY=VALUE ...]
nmt-prepare --version

  nmt-prepare                                     the embedded corpus
  nmt-prepare data=multi30k data.root=my/multi30k segmenter.merges=8000
  nmt-prepare data=files data.root=corpus segmenter=unigram data.workers=8

nmt-train does this by itself where it is missing; the same arguments find the same store again.
All keys of nmt-train may be given; only data.* and segmenter.* matter here.
""",
    groups=("data", "segmenter"),
)


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Prepare the corpus that the arguments name; print where it lies and what was dropped."""
    if help.asked_for(argv):
        sys.stdout.write(help.shown(MANUAL, argv))
        return
    if "--version" in argv:
        sys.stdout.write(f"nmt {__version__}\n")
        return
    from nmt import corpus
    from nmt.data.prepare import report
    from nmt.data.report import describe
    from nmt.overrides.compose import experiment_of

    once(argv)
    settings = experiment_of(argv).settings
    prepared = corpus.prepare(settings)
    sys.stdout.write(f"{describe(report(prepared.path))}\n{prepared.path}\n")


if __name__ == "__main__":
    sys.exit(main())
