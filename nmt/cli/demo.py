"""nmt-demo: the whole job on the embedded corpus, two encodings side by side by length."""

import shlex
import sys
from pathlib import Path

from nmt.cli.command import run
from nmt.cli.parser import TRAINING, Parser, once
from nmt.cli.streams import deliver
from nmt.data.parallel import cores
from nmt.experiments import outputs

USAGE = """nmt-demo [--runs DIR] [--encodings A,B] [--config-dir DIR] [KEY=VALUE ...]"""
ABOUT = """
Trains one model per encoding on sentences of 4 to 50 words at the same budget, translates
sentences of up to 100, and compares the systems by length: a table on stdout, and beside the
models comparison.json and comparison.png. The same command again resumes.
"""
BOUNDS = (25, 50, 75)  # the training sentences end at 50


def main(argv: list[str] | None = None) -> int:
    """The console script; returns the exit code."""
    return run(command, argv)


def command(argv: list[str]) -> None:
    """Train, compare, and say where everything lies."""
    parser = Parser(prog="nmt-demo", usage=USAGE, description=ABOUT, groups=TRAINING)
    add = parser.add_argument
    add("--runs", type=Path, default=Path("runs/demo"), help="directory of the models")
    add("--encodings", default="absolute,relative", help="options, commas between")
    add("--config-dir", metavar="DIR", help="also look for options in DIR")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="further overrides of nmt-train")
    options = parser.parse_args(argv)
    once(options.overrides)
    from nmt.compare import plot, text
    from nmt.experiments import plan, testsets
    from nmt.experiments.evaluate import EvaluationOptions, NamedSystem, evaluate
    from nmt.experiments.run import train_all
    from nmt.overrides.options import beside

    json, picture = options.runs / "comparison.json", options.runs / "comparison.png"
    outputs.check_places([json], picture)
    overrides = ["experiment=demo", *beside(options.config_dir), *options.overrides]
    runs, _ = plan.plan_encodings(plan.choices(options.encodings), overrides, options.runs)
    corpora = plan.prepare_corpora(runs)
    test = testsets.shared(runs, corpora, "test")
    if missing := train_all(runs, plan.fingerprints(corpora), cores()):
        raise plan.failure(missing, len(runs), "runs")
    systems = [NamedSystem(run.name, run.directory) for run in runs]
    arguments = [f"{system.label}={system.path}" for system in systems]
    arguments += ["--source", str(test.source), "--reference", str(test.reference)]
    arguments += ["--bounds", ",".join(map(str, BOUNDS)), "--json", str(json)]
    same = shlex.join(["nmt-evaluate", *arguments, "--plot", str(picture)])
    sys.stderr.write(f"\n{same}\n\n")
    report = evaluate(systems, test.reference, test.source, EvaluationOptions(bounds=BOUNDS))
    deliver(
        text.blocks(report),
        (json, outputs.of_text(lambda: outputs.as_json(report.to_json()))),
        (picture, lambda path: plot.draw(report, path)),
    )
    sys.stderr.write(f"\nmodels, table and picture: {options.runs}\n")


if __name__ == "__main__":
    sys.exit(main())
