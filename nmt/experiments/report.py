"""From finished runs and test sets to a report: translate, score, diagnose, write, show."""

import json
import logging
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import modeldir
from nmt.compare import published
from nmt.compare import text as texts
from nmt.compare.attention import SAMPLE
from nmt.compare.diagnosis import diagnose
from nmt.compare.report import (
    AttentionProfile,
    ComparedSystem,
    DistanceVectors,
    PaperTable,
    Report,
    trained_run,
)
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.config import freeze
from nmt.data.corpus import read_text
from nmt.data.seams import pieces_of
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.experiments import run as contest
from nmt.experiments import testsets as asked
from nmt.experiments.processes import gpus
from nmt.experiments.run import Entrant
from nmt.experiments.testsets import Group, Read, TableAsked, TestAsked, Wanted
from nmt.experiments.texts import columns_named, test_columns, with_columns

if TYPE_CHECKING:
    from nmt.data.segmenter import Segmenter

__all__ = ["Group", "Read", "TableAsked", "TestAsked", "Wanted", "report"]

log = logging.getLogger(__name__)

SEED = 12345  # of the bootstrap and of the sample of sentences, as in nmt-evaluate
UNIT = "subword pieces of the source"

Translations = dict[tuple[Path, str], list[str]]  # by run and test


class _Known(NamedTuple):
    """What a group's first model tells."""

    parameters: int
    encoding_parameters: int
    longest: int  # longest source in training, in its own pieces
    segmenter: "Segmenter"  # of the source


def report(
    title: str,
    command: str,
    notes: list[str],
    groups: list[Group],
    tests: list[TestAsked],
    tables: list[TableAsked],
    bounds: list[int],
    wanted: Wanted,
) -> None:
    """Translate what is not translated yet, score, diagnose, write the files, print the tables.

    A test is translated by the groups of the tables that name it; one that no table names, by all.
    Everything that can be wrong with what is asked is said before the first translation. Raises
    UserError: 2 for what does not fit together, 65 for sides of unequal lines, 70 where a model
    could not translate, 73 for a file that cannot be written.
    """
    outputs.prepare([wanted.html, wanted.json, wanted.tsv], None)
    asked.check(groups, tests, tables)
    read = [asked.read(test, groups, tables) for test in tests]
    known = [_known(group.entrants[0]) for group in groups]
    translations = _translations(groups, read, wanted.jobs)
    lengths = [_lengths(each, known) for each in read]
    made = Report(
        title=title,
        date=date.today().isoformat(),
        command=command,
        notes=[*notes, *_notes(groups, tests, tables, wanted)],
        systems=_systems(groups, read, known),
        tests=[],
        tables=[PaperTable(*table) for table in tables],
        samples=wanted.samples,
        seed=SEED,
        about=_about(groups, tests),
    )
    translated = [
        _test(made, each, groups, known, translations, counted)
        for each, counted in zip(read, lengths, strict=True)
    ]
    for test in translated:
        log.info("scoring %s: %d pairs", test.name, len(test.references))
        scored = diagnose(test, Bootstrap(bounds, wanted.samples, SEED, wanted.jobs))
        for table in made.tables:
            if table.test == test.name and table.published:
                keys = [group.published for group in groups]
                scored = published.with_published(scored, table, keys)
        made = replace(made, tests=[*made.tests, scored])
    if wanted.attention:
        made = _observed(made, groups, translated)
    _write(made, wanted)


def _translations(groups: list[Group], read: list[Read], jobs: int) -> Translations:
    """All translations."""
    works = [
        contest.Work(
            entrant,
            each.asked.name,
            contest.Test(each.asked.source, each.asked.reference, each.asked.by_sentence),
        )
        for s in range(len(groups))
        for entrant in groups[s].entrants
        for each in read
        if s in each.groups
    ]
    found, missing = contest.translate_each(works, _at_once(works, jobs))
    if missing:
        told = [
            f"{work.entrant.asked.run}: {failed.why}; see {failed.log}" for work, failed in missing
        ]
        raise UserError(asked.few(told), Exit.DIVERGED)
    return found


def _at_once(works: list[contest.Work], jobs: int) -> int:
    """Processes that translate: where they compute on GPUs, one for each of these."""
    if all(work.entrant.asked.settings.trainer.device == "cpu" for work in works):
        return jobs
    return min(jobs, len(gpus()) or jobs)


def _known(entrant: Entrant) -> _Known:
    """Read what a model tells of itself; the weights are not kept."""
    trained = modeldir.load(entrant.asked.run, "cpu")
    sizes = len(trained.source.vocabulary), len(trained.target.vocabulary)
    own, whole = contest.parameters(trained.settings, sizes)
    return _Known(whole, own, int(trained.facts["longest_source"]), trained.source.segmenter)


def _lengths(read: Read, known: list[_Known]) -> list[int]:
    """Source lengths, counted as the first system that translates the test does."""
    segmenter = known[read.groups[0]].segmenter
    return [len(pieces_of(segmenter, line)) for line in read.sources]


def _longest(read: Read, known: list[_Known]) -> list[int | None]:
    """By system: longest source in training, where its pieces are those that were counted."""
    counted = known[read.groups[0]].segmenter.to_json()
    return [
        own.longest if s in read.groups and own.segmenter.to_json() == counted else None
        for s, own in enumerate(known)
    ]


def _systems(groups: list[Group], read: list[Read], known: list[_Known]) -> list[ComparedSystem]:
    limits = [_longest(each, known) for each in read]
    systems = []
    for s, (group, own) in enumerate(zip(groups, known, strict=True)):
        limit = next((found[s] for found in limits if found[s] is not None), None)
        if limit is None:
            log.warning(
                "%s: segments otherwise than lengths are counted; its trained length is not marked",
                group.label,
            )
        runs = [
            trained_run(str(e.asked.run), e.asked.settings.seed, contest.metrics_of(e.asked.run))
            for e in group.entrants
        ]
        systems.append(
            ComparedSystem(group.label, limit, own.parameters, own.encoding_parameters, runs)
        )
    return systems


def _test(
    made: Report,
    read: Read,
    groups: list[Group],
    known: list[_Known],
    translations: Translations,
    lengths: list[int],
) -> TranslatedTest:
    """A test set with everybody's translations."""
    name = read.asked.name
    hypotheses: list[list[list[str]]] = [[] for _ in groups]
    for s in read.groups:
        hypotheses[s] = [translations[e.asked.run, name] for e in groups[s].entrants]
    return TranslatedTest(
        name=name,
        about=read.asked.about,
        sources=read.sources,
        references=read.references,
        parts=read.parts,
        language=read.language,
        lengths=lengths,
        unit=UNIT,
        longest_trained=_longest(read, known),
        hypotheses=hypotheses,
        metrics=[m for table in made.tables if table.test == name for m in table.metrics],
    )


def _observed(made: Report, groups: list[Group], translated: list[TranslatedTest]) -> Report:
    """The report with attention statistics of each system's first run, and learned vectors."""
    from nmt.compare import attention, vectors

    tests, profiles = list(made.tests), list[AttentionProfile]()
    learned: list[DistanceVectors] = []
    for s, group in enumerate(groups):
        first = group.entrants[0].asked
        log.info("looking at the attention of %s", first.run)
        trained = modeldir.load(first.run, first.settings.trainer.device)
        learned += vectors.learned(trained, s)
        given = columns_named(",".join(test_columns(first.settings)[1:]) or None)
        files = {name: read_text(Path(path)) for name, path in given.items()}
        for t, test in enumerate(translated):
            if not test.hypotheses[s]:
                continue
            _, beside = with_columns(trained, test.sources or [], files)
            columns = {name: list(column) for name, column in beside.items()}
            tests[t], seen = attention.observe(trained, tests[t], test, s, columns, SEED)
            profiles += seen
    return replace(made, tests=tests, profiles=profiles, vectors=learned)


def _notes(
    groups: list[Group], tests: list[TestAsked], tables: list[TableAsked], wanted: Wanted
) -> list[str]:
    """How the numbers came about, as far as these functions know."""
    searches: dict[str, list[str]] = {}
    for group in groups:
        decode = group.entrants[0].asked.settings.decode
        beam = f"beam search of {decode.beam_size}, alpha {decode.alpha:g}"
        searches.setdefault("greedy search" if decode.beam_size == 1 else beam, []).append(
            group.label
        )
    told = [
        search if len(searches) == 1 else f"{search} ({', '.join(labels)})"
        for search, labels in searches.items()
    ]
    found = [f"Translation: {'; '.join(told)}."]
    if apart := [test.name for test in tests if test.by_sentence]:
        found.append(
            f"Each joined line of {', '.join(apart)} is read as the pieces of its sentences."
        )
    if any(table.published for table in tables):
        found.append(
            "The paper's BLEU (cased) and TER (by TERCom) are of tokenised text, as BLEU-moses and "
            "TER-moses here; it does not say which tokeniser, nor whether TER heeds case, which "
            "ours does not."
        )
    found.append(
        "Examples are of the first run of each system; their chrF2 is of the single sentence."
    )
    if wanted.attention:
        found.append(
            "Attention (distances, coverage, source never attended) is of the first run of each "
            f"system, on up to {SAMPLE} sentences of each length group, drawn by seed "
            f"{SEED}, the same for all systems."
        )
    return found


def _about(groups: list[Group], tests: list[TestAsked]) -> dict[str, Any]:
    files: dict[str, Path | None] = {}
    for test in tests:
        files |= {f"{test.name} source": test.source, f"{test.name} reference": test.reference}
    settings = {group.label: freeze(group.entrants[0].asked.settings) for group in groups}
    return {**outputs.sources(files), "settings": settings}


def _write(made: Report, wanted: Wanted) -> None:
    """Write the files that were asked for, then the tables, whose reader may go away."""
    if wanted.json:
        plain = json.dumps(made.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        outputs.write(wanted.json, f"{plain}\n".encode(errors="replace"))
    if wanted.tsv:
        outputs.write(wanted.tsv, texts.tsv(made).encode(errors="replace"))
    if wanted.html:
        from nmt.compare import page

        outputs.write(wanted.html, page.html(made).encode(errors="replace"))
    sys.stdout.write(texts.tables(made))
    sys.stdout.flush()
