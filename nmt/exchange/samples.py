"""Lines on which a model and another engine are compared; some are longer than in training."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from nmt.decode.engine import within_table
from nmt.errors import Exit, UserError
from nmt.exchange.interface import EngineScorer
from nmt.modeldir import USUAL_LENGTH, Trained
from nmt.text.side import Side
from nmt.text.unigram import SPACE
from nmt.text.vocab import SPECIALS

BEYOND = 300  # pieces of the longest samples; more where training had more
LONG = 6  # samples that are longer than what was trained on
MOST = 1024  # pieces of a sample, whatever was trained on
MADE_UP = 40  # lines, if the user has none
LARGE = 150_000_000  # parameters; of a larger model, LONG and MADE_UP are fewer in proportion
LONGEST_MADE_UP = 60  # pieces of such a line
RATIO = 1.5  # pieces of an output, for each of the source, and ROOM besides
ROOM = 20


class SampleLine(NamedTuple):
    """A line of the source, as it is translated."""

    line: str
    ids: list[int]  # in nmt, without eos
    limit: int  # pieces that its translation may have


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
        texts = [random_line(side, draw, draw.randint(1, usual)) for _ in range(made_up)]
    else:
        texts = [*lines, *_join_lines(side, lines, trained_length, long)]
    for step in range(1, long + 1):
        length = trained_length + (longest - trained_length) * step // long
        texts.append(random_line(side, draw, max(1, min(length, room))))
    samples = []
    for text in texts:
        ids = side.ids(side.protection.protect(text).text)[:-1]
        if 0 < len(ids) <= room:
            limit = within_table(int(RATIO * len(ids)) + ROOM, tables.target)
            samples.append(SampleLine(text, ids, limit))
    if not samples:
        raise UserError("no sample is short enough for the encoding; shorten --samples", Exit.DATA)
    return samples, len(texts) - len(samples)


def random_line(side: Side, draw: Random, length: int) -> str:
    """A line of about so many pieces, drawn at random."""
    pieces = random_ids(side, draw, length)
    line = _line(side, pieces)
    divided = len(side.ids(line)) - 1
    if divided > length:  # as it is where a vocabulary has pieces of both languages
        line = _line(side, pieces[: max(1, length * length // divided)])
    return line


def random_ids(side: Side, draw: Random, length: int) -> list[int]:
    """So many ids of pieces, drawn at random."""
    return draw.choices(range(SPECIALS, len(side.vocabulary)), k=length)


def _line(side: Side, pieces: list[int]) -> str:
    return " ".join(side.text(pieces).replace(SPACE, " ").split())


def _join_lines(side: Side, lines: Sequence[str], trained_length: int, number: int) -> list[str]:
    """Up to `number` lines of consecutive ones, each longer than in training."""
    texts = [""]
    for line in lines:
        if len(side.ids(texts[-1])) - 1 > trained_length:
            texts.append("")
        if len(texts) > number:
            break
        texts[-1] = f"{texts[-1]} {line}".strip()
    return [text for text in texts[:-1] if text not in lines]
