"""Test sets translated by finished runs, and kept in their directories with a record.

DIRECTORY/translations/NAME.txt are the translations of the test set NAME, NAME.json beside them
says what they were made from, and NAME.log what nmt-translate said.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt import __version__, atomic, manifest, modeldir, modelpath
from nmt.compare.ranking import MissingSystem
from nmt.config import freeze
from nmt.data.corpus import read_text
from nmt.decode.workers import can_fork
from nmt.errors import Exit, UserError
from nmt.experiments.columns import columns_argument, columns_of_test
from nmt.experiments.outputs import check_places
from nmt.experiments.plan import PlannedRun
from nmt.experiments.processes import LoggedCommand, exit_reason, gpus, last_line, run_all
from nmt.experiments.testsets import ParallelFiles

TRANSLATIONS = "translations"  # in a run directory
TEXT = "text"  # in the record of translations: their SHA-256


class KeptTranslation(NamedTuple):
    """A test set as one run translates it, and where that is kept."""

    run: PlannedRun
    test: ParallelFiles

    @property
    def text(self) -> Path:
        """Where the translations lie."""
        return self.run.directory / TRANSLATIONS / f"{self.test.name}.txt"

    @property
    def record(self) -> Path:
        """What they were made from."""
        return self.text.with_name(f"{self.test.name}.json")

    @property
    def log(self) -> Path:
        """The output of the process that made them."""
        return self.text.with_name(f"{self.test.name}.log")


def translate_all(
    translations: Sequence[KeptTranslation], at_once: int
) -> tuple[dict[tuple[Path, str], list[str]], list[tuple[KeptTranslation, MissingSystem]]]:
    """Translate test sets, each in a process; lines by run directory and test, and what failed.

    They are made anew only if the checkpoint, the text, the search or this program has changed.
    Raises UserError: 65 if somebody changed the translations, 73 where none can be kept.
    """
    origins = [_origin(each) for each in translations]
    pending = [
        (each, origin)
        for each, origin in zip(translations, origins, strict=True)
        if _recorded_origin(each) != origin
    ]
    check_places([each.text for each, _ in pending])
    names = _process_names([each for each, _ in pending])
    commands = []
    workers = max(1, at_once // max(1, len(pending)))  # of each: cores that would be idle
    for name, (each, _) in zip(names, pending, strict=True):
        each.text.parent.mkdir(exist_ok=True)
        each.record.unlink(missing_ok=True)
        commands.append(LoggedCommand(name, "translate", _arguments(each, workers), each.log))
    codes = run_all(commands, at_once, lambda name: "translating") if commands else {}
    missing = []
    for name, (each, origin) in zip(names, pending, strict=True):
        if code := codes[name]:
            why = f"translation failed ({exit_reason(code)}): {last_line(each.log)}"
            missing.append((each, MissingSystem(each.run.name, why, str(each.log))))
        else:
            record = {**origin, TEXT: _sha256(each.text)}
            atomic.replace(each.record, manifest.dump(record))
    lost = [each for each, _ in missing]
    lines = {
        (each.run.directory, each.test.name): read_text(each.text)
        for each in translations
        if each not in lost
    }
    return lines, missing


def _arguments(translation: KeptTranslation, workers: int) -> list[str]:
    """Of nmt-translate; `workers` are its processes, or 1.

    On a CPU all of them have one thread: on a busy machine, threads of one process wait for each
    other at every product, which can take a hundred times as long.
    """
    run, test = translation.run, translation.test
    on_cpu = run.settings.trainer.device == "cpu" or not gpus()
    processes = ["--workers", str(workers)] if on_cpu and can_fork() else []
    return [
        *(str(modelpath.locate(run.directory)), str(test.source), "-o", str(translation.text)),
        *("--threads", str(workers), *processes, "--device", run.settings.trainer.device),
        *columns_argument(columns_of_test(run.settings)),
        *["--by-sentence"] * test.by_sentence,
        *(f"decode.{key}={value}" for key, value in vars(run.settings.decode).items()),
    ]


def _process_names(translations: Sequence[KeptTranslation]) -> list[str]:
    """A name for each: the run's where that tells them apart, else with test, or directory."""
    for names in (
        [each.run.name for each in translations],
        [f"{each.run.name} {each.test.name}" for each in translations],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{each.run.directory} {each.test.name}" for each in translations]


def _origin(translation: KeptTranslation) -> dict[str, Any]:
    """All that a translation depends on."""
    run, test = translation.run, translation.test
    checkpoint, sha256 = modeldir.reading(
        run.directory, lambda model: (model.name, _sha256(model / manifest.NAME))
    )
    return {
        "checkpoint": checkpoint,
        "manifest": sha256,
        "source": _sha256(test.source),
        "columns": {n: _sha256(Path(path)) for n, path in columns_of_test(run.settings).items()},
        "decode": freeze(run.settings)["decode"],
        "version": __version__,
        **({"by_sentence": True} if test.by_sentence else {}),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _recorded_origin(translation: KeptTranslation) -> Any:
    """What the translations that lie there were made from; None if there are none.

    Raises UserError (65) if somebody changed them: they are neither scored nor overwritten.
    """
    if not (translation.record.exists() and translation.text.exists()):
        return None
    try:
        record = manifest.parse(translation.record.read_bytes(), translation.record)
    except UserError:
        return None  # damaged: translate again
    if not isinstance(record, dict) or TEXT not in record:
        return None
    if record.pop(TEXT) != _sha256(translation.text):
        raise UserError(
            f"{translation.text}: not as nmt-translate wrote it; move it away to translate again",
            Exit.DATA,
        )
    return record
