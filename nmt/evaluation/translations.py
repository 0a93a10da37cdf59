"""What models make of test sets: translations, kept by content, and likelihoods of references.

KEY.txt has the translations, and KEY.json what they were made from: text, models, search, of which
KEY is a hash. They lie in the directory of the run, DIRECTORY/translations, or without a run in
CACHE.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nmt import __version__, modeldir
from nmt.config.settings import with_decode
from nmt.decode.engine import LENGTH
from nmt.decode.models import adapt
from nmt.decode.score import score_translations
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.evaluation.metrics import Floats
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import TranslatedTest
from nmt.evaluation.systems import System, SystemModel
from nmt.exchange import ctranslate2_engine, engines
from nmt.exchange.engines import LoadedModels
from nmt.modeldir import Trained
from nmt.system import atomic, manifest
from nmt.system.progress import track
from nmt.system.resources import keep_memory
from nmt.text.lines import read_text

log = logging.getLogger(__name__)

TRANSLATIONS = "translations"  # in a run directory
CACHE = Path("data/translations")  # of models that are no runs; next to the prepared corpora
TEXT = "text"  # in a record: SHA-256 of the translations
NAMED = 16  # digits of a key that name the files
FORCED = {"length": "forced", "min_length_ratio": 0}  # search with the lengths of the references


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
            # the manifest vouches for all files
            "model": modeldir.reading(
                self.model.path, lambda model: manifest.sha256_of(model / manifest.NAME)
            ),
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
                "checkpoint": str(modeldir.locate(self.model.path)),
                "test": self.test,
                "date": date.today().isoformat(),
                "origin": self.origin,
            }
            atomic.replace(self.path("json"), manifest.dump(about))
        except OSError as error:
            log.warning("%s: %s; not kept", error.filename, error.strerror)

    def make(self, loaded: LoadedModels) -> list[str]:
        log.info("translating %s by %s: %s lines", self.test, self.label, f"{len(self.lines):,}")
        keep_memory()
        translator = loaded.translator(self.model.settings.decode)
        columns = {name: read_text(path) for name, path in self.columns.items()}
        if self.lengths:
            columns[LENGTH] = list(map(str, self.lengths))
        texts = list[str]()
        with closing(translator.translate(self.lines, 1, columns, read_ahead=True)) as translated:
            try:
                for best, *_ in track(translated, self.label, [1] * len(self.lines)):
                    texts.append(best.text)
            except RefusedLinesError as error:  # after the last line; these are empty, and count so
                log.warning("%s: %s", self.label, error)
        return texts


def translate_all(
    requests: Sequence[KeptTranslation], options: EvaluationOptions
) -> list[list[str]]:
    """The lines of each translation, read if they were kept; otherwise translated and kept.

    Raises UserError (65) for a kept translation that was changed, and as `Translator.translate`.
    """
    lines = dict[str, list[str]]()
    pending = dict[Path, dict[str, KeptTranslation]]()  # by model, then by key
    for request in requests:
        if (kept := request.read()) is not None:
            lines[request.key] = kept
        else:
            pending.setdefault(request.model.path, {}).setdefault(request.key, request)
    for path, of_model in pending.items():
        loaded = load(path, options)
        for key, request in of_model.items():
            lines[key] = request.make(loaded)
            request.write(lines[key])
    return [lines[request.key] for request in requests]


def load(path: Path, options: EvaluationOptions) -> LoadedModels:
    return engines.load([path], options.device, options.threads, workers=options.workers)


def load_single(model: SystemModel, options: EvaluationOptions) -> Trained:
    """Load a model of this toolkit, adapted to its decode settings."""
    (trained,) = load(model.path, options).models
    return adapt(trained, model.settings.decode)


def translate_tests(
    tests: Sequence[TranslatedTest], systems: Sequence[System], options: EvaluationOptions
) -> None:
    """Add the translations that models make to the tests; raises what `translate_all` does."""
    requests = [
        (test.hypotheses[s], request)
        for s, system in enumerate(systems)
        for test in tests
        for request in _requests_of(test, s, system, test.columns.get(s, {}))
    ]
    translations = translate_all([request for _, request in requests], options)
    for (runs, _), lines in zip(requests, translations, strict=True):
        runs.append(lines)


def _requests_of(
    test: TranslatedTest, s: int, system: System, columns: Mapping[str, Path]
) -> list[KeptTranslation]:
    """The translations of a test by the models of its system number `s`.

    With decode.length=forced and no column of lengths, outputs are as long as the references.
    """
    requests = []
    for model in system.models:
        lengths = list[int]()
        if model.settings.decode.length == "forced" and LENGTH not in columns and system.facts:
            encode = system.facts.target_segmenter.encode
            lengths = [len(encode(line)) for line in test.references]
        sources = test.sources or []
        requests.append(KeptTranslation(system.label, model, test.name, sources, columns, lengths))
    return requests


def translate_with_forced_lengths(
    test: TranslatedTest, systems: Sequence[System], options: EvaluationOptions
) -> list[list[list[str]]]:
    """Translations with lengths forced to those of the references: system, run -> lines.

    Systems whose loss cannot be divided into its parts are left out, with a warning.
    """
    requests = list[list[KeptTranslation]]()
    for s, system in enumerate(systems):
        models = system.models
        if reason := _why_not_divided(system, test, s):
            message = "%s: --lost does not say why %s loses text: %s"
            log.warning(message, test.name, system.label, reason)
            models = []
        models = [m._replace(settings=with_decode(m.settings, FORCED)) for m in models]
        columns = {n: path for n, path in test.columns.get(s, {}).items() if n != LENGTH}
        requests.append(_requests_of(test, s, system._replace(models=models), columns))
    translations = iter(translate_all([r for of_system in requests for r in of_system], options))
    return [[next(translations) for _ in of_system] for of_system in requests]


def _why_not_divided(system: System, test: TranslatedTest, s: int) -> str:
    """Why the loss of a system cannot be divided into its parts; empty: it can."""
    if system.facts is None:
        return "that needs a model that translates again, and this is a file"
    if any(ctranslate2_engine.is_exported(model.path) for model in system.models):
        return "CTranslate2 cannot force lengths; name the model that was exported"
    decode = system.models[0].settings.decode
    if decode.split != "lines":
        return f"decode.split={decode.split} does not go with lengths of whole lines"
    longest = test.trained[s]
    if longest is None:
        return "its trained length in these pieces is not known"
    is_beyond = [length > longest for length in test.lengths or ()]
    if all(is_beyond) or not any(is_beyond):
        return f"{'every' if all(is_beyond) else 'no'} {test.side} is longer than any in training"
    encode, most = system.facts.segmenter.encode, system.longest_whole
    if any(len(encode(line)) > most for line in test.sources or ()):
        return f"it divides or cuts some sources, which have more than {most} pieces"
    return ""


def count_likelihoods(
    test: TranslatedTest, s: int, label: str, model: SystemModel, options: EvaluationOptions
) -> Floats:
    """Negative log-probabilities of the references, and their pieces: [lines, 2].

    Of a model of the system number `s`, as training measures it on the development text; NaN where
    a side is too long for the model.
    """
    trained = load_single(model, options)
    texts = test.sources or [], test.references, read_columns(trained, test.columns[s])
    rows = list[tuple[float, float]]()
    try:
        for scored in score_translations(trained, *texts):
            rows.append((-scored.log_prob, scored.length) if scored else (np.nan, np.nan))
    except RefusedLinesError as error:  # after the last line
        log.warning("%s: without perplexity: %s", label, error)
    return np.array(rows)


def read_columns(trained: Trained, files: Mapping[str, Path]) -> dict[str, list[str]]:
    """The lines of the columns that a model reads."""
    reads = trained.model.columns
    return {name: read_text(path) for name, path in files.items() if name in reads}
