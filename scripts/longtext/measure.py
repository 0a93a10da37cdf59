"""What a finished run makes of its test texts, counted line by line."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import nmt
from nmt.compare import scoring
from nmt.compare.losses import loss_counts
from nmt.compare.report import trained_run
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.undertranslation import part_counts, repeats_of
from nmt.config import Files, freeze, is_path
from nmt.data.segmenter import pieces_of
from nmt.experiments import models, reading
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.systems import System, systems_of
from nmt.experiments.testsets import ParallelFiles
from nmt.machine.machine import this_machine
from nmt.schema import flat
from nmt.storage.manifest import sha256_of
from nmt.training.metrics import METRICS as METRICS_FILE
from nmt.training.metrics import read_metrics
from nmt.training.run import progress
from scripts.longtext.records import RunRecord, Table
from scripts.longtext.texts import WHOLE

METRICS = ("BLEU", "chrF2", "TER", "exact")
WITHOUT_TER = ("BLEU", "chrF2", "exact")
"""Of outputs that run on for hundreds of words: their TER takes sacreBLEU ten minutes and more."""
OPTIONS = EvaluationOptions(device="cpu", threads=1, workers=1, quiet=True, metrics=METRICS)


def record_of(run: Path, tests: Sequence[ParallelFiles], longest: int | None) -> RunRecord:
    """The record of a finished run; `longest`: beyond how many source pieces text is lost.

    Raises UserError as an evaluation does.
    """
    (system,) = systems_of([str(run)])
    system = models.with_search_settings(system, {})
    tables = {test.name: tables_of(system, test, longest) for test in tests}
    texts = {test.name: [sha256_of(p) for p in test[2:4] if p is not None] for test in tests}
    return RunRecord({**about(run, system), "texts": texts}, tables)


def about(run: Path, system: System) -> dict[str, Any]:
    """How the run was trained, and how it learned; nothing of where its files lie."""
    assert system.facts is not None, "a run is a model"
    settings = system.models[0].settings
    metrics = read_metrics(run / METRICS_FILE).lines
    learned = trained_run(run.name, settings.seed, progress(run)[0], metrics)
    return {
        "settings": {k: v for k, v in flat(freeze(settings)) if not is_path(k)},
        **asdict(learned),
        "parameters": system.facts.parameters,
        "encoding_parameters": system.facts.encoding_parameters,
        "longest_source": system.facts.longest,
        "longest_target": system.facts.target_longest,
        "corpus": system.models[0].fingerprint,
        "processor": this_machine().processor,
        "nmt": nmt.__version__,
        "date": date.today().isoformat(),
    }


def tables_of(system: System, files: ParallelFiles, longest: int | None) -> dict[str, Table]:
    """The tables of one test text, as `records` describes them."""
    assert system.facts is not None, "a run is a model"
    (read,) = reading.read(files, [system], (), OPTIONS)
    (read,) = models.translated([read], [system], OPTIONS)
    test = read.test
    ((outputs,),) = test.hypotheses
    real = isinstance(system.models[0].settings.data, Files)
    metrics = METRICS if real and test.parts is None else WITHOUT_TER
    ((counts,),) = scoring.count(test, Bootstrap([1]), metrics)
    tables: dict[str, Table] = dict(counts)
    tables["source"] = np.array(test.lengths)
    pieces = [len(pieces_of(system.facts.target_segmenter, line)) for line in test.references]
    tables["reference"] = np.array(pieces)
    tables["repeats"] = np.array([repeats_of(line) for line in outputs])
    ((references,),) = models.scored_references(read, [system], OPTIONS)
    scored = [score for score in references if score]
    assert len(scored) == len(outputs), "no encoding of the plan has a longest text"
    tables["likelihood"] = np.array([(s.log_prob, s.length) for s in scored])
    if files.name != WHOLE:
        tables["parts"] = table_of_parts(outputs, test)
    elif longest is not None:
        read = read._replace(test=test._replace(longest_trained=[longest]))
        ((forced,),) = models.with_forced_lengths(read, [system], OPTIONS)
        lengths = test.lengths or []
        tables["losses"] = loss_counts(test.references, lengths, longest, outputs, forced)
    return tables


def table_of_parts(outputs: Sequence[str], test: TranslatedTest) -> Table:
    """What arrived of each part of each line, single lines being one part."""
    parts = test.parts or [([""], [reference]) for reference in test.references]
    table = np.zeros((len(parts), max(len(references) for _, references in parts), 4))
    for line, counts in enumerate(part_counts(outputs, parts)):
        for place, part in enumerate(counts):
            left_out = -1 if part.left_out is None else part.left_out
            table[line, place] = [*part[:3], left_out]
    return table
