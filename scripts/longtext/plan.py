"""The runs of docs/longtext/plan.md, part by part."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from nmt import preflight
from nmt.errors import Exit, UserError
from nmt.experiments.plan import PlannedRun
from nmt.overrides.compose import experiment_of
from scripts.longtext import records

RECORDS = Path("docs/longtext/records")
PAPER = ("absolute", "relative", "relative_sinusoidal", "relative_key", "relative_absolute", "lstm")
ENCODINGS = (
    *(*PAPER, "rotary", "alibi_directional", "t5", "none"),
    *("rr_transformer", "tupe_relative"),  # best and worst of the single-seed table
)
ON_SCAN = ("absolute", "transformer_xl")
ON_MANUALS = ("absolute", "relative", "relative_sinusoidal", "rotary", "alibi_directional", "lstm")
REMEDIES = ("absolute", "rotary", "alibi_directional")
SHARES = ("0", "0.25", "0.5")  # of joined lines
RATES = ("1e-3", "2e-3", "4e-3")
SEED_OF_RATES = 11  # no other run has it
GRAMMAR, SCAN, MANUALS, REMEDY = "A", "B", "C", "D"
AS_PARENT = (  # how scale=small trains
    *("trainer.device=cpu", "trainer.precision=bfloat16", "trainer.threads=1"),
    *("trainer.batch_tokens=2500", "trainer.checkpoints_per_epoch=1", "trainer.tensorboard=false"),
)
CONTRASTS = (  # the second is the baseline
    ("relative", "absolute"),
    ("rotary", "absolute"),
    ("relative_sinusoidal", "relative"),
    ("alibi_directional", "rotary"),
)
KEPT = "absolute"  # in D: the parents' encoding
LONGEST = {GRAMMAR: 48, MANUALS: 50, REMEDY: 50}  # pieces of a source in training, of D's parents


class Folders(NamedTuple):
    """Where runs go, where their records lie, and where text is."""

    runs: Path
    records: Path
    manuals: Path | None = None
    scan: Path | None = None


class TrainingRun(NamedTuple):
    """One training run of the plan."""

    part: str
    name: str  # of its directory and its record
    encoding: str
    seed: int
    overrides: tuple[str, ...]  # without places
    parent: "TrainingRun | None" = None  # whose weights it goes on from

    @property
    def label(self) -> str:
        """Of the system, all of whose runs differ in their seeds alone."""
        return self.name.removesuffix(f"-seed{self.seed}")

    def record(self, folders: Folders) -> Path:
        """The file that it leaves."""
        return folders.records / self.part / f"{self.name}.npz"

    def is_finished(self, folders: Folders) -> bool:
        """Whether it left its record; raises UserError (65) for that of other overrides."""
        if not (path := self.record(folders)).exists():
            return False
        if (trained := records.read(path).about["overrides"]) != list(self.overrides):
            raise UserError(
                f"{path}: of a run with {' '.join(trained)}; the plan has "
                f"{' '.join(self.overrides)}; move it away to train that",
                Exit.DATA,
            )
        return True


class Part(NamedTuple):
    """The runs of one part, as far as they are known."""

    name: str
    hours: float  # of one core, as the plan has them
    planned: int  # runs, in all
    runs: list[TrainingRun]


def parts(folders: Folders) -> list[Part]:
    """All parts, in the order in which they are trained; what A has follows from the rates."""
    rates = [rate_run(name, rate) for name in ENCODINGS for rate in RATES]
    chosen = [(name, rate) for name in ENCODINGS if (rate := best_rate(folders, name))]
    grammar = [grammar_run(*pair, seed) for seed in (1, 2, 3) for pair in chosen]
    scan = [scan_run(name, seed) for seed in (1, 2) for name in ON_SCAN]
    manuals = [manuals_run(name, seed) for seed in (1, 2) for name in ON_MANUALS]
    parents = [run for run in manuals if run.encoding == KEPT]
    remedies = [remedy_run(*kind) for kind in product(parents, REMEDIES, SHARES)]
    return [
        Part("rates", 2.0, 36, rates),
        Part(GRAMMAR, 8.0, 36, grammar),
        Part(SCAN, 4.0, 4, scan),
        Part(MANUALS, 9.0, 12, manuals),
        Part(REMEDY, 3.0, 18, remedies),
    ]


def rate_run(encoding: str, rate: str) -> TrainingRun:
    """The short run by which an encoding's rate is chosen."""
    words = "experiment=longtext", f"encoding={encoding}", f"optim.lr={rate}"
    short = "trainer.max_steps=800", "trainer.early_stopping=0"
    name = f"{encoding}-seed{SEED_OF_RATES}"
    return TrainingRun(f"rates-{rate}", name, encoding, SEED_OF_RATES, (*words, *short))


def grammar_run(encoding: str, rate: str, seed: int) -> TrainingRun:
    """A run on the embedded grammar, until it stalls."""
    words = "experiment=longtext", f"encoding={encoding}", f"optim.lr={rate}"
    return TrainingRun(GRAMMAR, f"{encoding}-seed{seed}", encoding, seed, words)


def scan_run(encoding: str, seed: int) -> TrainingRun:
    """A run on SCAN, with one layer's weights in all."""
    words = "experiment=scan", f"encoding={encoding}", "model.share_layers=true"
    long = "trainer.max_steps=20000"
    return TrainingRun(SCAN, f"{encoding}-seed{seed}", encoding, seed, (*words, long))


def manuals_run(encoding: str, seed: int) -> TrainingRun:
    """A run on the manuals."""
    words = "scale=small", "data.name=manuals", "trainer.device=cpu", f"encoding={encoding}"
    return TrainingRun(MANUALS, f"{encoding}-seed{seed}", encoding, seed, words)


def remedy_run(parent: TrainingRun, encoding: str, share: str) -> TrainingRun:
    """A run that goes on from a parent on lines of which some share is joined."""
    name = f"{encoding}-share{share}-seed{parent.seed}"
    words = ["experiment=lengthen", "trainer.max_steps=450", "data.max_length=50", f"name={name}"]
    words += AS_PARENT
    joined = ["data.join=4", "data.join_length=200", f"data.join_share={share}"]
    words += ["data.join=1"] if share == "0" else joined
    words += [] if encoding == KEPT else [f"encoding={encoding}", "optim.lr=1e-3"]
    return TrainingRun(REMEDY, name, encoding, parent.seed, tuple(words), parent)


def best_rate(folders: Folders, encoding: str) -> str | None:
    """The rate with the least dev perplexity of an encoding; None until all have been tried."""
    tried = rate_perplexities(folders, encoding)
    return RATES[tried.index(min(tried))] if tried else None


def rate_perplexities(folders: Folders, encoding: str) -> list[float]:
    """The least dev perplexity with each rate; none until all have been tried."""
    tried = [rate_run(encoding, rate) for rate in RATES]
    if not all(run.is_finished(folders) for run in tried):
        return []
    return [float(records.read(run.record(folders)).about["dev_perplexity"]) for run in tried]


def composed(folders: Folders, run: TrainingRun) -> PlannedRun:
    """A run with all its settings, checked; its parent must lie in its directory."""
    words = [*run.overrides, f"seed={run.seed}"]
    words += [f"runs={folders.runs / run.part}", f"data.cache={folders.runs / 'cache'}"]
    if run.parent is not None:
        words.append(f"parent={composed(folders, run.parent).directory}")
    elif run.part in (SCAN, MANUALS):
        words.append(f"data.root={folders.scan if run.part == SCAN else folders.manuals}")
    experiment = experiment_of(words)
    preflight.check(experiment.settings)
    return PlannedRun(f"{run.part}/{run.name}", experiment)


def has_text(folders: Folders, part: str) -> bool:
    """Whether a part's text was named."""
    needed = {SCAN: folders.scan, MANUALS: folders.manuals, REMEDY: folders.manuals}
    return needed.get(part, folders.runs) is not None


def remaining(folders: Folders, found: Sequence[Part]) -> Iterator[str]:
    """How many runs and hours each part has left."""
    total = 0.0
    for part in found:
        done = sum(run.is_finished(folders) for run in part.runs)
        hours = part.hours * (1 - done / part.planned)
        total += hours
        without = "" if has_text(folders, part.name) else "; its text was not named"
        yield (
            f"{part.name:5} {done:2} of {part.planned} runs, {hours:4.1f} hours of a core left"
            f"{without}"
        )
    yield f"{total:.1f} hours of a core left"
