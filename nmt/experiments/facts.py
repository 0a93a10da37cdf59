"""Size, training budget and search settings of systems."""

from collections.abc import Sequence
from pathlib import Path

from nmt import build, modelfiles
from nmt.config.settings import RESTRICTIONS, Settings
from nmt.decode.sources import LENGTH
from nmt.exchange import ctranslate2_engine
from nmt.experiments.systems import ModelFacts, System

SPLITS = {
    "sentences": ", each sentence alone",
    "auto": ", lines longer than in training a few sentences at a time",
}  # decode.split in words


def facts_of(system: System) -> ModelFacts | None:
    """Facts of a system's first model; None for a file. Raises the errors of `modeldir.load`."""
    if system.file is not None:
        return None
    first, *others = members = [facts_at(path) for path in system.models[0].paths]
    columns = first.columns.union(*(other.columns for other in others))
    if system.models[0].settings.decode.reads_lengths:
        columns |= {LENGTH}
    return first._replace(
        columns=columns,
        source_limit=min(filter(None, (m.source_limit for m in members)), default=None),
        parameters=sum(member.parameters for member in members),
        encoding_parameters=sum(member.encoding_parameters for member in members),
    )


def facts_at(path: Path) -> ModelFacts:
    """Facts of one model; its weights are not read."""
    if ctranslate2_engine.is_exported(path):
        known = ctranslate2_engine.load(path)
        sides, settings, facts = (known.source, known.target), known.settings, known.facts
    else:
        sides, settings = modelfiles.sides(path), modelfiles.settings(path)
        facts = modelfiles.facts(path)
    model = build.meta_model(settings, *(len(side.vocabulary) for side in sides))
    table, _ = model.limits(training=False)
    of_encodings = {p for site in model.sites.values() for p in site.parameters()}
    return ModelFacts(
        sum(p.numel() for p in model.parameters()),
        sum(p.numel() for p in of_encodings),
        facts["longest_source"],
        sides[0].segmenter,
        frozenset(model.columns),
        facts.get("longest_target"),
        sides[1].segmenter,
        table and table - 1 - (settings.decode.source_language is not None),  # eos, a language
    )


def shared_settings(settings: Settings, seeds: str) -> list[str]:
    """Corpus, size and budget that all runs have in common, from the settings of one."""
    model, trainer = settings.model, settings.trainer
    limits = [f"{trainer.max_steps:,} updates"] if trainer.max_steps else []
    limits += [f"{trainer.max_epochs:,} epochs"] if trainer.max_epochs else []
    return [
        f"Corpus {settings.data.name}; {model.encoder_layers}+{model.decoder_layers} layers of "
        f"{model.dim}, {model.heads} heads; {seeds}.",
        f"Training: {' or '.join(limits)} of {trainer.batch_tokens * trainer.accumulate:,} tokens, "
        f"learning rate {settings.optim.lr:g} ({settings.optim.kind}).",
    ]


def training_notes(systems: Sequence[System]) -> list[str]:
    """The same of the runs among systems, where all say it; none where these share nothing."""
    runs = [model.settings for system in systems for model in system.models if model.run]
    seeds = sorted({settings.seed for settings in runs})
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    described = [shared_settings(settings, named) for settings in runs]
    return [note for note in described[0] if all(note in d for d in described)] if runs else []


def search_notes(systems: Sequence[System]) -> list[str]:
    """How the models among systems search, by their settings."""
    searches: dict[str, list[str]] = {}
    for system in systems:
        if system.models:
            searches.setdefault(search_of(system.models[0].settings), []).append(system.label)
    described = [
        search if len(searches) == 1 else f"{search} ({', '.join(labels)})"
        for search, labels in searches.items()
    ]
    return [f"Translation: {'; '.join(described)}."] if described else []


def search_of(settings: Settings) -> str:
    """How a model searches, as its settings say."""
    decode = settings.decode
    chosen = f", the best of {decode.mbr} by expected chrF" if decode.mbr else ""
    for key, free in RESTRICTIONS.items():
        if (value := getattr(decode, key)) != free:
            chosen = f", {key} {value}{chosen}"
    chosen += SPLITS.get(decode.split, "")
    if decode.method == "sample":
        return (
            f"samples (temperature {decode.temperature:g}, top_k {decode.top_k}, "
            f"top_p {decode.top_p:g}, seed {decode.seed}){chosen}"
        )
    if decode.beam_size == 1:
        return f"greedy search{chosen}"
    return f"beam search of {decode.beam_size}, alpha {decode.alpha:g}{chosen}"
