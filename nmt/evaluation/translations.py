"""Translations of test sets, made once and kept by content.

KEY.txt has the translations, and KEY.json what they were made from: text, models, search, of which
KEY is a hash. They lie in the directory of the run, DIRECTORY/translations, and those of anything
else (a model directory, an ensemble) in CACHE.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from nmt import __version__, modeldir
from nmt.decode.engine import LENGTH
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.systems import SystemModel
from nmt.exchange import engines
from nmt.exchange.engines import LoadedModels
from nmt.system import atomic, manifest
from nmt.system.progress import track
from nmt.system.resources import keep_memory
from nmt.text.lines import read_text

log = logging.getLogger(__name__)

TRANSLATIONS = "translations"  # in a run directory
CACHE = Path("data/translations")  # of models that are no runs; next to the prepared corpora
TEXT = "text"  # in a record: SHA-256 of the translations
NAMED = 16  # digits of a key that name the files


@dataclass(frozen=True)
class KeptTranslation:
    """The translation of a test set by one model, and the files that keep it."""

    label: str  # of the system
    model: SystemModel
    test: str  # its name
    lines: Sequence[str]  # of the test's source
    columns: Mapping[str, Path]  # integers parallel to the source
    lengths: Sequence[int] = ()  # of the outputs in pieces, where no column has them

    @cached_property
    def origin(self) -> dict[str, Any]:
        """All that the translation depends on; raises what `modeldir.load` does."""
        text = hashlib.sha256("".join(f"{line}\n" for line in self.lines).encode()).hexdigest()
        columns = {n: manifest.sha256_of(path) for n, path in self.columns.items()}
        if self.lengths:
            columns[LENGTH] = hashlib.sha256(manifest.dump(list(self.lengths))).hexdigest()
        return {
            "models": [digest_of(path) for path in self.model.paths],
            "source": text,
            "columns": columns,
            "decode": vars(self.model.settings.decode),
            "version": __version__,
        }

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(manifest.dump(self.origin)).hexdigest()

    def path(self, ending: str) -> Path:
        """The file with the translation (txt), or its record (json)."""
        directory = CACHE if self.model.run is None else self.model.run / TRANSLATIONS
        return directory / f"{self.key[:NAMED]}.{ending}"

    def read(self) -> list[str] | None:
        """The translation; None if there is none.

        Raises UserError (65) if it was changed: it is neither scored nor overwritten.
        """
        text = self.path("txt")
        try:
            record = manifest.read(self.path("json"))
        except UserError:
            return None  # missing or damaged: translate again
        if record.get("key") != self.key or not text.is_file():
            return None
        if record.get(TEXT) != manifest.sha256_of(text):
            raise UserError(
                f"{text}: not as nmt-translate wrote it; move it away to translate again", Exit.DATA
            )
        return read_text(text)

    def write(self, lines: Sequence[str]) -> None:
        """Keep lines; a full disk, or a directory that takes no files, is a warning.

        The record comes last: without it the text is not read.
        """
        text = self.path("txt")
        try:
            text.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace(text, "".join(f"{line}\n" for line in lines).encode())
            about = {
                "key": self.key,
                TEXT: manifest.sha256_of(text),
                "model": self.model.typed,
                "checkpoints": [str(modeldir.locate(path)) for path in self.model.paths],
                "test": self.test,
                "date": date.today().isoformat(),
                "origin": self.origin,
            }
            atomic.replace(self.path("json"), manifest.dump(about))
        except OSError as error:
            log.warning("%s: %s; not kept", error.filename, error.strerror)


def digest_of(path: Path) -> str:
    """SHA-256 of the manifest of a model, which vouches for all its files."""
    return modeldir.reading(path, lambda model: manifest.sha256_of(model / manifest.NAME))


def translate_all(
    requests: Sequence[KeptTranslation], options: EvaluationOptions
) -> list[list[str]]:
    """The lines of each translation, read if they were kept, else made and kept.

    Raises UserError (65) for a kept translation that was changed, and as `Translator.translate`.
    """
    by_key = dict[str, KeptTranslation]()
    for request in requests:
        by_key.setdefault(request.key, request)
    lines = {key: kept for key, one in by_key.items() if (kept := one.read()) is not None}
    pending = [request for key, request in by_key.items() if key not in lines]
    for paths, group in groupby(pending, key=lambda request: request.model.paths):
        loaded = load(paths, options)
        for request in group:
            lines[request.key] = _translate(request, loaded)
            request.write(lines[request.key])
    return [lines[request.key] for request in requests]


def load(paths: Sequence[Path], options: EvaluationOptions) -> LoadedModels:
    return engines.load(paths, options.device, options.threads, workers=options.workers)


def _translate(request: KeptTranslation, loaded: LoadedModels) -> list[str]:
    lines = request.lines
    log.info("translating %s by %s: %s lines", request.test, request.label, f"{len(lines):,}")
    keep_memory()
    translator = loaded.translator(request.model.settings.decode)
    streams = {name: read_text(path) for name, path in request.columns.items()}
    if request.lengths:
        streams[LENGTH] = list(map(str, request.lengths))
    texts = list[str]()
    with closing(translator.translate(lines, 1, streams, read_ahead=True)) as translated:
        try:
            for best, *_ in track(translated, request.label, [1] * len(lines)):
                texts.append(best.text)
        except RefusedLinesError as error:  # after the last line; these are empty, and count so
            log.warning("%s: %s", request.label, error)
    return texts
