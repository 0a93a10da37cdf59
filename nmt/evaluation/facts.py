"""Facts of models that an evaluation needs before it translates; no weights are read."""

from pathlib import Path

from nmt import build, modeldir
from nmt.decode.sources import LENGTH
from nmt.evaluation.systems import ModelFacts, System
from nmt.exchange import ctranslate2_engine


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
        sides, settings = modeldir.read_sides(path), modeldir.read_settings(path)
        facts = modeldir.read_facts(path)
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
