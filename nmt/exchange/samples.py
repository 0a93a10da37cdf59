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
MADE_UP = 40  # lines, if none are given
LARGE = 150_000_000  # parameters; of a larger model, LONG and MADE_UP are fewer in proportion
LONGEST_MADE_UP = 60  # pieces of such a line
RATIO = 1.5  # pieces of an output, for each of the source, and ROOM besides
ROOM = 20


class SampleLine(NamedTuple):
    """A line of the source, as it is translated."""

    line: str
    ids: list[int]  # that our model reads, without eos
    limit: int  # pieces that its translation may have


def choose_samples(
    trained: Trained, scorer: EngineScorer, lines: Sequence[str] | None = None
) -> tuple[list[SampleLine], int]:
    """The given lines, or made-up ones, and some that are longer than in training.

    The longer ones are given lines joined, and made-up lines of up to BEYOND pieces; an unknown
    length of training counts as USUAL_LENGTH. Empty lines are left out, and those that are too long
    for the encoding or the engine, or whose translation might be; the second value counts them.
    Raises UserError (65) if none remains.
    """
    before = trained.facts["longest_source"] or USUAL_LENGTH
    share = min(1, LARGE / sum(weight.numel() for weight in trained.model.parameters()))
    made_up, long = (max(1, round(share * number)) for number in (MADE_UP, LONG))
    room = _max_pieces(trained, scorer)
    most = max(BEYOND, before + before // 4)
    draw = Random(1)
    if lines is None:
        longest = max(1, min(before, room, LONGEST_MADE_UP))
        texts = [
            random_line(trained.source, draw, draw.randint(1, longest)) for _ in range(made_up)
        ]
    else:
        texts = [*lines, *_joined(trained, lines, before, most)[:long]]
    for step in range(1, long + 1):
        length = before + (most - before) * step // long
        texts.append(random_line(trained.source, draw, max(1, min(length, room))))
    fitting, side = list[SampleLine](), trained.source
    table = trained.model.limits(training=False).target
    for text in texts:
        ids = side.ids(side.protection.protect(text).text)[:-1]
        if 0 < len(ids) <= room:
            fitting.append(SampleLine(text, ids, within_table(int(RATIO * len(ids)) + ROOM, table)))
    if not fitting:
        raise UserError("no sample is short enough for the encoding; give others", Exit.DATA)
    return fitting, len(texts) - len(fitting)


def _max_pieces(trained: Trained, scorer: EngineScorer) -> int:
    limits = trained.model.limits(training=False)
    bounds = [n - 1 for n in (limits.source, scorer.longest_source) if n is not None]
    most, table = scorer.longest_target, limits.target
    if most is not None and (table is None or table > most):
        bounds.append(int((most - 1 - ROOM) / RATIO))
    return min([*bounds, MOST])


def random_line(side: Side, draw: Random, length: int) -> str:
    """A line of about so many pieces, drawn at random."""
    pieces = random_ids(side, draw, length)
    line = _line(side, pieces)
    divided = len(side.ids(line)) - 1
    if divided > length:  # as it is where a vocabulary has pieces of the other language, too
        line = _line(side, pieces[: max(1, length * length // divided)])
    return line


def random_ids(side: Side, draw: Random, length: int) -> list[int]:
    """So many ids of pieces, drawn at random."""
    return draw.choices(range(SPECIALS, len(side.vocabulary)), k=length)


def _line(side: Side, pieces: list[int]) -> str:
    return " ".join(side.text(pieces).replace(SPACE, " ").split())


def _joined(trained: Trained, lines: Sequence[str], beyond: int, most: int) -> list[str]:
    """Up to LONG lines of consecutive ones, longer than `beyond` pieces but not than `most`."""
    texts: list[str] = []
    held: list[str] = []
    pieces = 0
    for line in lines:
        held.append(line)
        pieces += len(trained.source.ids(line)) - 1
        if pieces > beyond:
            if len(held) > 1 and pieces <= most:
                texts.append(" ".join(held))
            held, pieces = [], 0
        if len(texts) == LONG:
            break
    return texts
