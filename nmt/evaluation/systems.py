"""The systems of an evaluation: models or files; runs that differ in the seed are one."""

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt import build, modeldir
from nmt.config.check import flatten
from nmt.config.settings import Settings, freeze, is_path, with_decode
from nmt.decode.engine import LENGTH
from nmt.errors import Exit, UserError
from nmt.evaluation.report import REFERENCES, SOURCE
from nmt.exchange import ctranslate2_engine
from nmt.system import manifest
from nmt.text.lines import unpacked_name
from nmt.text.side import Segmenter
from nmt.training.directory import WITHOUT_EFFECT, progress

log = logging.getLogger(__name__)

SEEDED = re.compile(r"[-_.]?seed[-_]?\d+$")
INVALID_IN_LABEL = re.compile(r"[/\\\x00-\x1f]|^\.")  # labels are names of files, too
# keys in which runs of one system may differ, besides paths
IGNORED_KEYS = ("seed", *WITHOUT_EFFECT, "decode.batch_tokens", "decode.window")


class SystemModel(NamedTuple):
    """A run, a checkpoint or a model directory."""

    typed: str
    path: Path  # of a run: its checkpoint
    settings: Settings
    fingerprint: str | None  # of what a run was trained on; None: no run

    @property
    def run(self) -> Path | None:
        """The directory of the run that it is, or of which it is a checkpoint; None: neither."""
        if is_run(self.path):
            return self.path
        above = self.path.parent
        above = above if above.name == "checkpoints" else self.path.resolve().parent
        return above.parent if above.name == "checkpoints" and is_run(above.parent) else None


class ModelFacts(NamedTuple):
    """Facts of a system's first model, without its weights."""

    parameters: int
    encoding_parameters: int
    columns: frozenset[str]  # integers parallel to the source that it reads
    segmenter: Segmenter  # of the source
    longest: int | None  # longest source in training, in pieces of this model; None: unknown
    target_segmenter: Segmenter
    target_longest: int | None
    source_limit: int | None = None  # pieces of the longest source that it holds; None: any

    def of(self, side: str) -> tuple[Segmenter, int | None]:
        """The segmenter of the sources, or of the references, and the longest in training."""
        if side == SOURCE:
            return self.segmenter, self.longest
        return self.target_segmenter, self.target_longest


class System(NamedTuple):
    """A row of a table: models of one config, one per seed, or a file of translations."""

    label: str  # as tables show it
    models: list[SystemModel]  # by seed; none: the file has the translations
    file: Path | None = None
    facts: ModelFacts | None = None  # see `with_search_settings`; None: not read, or a file
    is_named: bool = False  # whether the user gave the label

    @property
    def typed(self) -> list[str]:
        return [str(self.file)] if self.file else [model.typed for model in self.models]

    @property
    def longest_whole(self) -> int:
        """Pieces of the longest source that its models translate without dividing it."""
        held = self.facts and self.facts.source_limit
        most = self.models[0].settings.decode.max_source
        return most if held is None else min(held, most)


def is_run(path: Path) -> bool:
    """Whether a directory is a run of nmt-train, and not a model directory."""
    model = (path / manifest.NAME).exists() or (path / modeldir.FACTS).exists()
    # a damaged config is refused, not overlooked
    return not model and os.path.lexists(path / modeldir.CONFIG)


def read_systems(arguments: Sequence[str]) -> list[System]:
    """Read arguments [LABEL=]PATH; runs of one config are one system.

    Logs next to runs, which `runs/toy/*` names too, are left out. Raises UserError: 2 for a label
    that is no name of a file, 66 for a path that is not there, 65 for a directory without a model.
    """
    homes = {path.parent for path in map(Path, arguments) if is_run(path)}
    logs = [a for a in arguments if a.endswith(".log") and Path(a).parent in homes]
    for failed in sorted(set(logs) - {f"{run}.log" for run in arguments}):
        log.warning("%s: a log without a run; left out", failed)
    return group_by_config([_parse_system(a) for a in arguments if a not in logs])


def read_named_systems(named: Iterable[tuple[str, str]]) -> list[System]:
    """The systems of labels and paths; raises what `read_systems` does."""
    return group_by_config([_system_at(Path(path), label) for label, path in named])


def _parse_system(argument: str) -> System:
    """Read [LABEL=]PATH; what exists as it stands has no label."""
    label, equals, path = argument.partition("=")
    if not equals or Path(argument).exists():
        return _system_at(Path(argument))
    if not path or INVALID_IN_LABEL.search(label) or label.strip() in ("", REFERENCES):
        raise UserError(f"{argument}: expected LABEL=PATH, the label fit for a file name")
    return _system_at(Path(path), label.strip())


def _system_at(path: Path, label: str | None = None) -> System:
    name, is_named = label or _default_label(path), label is not None
    if not path.exists():
        raise UserError(f"{path}: no such file or directory", Exit.NO_INPUT)
    if not path.is_dir():
        return System(name, [], path, is_named=is_named)
    for below in ("*", "*/*"):
        if any(map(is_run, path.glob(below))):
            raise UserError(f"{path}: a folder of runs; name the runs, as {path}/{below}")
    if is_run(path):
        step, last = progress(path)
        if step < last:
            message = "%s: at step %d of %d, not finished; its best checkpoint so far is evaluated"
            log.warning(message, path, step, last)
    checkpoint = modeldir.locate(path)  # the same one, though training goes on
    fingerprint = str(modeldir.read_facts(checkpoint)["fingerprint"]) if is_run(path) else None
    model = SystemModel(str(path), checkpoint, _settings_of(path), fingerprint)
    return System(name, [model], is_named=is_named)


def _default_label(path: Path) -> str:
    resolved = path.resolve()
    if resolved.parent.name == "checkpoints":
        return f"{resolved.parent.parent.name}@{resolved.name}"
    return resolved.name if path.is_dir() else unpacked_name(path).stem


def _settings_of(path: Path) -> Settings:
    if ctranslate2_engine.is_exported(path):
        return ctranslate2_engine.load(path).settings
    saved = modeldir.read_settings(path)  # without the directories of a run's corpus
    return replace(modeldir.read_config(path), decode=saved.decode) if is_run(path) else saved


def group_by_config(systems: Sequence[System]) -> list[System]:
    """Runs of one config are a system, called by its label, or as its first run, less -seedN.

    Raises UserError (2) for a run or seed that comes twice, for runs of one label that are of
    several configs, and for two systems of one name.
    """
    groups: list[list[System]] = []
    by_label, by_config = dict[str, list[System]](), dict[str, list[System]]()
    for system in systems:
        if not _is_single_run(system):
            groups.append([system])
            continue
        config = json.dumps(_config(system.models[0]), sort_keys=True)
        group = by_label.get(system.label) if system.is_named else by_config.get(config)
        if group is None:
            groups.append(group := [])
        by_config.setdefault(config, group)
        if system.is_named:
            by_label.setdefault(system.label, group)
        _refuse_unlike(system, [earlier.models[0] for earlier in group])
        group.append(system)
    grouped = list(map(_join_seeds, groups))
    labels = [system.label for system in grouped]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise UserError(
            f"{twice}: two systems of this name; give each another LABEL=PATH (seeds of one system "
            "are runs, not checkpoints, averaged models or files)"
        )
    return grouped


def _is_single_run(system: System) -> bool:
    return bool(system.models) and system.models[0].fingerprint is not None


def _join_seeds(group: list[System]) -> System:
    if not _is_single_run(group[0]):
        return group[0]
    group = sorted(group, key=lambda system: system.models[0].settings.seed)
    name = group[0].label
    label = next((s.label for s in group if s.is_named), SEEDED.sub("", name) or name)
    return System(label, [system.models[0] for system in group])


def _refuse_unlike(system: System, earlier: Sequence[SystemModel]) -> None:
    """Raise UserError for a run whose label has another config, or whose seed is there already."""
    (run,) = system.models
    if system.is_named and earlier:
        config, first = _config(run), _config(earlier[0])
        keys = sorted({*config, *first} - {"parent"})  # a label joins runs of several parents
        if differ := [key for key in keys if config.get(key) != first.get(key)]:
            raise UserError(
                f"{system.label}: {earlier[0].typed} and {run.typed} are of two configs "
                f"({differ[0]}: {first.get(differ[0])} and {config.get(differ[0])}); "
                "give each another LABEL="
            )
    if twice := next((e for e in earlier if e.settings.seed == run.settings.seed), None):
        raise UserError(
            f"{run.typed}: the same config and seed as {twice.typed}; "
            "name one of them, or give each a LABEL="
        )


def _config(run: SystemModel) -> dict[str, Any]:
    """What runs of one system have in common, by dotted key."""
    values = {
        k: v for k, v in flatten(freeze(run.settings)) if k not in IGNORED_KEYS and not is_path(k)
    }
    parent = None
    if start := run.settings.trainer.init_from:
        path = Path(start)
        path = path.parent.parent if path.parent.name == "checkpoints" else path
        parent = SEEDED.sub("", path.name)  # of a run that another goes on from, less its seed
    order = list(run.settings.encoding)
    return {"order": order, "corpus": run.fingerprint, "parent": parent, **values}


def with_search_settings(system: System, changes: Mapping[str, object]) -> System:
    """The system with its facts, and other values under decode; UserError if one cannot be.

    Raises the errors of `modeldir.load`, too.
    """
    models = [m._replace(settings=with_decode(m.settings, changes)) for m in system.models]
    facts = None
    if models:
        facts = read_model_facts(models[0].path)
        if models[0].settings.decode.reads_lengths:
            facts = facts._replace(columns=facts.columns | {LENGTH})
    return system._replace(models=models, facts=facts)


def read_model_facts(path: Path) -> ModelFacts:
    if ctranslate2_engine.is_exported(path):
        loaded = ctranslate2_engine.load(path)
        sides, settings, facts = (loaded.source, loaded.target), loaded.settings, loaded.facts
    else:
        sides, settings = modeldir.read_sides(path), modeldir.read_settings(path)
        facts = modeldir.read_facts(path)
    model = build.meta_model(settings, *(len(side.vocabulary) for side in sides))
    table, _ = model.limits(training=False)
    of_encodings = {p for site in model.sites.values() for p in site.parameters()}
    return ModelFacts(
        sum(p.numel() for p in model.parameters()),
        sum(p.numel() for p in of_encodings),
        frozenset(model.columns),
        sides[0].segmenter,
        facts["longest_source"],
        sides[1].segmenter,
        facts.get("longest_target"),
        table and table - 1 - (settings.decode.source_language is not None),  # eos, a language
    )
