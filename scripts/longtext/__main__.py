"""LONGTEXT: train the runs of docs/longtext/plan.md that have left no record.

    python -m scripts.longtext runs/longtext --manuals DIR --scan DIR

The same command goes on where it stopped. --list says how many hours are left, and trains nothing.
--manuals has train, dev and test text (.de, .en), --scan what `scripts/scan.py --longest 26`
writes; without one, its parts wait. Another --records directory begins the experiment anew.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli import command as commands
from nmt.experiments.plan import FailedRun, PlannedRun, failure_error, prepare_corpora
from nmt.experiments.processes import LoggedCommand, exit_reason, last_line, run_all
from nmt.experiments.run import parallel_runs, progress, train_all
from scripts.longtext import plan
from scripts.longtext.plan import LONGEST, RECORDS, Folders, TrainingRun, composed
from scripts.longtext.texts import tests_of


def main(argv: list[str] | None = None) -> int:
    """The script; returns the exit code."""
    return commands.run(command, argv)


def command(argv: list[str]) -> None:
    """Say what is left, and train it, part by part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="directory of the runs")
    parser.add_argument("--manuals", type=Path, metavar="DIR", help="text of parts C and D")
    parser.add_argument("--scan", type=Path, metavar="DIR", help="text of part B")
    parser.add_argument("--records", type=Path, metavar="DIR", default=RECORDS)
    names = "rates", plan.GRAMMAR, plan.SCAN, plan.MANUALS, plan.REMEDY
    parser.add_argument("--part", action="append", choices=names, help="only this; may come twice")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    asked = parser.parse_args(argv)
    folders = Folders(asked.runs, asked.records, asked.manuals, asked.scan)
    found = plan.parts(folders)
    sys.stdout.write("".join(f"{line}\n" for line in plan.remaining(folders, found)))
    sys.stdout.flush()
    for number, part in enumerate(found):
        wanted = asked.part is None or part.name in asked.part
        if wanted and not asked.list and plan.has_text(folders, part.name):
            train(folders, plan.parts(folders)[number].runs)  # what A has follows from the rates


def train(folders: Folders, runs: Sequence[TrainingRun]) -> None:
    """Train the runs that left no record, and before them their parents.

    Raises UserError (70) for runs that failed.
    """
    pending = [run for run in runs if not run.is_finished(folders)]
    parents = [run.parent for run in pending if run.parent is not None]
    if parents:
        needed = [composed(folders, parent) for parent in dict.fromkeys(parents)]
        _, failed = train_all(needed, prepare_corpora(needed))
        if failed:
            raise failure_error(failed, len(needed))
    planned = {f"{run.part}/{run.name}": (run, composed(folders, run)) for run in pending}
    if not planned:
        return
    prepare_corpora([run for _, run in planned.values()])
    commands = [process(folders, *pair) for pair in planned.values()]
    directories = {name: run.directory for name, (_, run) in planned.items()}
    at_once = parallel_runs([run for _, run in planned.values()])
    codes = run_all(commands, at_once, lambda name: progress(directories[name]))
    failed = [
        FailedRun(command.name, f"{exit_reason(code)}: {last_line(command.log)}", command.log)
        for command in commands
        if (code := codes[command.name])
    ]
    if failed:
        raise failure_error(failed, len(planned))


def process(folders: Folders, run: TrainingRun, planned: PlannedRun) -> LoggedCommand:
    """The process that trains a run and leaves its record."""
    planned.directory.parent.mkdir(parents=True, exist_ok=True)
    tests = [f"{t.name}={t.source},{t.reference}" for t in tests_of(folders, run.part, planned)]
    about = [str(run.record(folders)), " ".join(run.overrides), str(LONGEST.get(run.part, 0))]
    arguments = [*about, ";".join(tests), *planned.experiment.overrides]
    return LoggedCommand(planned.name, arguments, planned.log, module="scripts.longtext.one")


if __name__ == "__main__":
    sys.exit(main())
