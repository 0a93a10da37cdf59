"""nmt-prepare: segment, filter and store a corpus, and report what was dropped."""

import sys
from functools import partial

from nmt.cli import help
from nmt.cli.command import run
from nmt.cli.help import Manual

MANUAL = Manual(
    "nmt-prepare",
    """
nmt-prepare [data=OPTION] [segmenter=OPTION] [KEY=VALUE ...]
nmt-prepare --version

  nmt-prepare                                     the embedded corpus
  nmt-prepare data=multi30k data.root=my/multi30k segmenter.merges=8000
  nmt-prepare data=files data.root=corpus segmenter=unigram data.workers=8

nmt-train does this first if it has not been done. A corpus that is already prepared with the same
arguments is used again. All keys of nmt-train are accepted; only data.*, segmenter.* and
trainer.init_from matter.
""",
    groups=("data", "segmenter"),
)


def command(argv: list[str]) -> None:
    """Prepare the corpus that the arguments name; print where it lies and what was dropped."""
    options = help.make_parser(MANUAL).parse_intermixed_args(argv)
    if help.show_help(MANUAL, options):
        return
    from nmt.config.hydra_conf import lines_of
    from nmt.corpus.report import describe, log_counts
    from nmt.parent import experiment_of
    from nmt.training import corpus

    overrides = lines_of(help.parse_overrides(options))
    prepared = corpus.prepare(experiment_of(overrides).settings)
    log_counts(prepared.report)
    sys.stdout.write(f"{describe(prepared.report)}\n{prepared.path}\n")


main = partial(run, command)  # the console script

if __name__ == "__main__":
    sys.exit(main())
