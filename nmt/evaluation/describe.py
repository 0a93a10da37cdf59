"""What a report says of its systems: size, training, search, versions, files, settings."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt import __version__, modeldir
from nmt.config.check import to_yaml
from nmt.config.settings import BEAM, Decode, Settings, freeze
from nmt.evaluation.attention import SAMPLE
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import ComparedSystem, TranslatedTest
from nmt.evaluation.systems import System, SystemModel
from nmt.evaluation.testsets import ParallelFiles
from nmt.system import manifest
from nmt.text.columns import missing
from nmt.training.directory import progress

PACKAGES = ("sacrebleu", "sacremoses", "numpy")  # on which scores depend
TOO_LONG = {
    "split": "translated in parts",
    "refuse": "left empty",
    "truncate": "cut to that",
}  # what decode.too_long does with a source
NOT_DESCRIBED = (  # keys of decode that change no translation, or that the model determines
    *("method", "beam_size", "alpha", "batch_tokens", "window", "temperature", "seed"),
    *("length_ratio", "source_language", "target_language"),
)


def describe_system(system: System) -> ComparedSystem:
    runs = [_describe_training(model, model.run) for model in system.models if model.run]
    if facts := system.facts:
        sizes = facts.longest, facts.parameters, facts.encoding_parameters
        return ComparedSystem(system.label, *sizes, runs)
    return ComparedSystem(system.label, runs=runs)


def _describe_training(model: SystemModel, run: Path) -> dict[str, Any]:
    """The training of a run, up to its newest checkpoint unless the model is an older one."""
    facts = modeldir.read_facts(model.path)
    is_checkpoint = model.fingerprint is None
    return {
        "run": str(run),
        "seed": model.settings.seed,
        "step": facts["step"] if is_checkpoint else progress(run)[0],
        "dev_perplexity": facts.get("dev_perplexity"),
    }


def list_provenance(systems: Sequence[System], tests: Sequence[ParallelFiles]) -> dict[str, Any]:
    versions = {"nmt": __version__, "python": platform.python_version()}
    return {
        "versions": versions | {name: version(name) for name in PACKAGES},
        "files": {
            f"{test.name} {side} {path}": manifest.sha256_of(path)
            for test in tests
            for side, path in test.paths
        },
        "joined": {test.name: test.join for test in tests if test.join > 1},
        "systems": {
            system.label: {
                "places": system.typed,
                **({"settings": freeze(system.models[0].settings)} if system.models else {}),
            }
            for system in systems
        },
    }


def list_notes(
    systems: Sequence[System], tests: Sequence[TranslatedTest], options: EvaluationOptions
) -> list[str]:
    lines = [*options.notes, *_search_notes(systems)]
    lines += [note for test in tests for note in _notes_of_long_sources(test, systems)]
    if options.attention and options.bounds and any(system.models for system in systems):
        lines.append(
            f"unattended source: of the first run, on up to {SAMPLE} lines of each bucket, drawn "
            f"by seed {options.seed}, the same for all systems."
        )
    return list(dict.fromkeys(lines))


def _notes_of_long_sources(test: TranslatedTest, systems: Sequence[System]) -> list[str]:
    """How many sources were too long to be translated whole, and what was done with them."""
    labels_of = dict[str, list[str]]()
    for system in systems:
        if system.facts is None or system.models[0].settings.decode.split != "lines":
            continue
        encode = system.facts.segmenter.encode
        most, way = system.longest_whole, system.models[0].settings.decode.too_long
        if way == "split" and missing(system.facts.columns, ()):
            way = "refuse"  # columns cannot be divided
        if count := sum(len(encode(line)) > most for line in test.sources or ()):
            text = f"Sources of {test.name} with more than {most:,} pieces: {count:,}"
            labels_of.setdefault(f"{text}, {TOO_LONG[way]}", []).append(system.label)
    return [f"{text} ({', '.join(labels)})." for text, labels in labels_of.items()]


def _search_notes(systems: Sequence[System]) -> list[str]:
    searches: dict[str, list[str]] = {}
    for system in systems:
        if system.models:
            searches.setdefault(describe_search(system.models[0].settings), []).append(system.label)
    if len(searches) < 2:
        return [f"Translation: {search}." for search in searches]
    described = [f"{search} ({', '.join(labels)})" for search, labels in searches.items()]
    return [f"Translation: {'; '.join(described)}."]


def describe_search(settings: Settings) -> str:
    """`beam search of 4, alpha 0.6`, and other settings if they are not the default ones."""
    decode = settings.decode
    search, silent = f"beam search of {decode.beam_size}, alpha {decode.alpha:g}", [*NOT_DESCRIBED]
    if decode.method == "sample" or decode.beam_size == 1:
        sampled = f"samples at temperature {decode.temperature:g}, seed {decode.seed}"
        search = sampled if decode.method == "sample" else "greedy search"
        silent += BEAM
    changed = vars(decode).items() - vars(Decode()).items()
    described = sorted(f"{key}={to_yaml(value)}" for key, value in changed if key not in silent)
    return ", ".join([search, *described])
