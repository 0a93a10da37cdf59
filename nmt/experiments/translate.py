"""Translations of test sets, made once and kept by content, whatever they are wanted for.

KEY.txt has the translations, and KEY.json beside it says what they were made from: which text,
models, search. They lie in the directory of the run, DIRECTORY/translations, and those of anything
else (a model directory, an ensemble) in the cache. KEY is of all that decides on them, so that
another name of the test set, other outputs or other groups of lengths search nothing again.
"""

import hashlib
import io
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, redirect_stderr
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import __version__, modeldir
from nmt.config import Decode
from nmt.data.corpus import read_text
from nmt.data.seams import JoinedLine
from nmt.errors import Exit, UserError
from nmt.experiments.columns import columns_argument, with_columns
from nmt.experiments.options import CACHE, EvaluationOptions
from nmt.experiments.processes import LoggedCommand, exit_reason, gpus, last_line, run_all
from nmt.experiments.systems import SystemModel, few
from nmt.experiments.testsets import ParallelFiles
from nmt.machine.pool import can_fork
from nmt.storage import atomic, manifest, modelpath

if TYPE_CHECKING:
    from nmt.experiments.engines import LoadedModels

log = logging.getLogger(__name__)

TRANSLATIONS = "translations"  # in a run directory
TEXT = "text"  # in a record: SHA-256 of the translations
NAMED = 16  # digits of a key that name the files


@dataclass(frozen=True)
class KeptTranslation:
    """A test set as one model of a system translates it, and where that is kept."""

    label: str  # of the system
    model: SystemModel
    test: ParallelFiles
    lines: Sequence[str]  # of the test's source
    decode: Decode
    columns: Mapping[str, Path]  # integers beside the source
    cache: Path = CACHE  # of models that are no runs

    @cached_property
    def origin(self) -> dict[str, Any]:
        """All that the translation depends on; raises what `modeldir.load` does."""
        text = hashlib.sha256("".join(f"{line}\n" for line in self.lines).encode()).hexdigest()
        sentences = [line.sentences for line in self.lines if isinstance(line, JoinedLine)]
        return {
            "models": [digest_of(path) for path in self.model.paths],
            "source": text,
            "sentences": hashlib.sha256(manifest.dump(sentences)).hexdigest() if sentences else "",
            "columns": {name: manifest.sha256_of(path) for name, path in self.columns.items()},
            "decode": vars(self.decode),
            "version": __version__,
        }

    @cached_property
    def key(self) -> str:
        """SHA-256 of all that decides on the translation."""
        return hashlib.sha256(manifest.dump(self.origin)).hexdigest()

    def path(self, ending: str) -> Path:
        """The file with the translation (txt), its record (json), or what was said (log)."""
        directory = self.cache if self.model.run is None else self.model.run / TRANSLATIONS
        return directory / f"{self.key[:NAMED]}.{ending}"

    def read(self) -> list[str] | None:
        """The translation; None if there is none.

        Raises UserError (65) if somebody changed it: it is neither scored nor overwritten.
        """
        record, text = self.path("json"), self.path("txt")
        if not (record.is_file() and text.is_file()):
            return None
        try:
            known = manifest.parse(record.read_bytes(), record)
        except UserError:
            return None  # damaged: translate again
        if not isinstance(known, dict) or known.get("key") != self.key:
            return None
        if known.get(TEXT) != manifest.sha256_of(text):
            raise UserError(
                f"{text}: not as nmt-translate wrote it; move it away to translate again",
                Exit.DATA,
            )
        return read_text(text)

    def write(self, lines: Sequence[str] | None = None) -> None:
        """Keep lines, or what nmt-translate has written to the file; raises OSError.

        The record comes last: without it nobody reads the text.
        """
        text = self.path("txt")
        if lines is not None:
            text.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace(text, "".join(f"{line}\n" for line in lines).encode())
        about = {
            "key": self.key,
            TEXT: manifest.sha256_of(text),
            "model": self.model.place,
            "checkpoints": [str(modelpath.locate(path)) for path in self.model.paths],
            "test": self.test.name,
            "file": str(self.test.source),
            "date": date.today().isoformat(),
            "origin": self.origin,
        }
        atomic.replace(self.path("json"), manifest.dump(about))

    @cached_property
    def writable(self) -> bool:
        """Whether the directory takes files; a warning says why not."""
        try:
            atomic.try_place(self.path("txt"))
        except OSError as error:
            where = self.path("txt").parent
            log.warning("%s: %s; translations are not kept", where, error.strerror)
            return False
        return True


def digest_of(path: Path) -> str:
    """SHA-256 of the manifest of a model, which vouches for all its files."""
    return modeldir.reading(path, lambda model: manifest.sha256_of(model / manifest.NAME))


def translate_all(wanted: Sequence[KeptTranslation], options: EvaluationOptions) -> list[list[str]]:
    """The lines of each translation; those that are kept are read, the others are made and kept.

    Raises UserError: 65 if somebody changed what is kept, 70 where a process could not translate,
    and in this process what `Translator.translate` does.
    """
    lines = {each.key: known for each in wanted if (known := each.read()) is not None}
    first = {each.key: each for each in reversed(wanted) if each.key not in lines}
    pending = [each for each in wanted if each is first.get(each.key)]
    if options.jobs > 1 and len(pending) > 1 and all(each.writable for each in pending):
        lines |= _by_processes(pending, options)
    else:
        lines |= _here(pending, options)
    return [lines[each.key] for each in wanted]


def _by_processes(
    pending: Sequence[KeptTranslation], options: EvaluationOptions
) -> dict[str, list[str]]:
    """Translate side by side, each text by an nmt-translate; by key."""
    available = len(gpus()) if options.device != "cpu" else 0
    at_once = min(options.jobs, available or options.jobs)  # one for each GPU
    share = max(1, (options.workers or options.threads or at_once) // len(pending))
    names = _process_names(pending)
    commands = []
    for name, each in zip(names, pending, strict=True):
        each.path("txt").parent.mkdir(parents=True, exist_ok=True)
        each.path("json").unlink(missing_ok=True)
        arguments = _arguments(each, options.device, share)
        commands.append(LoggedCommand(name, "translate", arguments, each.path("log")))
    with redirect_stderr(io.StringIO()) if options.quiet else nullcontext():
        codes = run_all(commands, at_once, lambda name: "translating")
    reasons = []
    for name, each in zip(names, pending, strict=True):
        if code := codes[name]:
            why = f"translation failed ({exit_reason(code)}): {last_line(each.path('log'))}"
            reasons.append(f"{each.model.place}: {why}; see {each.path('log')}")
        else:
            each.write()
    if reasons:
        raise UserError(few(reasons), Exit.DIVERGED)
    return {each.key: read_text(each.path("txt")) for each in pending}


def _arguments(each: KeptTranslation, device: str, workers: int) -> list[str]:
    """Of nmt-translate; `workers` are its processes, or 1.

    On a CPU all of them have one thread: on a busy machine, threads of one process wait for each
    other at every product, which can take a hundred times as long.
    """
    on_cpu = device == "cpu" or not gpus()
    processes = ["--workers", str(workers)] if on_cpu and can_fork() else []
    first, *others = (str(modelpath.locate(path)) for path in each.model.paths)
    return [
        *(first, str(each.test.source), *others, "-o", str(each.path("txt"))),
        *("--threads", str(workers), *processes, "--device", device),
        *columns_argument({name: str(path) for name, path in each.columns.items()}),
        *["--by-sentence"] * each.test.by_sentence,
        *(f"decode.{key}={value}" for key, value in vars(each.decode).items()),
    ]


def _process_names(pending: Sequence[KeptTranslation]) -> list[str]:
    """A name for each: the label where that tells them apart, else with test, or place."""
    for names in (
        [each.label for each in pending],
        [f"{each.label} {each.test.name}" for each in pending],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{each.model.place} {each.test.name}" for each in pending]


def _here(pending: Sequence[KeptTranslation], options: EvaluationOptions) -> dict[str, list[str]]:
    """Translate in this process, one text after the other, with progress; by key."""
    lines: dict[str, list[str]] = {}
    for paths, texts in groupby(pending, key=lambda each: each.model.paths):
        loaded = load(paths, options)
        for each in texts:
            lines[each.key] = _translated(each, loaded, options.quiet)
            try:
                if each.writable:
                    each.write(lines[each.key])
            except OSError as error:  # a full disk
                log.warning("%s: %s; not kept", error.filename, error.strerror)
    return lines


def load(paths: Sequence[Path], options: EvaluationOptions) -> "LoadedModels":
    """The models at these paths, on the device that is wanted."""
    from nmt.experiments import engines
    from nmt.machine import device as devices

    devices.set_threads(options.threads)
    place = str(devices.pick(options.device))
    return engines.load(paths, place, options.threads, workers=options.workers)


def _translated(each: KeptTranslation, loaded: "LoadedModels", quiet: bool) -> list[str]:
    """The lines of one translation."""
    from tqdm import tqdm

    from nmt.machine.memory import keep_memory

    keep_memory()
    translator = loaded.translator(each.decode)
    reader = translator.reader
    given = {name: read_text(path) for name, path in each.columns.items()}
    lines, columns = with_columns(reader.reads.columns, reader.settings, each.lines, given)
    tqdm.monitor_interval = 0  # no thread beside those that work: see machine.pool.may_fork
    with closing(translator.translate(lines, 1, columns, read_ahead=True)) as translated:
        bar = tqdm(
            translated,
            desc=each.label,
            total=len(each.lines),
            unit=" lines",
            disable=True if quiet else None,  # None: unless stderr is a terminal
        )
        return [best[0].text for best in bar]
