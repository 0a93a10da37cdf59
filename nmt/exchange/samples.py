"""Lines that a model is compared on with another engine: some are longer than in training."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from nmt.data.side import Side
from nmt.data.unigram import SPACE
from nmt.data.vocab import SPECIALS
from nmt.errors import Exit, UserError
from nmt.exchange.certificate import MADE_UP
from nmt.modeldir import USUAL_LENGTH, Trained

BEYOND = 300  # pieces of the longest samples; more where training had more
LONG = 6  # samples that are longer than what was trained on
MOST = 1024  # pieces of a sample, whatever was trained on


class SampleLine(NamedTuple):
    """A line of the source, and the ids that our model reads."""

    line: str
    ids: list[int]  # without eos


def samples(
    trained: Trained, longest: int | None, lines: Sequence[str] | None = None, seed: int = 1
) -> list[SampleLine]:
    """Lines to compare on: the given or made-up ones, and some beyond the length of training.

    Those are given lines joined, and made-up ones of up to BEYOND pieces; where that length is
    unknown, it counts as USUAL_LENGTH. Lines that the encoding
    cannot hold, or are longer than `longest` tokens with eos, and empty ones, are left out. Raises
    UserError (65) where none is left.
    """
    before = trained.facts["longest_source"] or USUAL_LENGTH
    holds = least(trained.model.limits(training=False).source, longest)
    room = MOST if holds is None else min(holds - 1, MOST)
    most = max(BEYOND, before + before // 4)
    draw = Random(seed)
    if lines is None:
        lengths = [draw.randint(1, min(before, room)) for _ in range(MADE_UP)]
        texts = [made_up(trained.source, draw, length) for length in lengths]
    else:
        texts = [*lines, *_joined(trained, lines, before, most)]
    for step in range(1, LONG + 1):
        length = before + (most - before) * step // LONG
        texts.append(made_up(trained.source, draw, min(length, room)))
    made = [SampleLine(text, trained.source.ids(text)[:-1]) for text in texts]
    kept = [sample for sample in made if 0 < len(sample.ids) <= room]
    if not kept:
        raise UserError("no sample is short enough for the encoding; give others", Exit.DATA)
    return kept


def made_up(side: Side, draw: Random, length: int) -> str:
    """A line of about so many pieces, drawn at random."""
    first = min(SPECIALS, len(side.vocabulary) - 1)
    pieces = draw.choices(range(first, len(side.vocabulary)), k=length)
    return " ".join(side.text(pieces).replace(SPACE, " ").split())


def _joined(trained: Trained, lines: Sequence[str], beyond: int, most: int) -> list[str]:
    """Up to LONG lines of consecutive ones, longer than `beyond` pieces but not than `most`."""
    made: list[str] = []
    held: list[str] = []
    pieces = 0
    for line in lines:
        held.append(line)
        pieces += len(trained.source.ids(line)) - 1
        if pieces > beyond:
            if pieces <= most:
                made.append(" ".join(held))
            held, pieces = [], 0
        if len(made) == LONG:
            break
    return made


def least(*numbers: int | None) -> int | None:
    """The least of the numbers that are given; None: none is."""
    return min((n for n in numbers if n is not None), default=None)
