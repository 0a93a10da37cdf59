"""What a model loses on lines beyond its training: the figures of one diagnosis."""

from typing import NamedTuple

from nmt.compare.report import Share


class Losses(NamedTuple):
    """What is lost of some lines; None: nothing to tell it by."""

    lines: int
    lost: Share | None  # of the character 6-grams of the references; see `arrival`
    unattended: float | None  # source pieces that got almost no attention; without references
    repeated: float | None  # 4-grams that stood earlier in their line
    length: float | None  # characters, over those of the references, or of the sources


class Remedy(NamedTuple):
    """A sample of the long lines, translated in another way."""

    name: str
    overrides: list[str]  # of nmt-translate; none: as the model searches
    losses: Losses


class LongText(NamedTuple):
    """The diagnosis of one model on one text."""

    model: str  # as the user named it
    source: str
    run: bool  # whether it is a run, whose corpus is known
    encoding: str  # encoding=NAME, as an override has it; of several, NAME+NAME
    trained: int | None  # pieces of the longest source in training; None: unknown
    divided_at: int  # pieces; lines above are the long ones
    longest: int  # pieces of the longest line
    with_references: bool
    within: Losses
    beyond: Losses
    remedies: list[Remedy]  # of a sample of the long lines; the first one: as the model searches
