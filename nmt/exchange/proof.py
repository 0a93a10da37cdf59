"""Compare another engine's computations with those of nmt.

The same proof serves imports and exports, and all engines. Its results are certificate.json, the
sentences on the card, and those in the log.
"""

import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmt import build
from nmt.decode.engine import within_table
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange.interface import EngineScorer, Output
from nmt.modeldir import USUAL_LENGTH, Trained
from nmt.system.progress import track
from nmt.text.side import Side
from nmt.text.tokenizer import normalise
from nmt.text.unigram import SPACE
from nmt.text.vocab import BOS, EOS, SPECIALS

LOG_PROBS = 1e-4  # largest difference of two log-probabilities in float32 that passes
TIE = 1e-4  # largest difference of two log-probabilities that rounding may reverse
IMPOSSIBLE = -1e9  # the logit of an id whose probability is 0
BEAM = 4
SEARCHES = {"greedy": 1, f"beam_{BEAM}": BEAM}  # name in the certificate -> beam
WINDOW = 8  # lines that are searched together; progress is shown after each window
BEYOND = 300  # pieces of the longest samples; more where training had more
LONG = 6  # samples that are longer than what was trained on
MOST = 1024  # pieces of a sample, whatever was trained on
MADE_UP = 40  # lines, if the user has none
LARGE = 150_000_000  # parameters; of a larger model, LONG and MADE_UP are fewer in proportion
LONGEST_MADE_UP = 60  # pieces of such a line
RATIO = 1.5  # pieces of an output, for each of the source, and ROOM besides
ROOM = 20

log = logging.getLogger(__name__)


class SampleLine(NamedTuple):
    """A line of the source, as it is translated."""

    line: str
    ids: list[int]  # in nmt, without eos
    limit: int  # pieces that its translation may have


class SampleTranslations(NamedTuple):
    """The samples, and how nmt translates them."""

    trained: Trained  # without the ids that the engine does not have
    searched: Trained  # without the ids that it takes out of a search
    samples: list[SampleLine]
    left_out: int
    outputs: dict[str, list[Output]]  # by name of the search


def translate_samples(
    trained: Trained, scorer: EngineScorer, lines: Sequence[str] | None
) -> SampleTranslations:
    """Choose samples that fit a model and an engine, and translate them by nmt."""
    chosen, left_out = choose_samples(trained, scorer, lines)
    longest = max(len(sample.ids) for sample in chosen)
    log.info(
        "comparing with %s on %s lines of up to %s pieces; this takes most of the time",
        scorer.library.module, len(chosen), f"{longest:,}",
    )  # fmt: skip
    scored, searched = (bar_ids(trained, ids) for ids in (scorer.absent, scorer.barred))
    outputs = {name: _search(searched, chosen, name) for name in SEARCHES}
    return SampleTranslations(scored, searched, chosen, left_out, outputs)


def _search(trained: Trained, chosen: Sequence[SampleLine], name: str) -> list[Output]:
    """The outputs of nmt, each sample whole, as the engine gets it."""
    decode = replace(
        trained.settings.decode.by_beam(),
        beam_size=SEARCHES[name],
        alpha=0.0,
        max_length_ratio=RATIO,
        max_length_offset=ROOM,
        precision="float32",
        split="lines",
        max_source=MOST,
        window=WINDOW,
    )
    translations = Translator.of(trained, decode).translate([sample.line for sample in chosen])
    # not to its end, where it would warn of lines that are longer than in training
    best = islice((first for first, *_ in translations), len(chosen))
    outputs = [
        Output(list(translation.ids), translation.finished)
        for translation in track(best, f"{name}, by nmt", [1] * len(chosen))
    ]
    translations.close()
    return outputs


def certify(expected: SampleTranslations, scorer: EngineScorer) -> dict[str, Any]:
    """Compare an engine in float32 with nmt; raises UserError (65) if they differ.

    Returns the certificate, as plain values. Outputs whose first different pieces are equally
    likely to nmt, or beams that are equally likely as a whole, count as ties.
    """
    engine, source, chosen = scorer.library.module, expected.trained.source, expected.samples
    plain = [normalise(line, source.segmenter.tokenizer.normalize) for line, *_ in chosen]
    for line, sample in zip(plain, chosen, strict=True):
        if scorer.source_ids(line) not in (None, [*sample.ids, EOS]):
            raise UserError(f"{sample.line!r}: {engine} segments it differently", Exit.DATA)
    difference = _compare_log_probs(expected, scorer)
    if not difference["log_probs"] <= LOG_PROBS:
        raise UserError(
            f"log-probabilities in {engine} differ by {difference['log_probs']:.2g}; it computes "
            "something else, so that nothing is written",
            Exit.DATA,
        )
    searches = {}
    for name in SEARCHES:
        searches[name], differing = _compare_outputs(expected, scorer, name)
        if differing:
            what = f"{differing[0]!r}: {engine} gives another translation by {name}"
            raise UserError(f"{what}; nothing is written", Exit.DATA)
    if not searches[f"beam_{BEAM}"]["compared"]:
        log.warning(
            "beam search was compared on no line: no translation of the samples ends; give "
            "--samples of the source language"
        )
    return {
        "compared_with": str(scorer.library),
        "lines": len(chosen),
        "lines_left_out": expected.left_out,
        "lines_normalised": sum(a != b.line for a, b in zip(plain, chosen, strict=True)),
        "longest_trained_source": expected.trained.facts["longest_source"],
        "longest_source": max(len(sample.ids) for sample in chosen),
        **difference,
        **searches,
        "right_for": {
            "source_pieces": scorer.longest_source and scorer.longest_source - 1,  # null: any
            "target_pieces": scorer.longest_target and scorer.longest_target - 1,
        },
        **({"options": dict(scorer.options)} if scorer.options else {}),
    }


def measure(expected: SampleTranslations, scorer: EngineScorer) -> dict[str, Any]:
    """The differences of an engine in another precision; none is an error."""
    return {
        "computed_in": scorer.computed_in,
        "log_probs": _compare_log_probs(expected, scorer)["log_probs"],
        **{name: _compare_outputs(expected, scorer, name)[0] for name in SEARCHES},
    }


def bar_ids(trained: Trained, ids: Sequence[int], logit: float = IMPOSSIBLE) -> Trained:
    """A model in which some ids have this logit, hence no probability."""
    if not ids:
        return trained
    model = build.shallow(trained.model)
    bias = model.output.bias.detach().clone()
    bias[list(ids)] = logit
    model.output.bias = nn.Parameter(bias)
    return trained._replace(model=model)


def _compare_log_probs(expected: SampleTranslations, scorer: EngineScorer) -> dict[str, float]:
    """The largest difference of log-probabilities, in greedy outputs and made-up targets.

    These are entries of a certificate: `log_probs`, and the number of `pieces` that were scored. A
    made-up target for which nmt in float32 and in float64 differs as much is `ill_conditioned` and
    does not count (4e-3 was seen).
    """
    model, draw = expected.trained.model, Random(2)
    sources = [sample.ids for sample in expected.samples]
    made_up = [draw_ids(expected.trained.target, draw, len(ids)) for ids in sources]
    targets = [*(output.ids for output in expected.outputs["greedy"]), *made_up]
    tables = (model.limits(training=False).target, scorer.longest_target)
    most = min((n for n in tables if n is not None), default=None)
    pairs = [
        (source, target, number >= len(sources))
        for number, (source, target) in enumerate(zip(sources * 2, targets, strict=True))
        if most is None or len(target) < most
    ]
    largest = torch.zeros(())
    pieces = ill_conditioned = 0
    exact = None
    by_engine = scorer.log_probs([(source, target) for source, target, _ in pairs])
    for (source, target, is_made_up), rows in zip(pairs, by_engine, strict=True):
        by_nmt = log_probs(model, source, target)
        compared = by_nmt[:, BOS:] if rows.ndim > 1 else by_nmt[_of_target(target)]
        difference = (compared - rows).abs().max()
        if is_made_up and scorer.computed_in == "float32" and LOG_PROBS < difference < torch.inf:
            exact = exact or deepcopy(model).double()
            rounding = (log_probs(exact, source, target) - by_nmt)[:, BOS:].abs().max()
            if difference <= 2 * rounding:  # as much in the engine as in nmt
                ill_conditioned += 1
                continue
        largest = torch.maximum(largest, difference)  # NaN stays
        pieces += len(target) + 1
    return {"log_probs": float(largest), "pieces": pieces, "ill_conditioned": ill_conditioned}


def _compare_outputs(
    expected: SampleTranslations, scorer: EngineScorer, name: str
) -> tuple[dict[str, int], list[str]]:
    """The numbers of outputs that are compared and equal, and the lines of different ones.

    Beams at the length limit, and empty outputs that the engine misses, are left out: there it
    chooses by different rules.
    """
    beam, chosen = SEARCHES[name], expected.samples
    outputs = (scorer.output(sample.ids, sample.limit, beam) for sample in chosen)
    by_engine = track(outputs, f"{name}, by {scorer.library.module}", [1] * len(chosen))
    counts = {"finished": 0, "compared": 0, "equal": 0, "ties": 0}
    differing = []
    for sample, one, other in zip(chosen, expected.outputs[name], by_engine, strict=True):
        counts["finished"] += one.finished
        ends = (output.finished and len(output.ids) < sample.limit for output in (one, other))
        if beam > 1 and (not all(ends) or (scorer.misses_empty and not one.ids)):
            continue
        counts["compared"] += 1
        if one == other:
            counts["equal"] += 1
        elif is_tie(expected.searched.model, sample.ids, one, other, beam):
            counts["ties"] += 1
        else:
            differing.append(sample.line)
    return counts, differing


def is_tie(model: Any, source: list[int], one: Output, other: Output, beam: int) -> bool:
    """Whether two outputs are equally likely: greedy ones where they part, beams as a whole.

    `source`: its ids, without eos.
    """
    if beam == 1:
        both = zip([*one.ids, EOS], [*other.ids, EOS], strict=False)
        parting = next(((at, a, b) for at, (a, b) in enumerate(both) if a != b), None)
        if parting is None:
            return False
        at, a, b = parting
        row = log_probs(model, source, one.ids[:at])[-1]
        return bool(abs(row[a] - row[b]) <= TIE)
    totals = [
        log_probs(model, source, ids)[_of_target(ids)][: len(ids) + finished].sum()
        for ids, finished in (one, other)
    ]
    return bool(abs(totals[0] - totals[1]) <= TIE)


def _of_target(target: list[int]) -> tuple[range, list[int]]:
    """The index of a target's ids and eos in rows of log-probabilities."""
    return range(len(target) + 1), [*target, EOS]


@torch.inference_mode()
def log_probs(model: Any, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities of all ids before each piece of a target and its end [target + 1, vocab].

    Source and target are ids without eos.
    """
    device = next(model.parameters()).device
    source_ids, before = (
        torch.tensor([ids], device=device) for ids in ([*source, EOS], [BOS, *target])
    )
    return model(source_ids, before)[0].float().log_softmax(-1).cpu()


def choose_samples(
    trained: Trained, scorer: EngineScorer, lines: Sequence[str] | None = None
) -> tuple[list[SampleLine], int]:
    """The lines of a user, or made-up ones, and some that are longer than in training.

    The longer ones are lines of the user joined, and made-up lines of up to BEYOND pieces; an
    unknown length of training counts as USUAL_LENGTH. Empty lines are left out, and those that are
    too long for the encoding or the engine, or whose translation might be; the second value counts
    them. Raises UserError (65) if none remains.
    """
    side, tables = trained.source, trained.model.limits(training=False)
    trained_length = trained.facts["longest_source"] or USUAL_LENGTH
    share = min(1, LARGE / sum(weight.numel() for weight in trained.model.parameters()))
    made_up, long = (max(1, round(share * number)) for number in (MADE_UP, LONG))
    bounds = [n - 1 for n in (tables.source, scorer.longest_source) if n is not None]
    most = scorer.longest_target
    if most is not None and (tables.target is None or tables.target > most):
        bounds.append(int((most - 1 - ROOM) / RATIO))
    room = min([*bounds, MOST])
    longest = max(BEYOND, trained_length + trained_length // 4)
    draw = Random(1)
    if lines is None:
        usual = max(1, min(trained_length, room, LONGEST_MADE_UP))
        texts = [draw_line(side, draw, draw.randint(1, usual)) for _ in range(made_up)]
    else:
        texts = [*lines, *_join_lines(side, lines, trained_length, long)]
    for step in range(1, long + 1):
        length = trained_length + (longest - trained_length) * step // long
        texts.append(draw_line(side, draw, max(1, min(length, room))))
    samples = []
    for text in texts:
        ids = side.ids(side.protection.protect(text).text)[:-1]
        if 0 < len(ids) <= room:
            limit = within_table(int(RATIO * len(ids)) + ROOM, tables.target)
            samples.append(SampleLine(text, ids, limit))
    if not samples:
        raise UserError("no sample is short enough for the encoding; shorten --samples", Exit.DATA)
    return samples, len(texts) - len(samples)


def draw_line(side: Side, draw: Random, length: int) -> str:
    """A line of about so many pieces, drawn at random."""
    pieces = draw_ids(side, draw, length)
    line = _line(side, pieces)
    divided = len(side.ids(line)) - 1
    if divided > length:  # as it is where a vocabulary has pieces of both languages
        line = _line(side, pieces[: max(1, length * length // divided)])
    return line


def draw_ids(side: Side, draw: Random, length: int) -> list[int]:
    """So many ids of pieces, drawn at random."""
    return draw.choices(range(SPECIALS, len(side.vocabulary)), k=length)


def _line(side: Side, pieces: list[int]) -> str:
    return " ".join(side.text(pieces).replace(SPACE, " ").split())


def _join_lines(side: Side, lines: Sequence[str], trained_length: int, number: int) -> list[str]:
    """Up to `number` lines, each of two or more that follow each other, longer than in training."""
    texts, group = list[str](), list[str]()
    for line in lines:
        group.append(line)
        text = " ".join(group)
        if len(side.ids(text)) - 1 > trained_length:
            texts += [text] * (len(group) > 1)
            group = []
    return texts[:number]
