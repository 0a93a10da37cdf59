"""One run of the plan, as a process of its own: train it, and leave its record.

    python -m scripts.longtext.one RECORD PLANNED LONGEST TESTS OVERRIDES...

PLANNED: its overrides in the plan, without places, separated by spaces. LONGEST: pieces of a source
in training, 0 where nothing is lost by length. TESTS: NAME=SRC,REF;NAME=SRC,REF.
"""

import sys
from pathlib import Path

import nmt
from nmt.cli.command import run
from nmt.experiments.testsets import parse_test
from scripts.longtext import records
from scripts.longtext.measure import record_of


def command(argv: list[str]) -> None:
    """Train where the run is not finished, translate, count, write the record."""
    path, planned, longest, tests, *overrides = argv
    experiment = nmt.compose(overrides)
    nmt.train(experiment)  # nmt-train also compares with a parent, which nobody keeps
    files = [parse_test(test) for test in tests.split(";") if test]
    record = record_of(experiment.run, files, int(longest) or None)
    record.about["overrides"] = planned.split(" ")
    records.write(Path(path), record)


if __name__ == "__main__":
    sys.exit(run(command))
