"""The embedded corpus: a synchronous German-English grammar whose references are exact.

Simple sentences with the word order that makes German hard for translation: verb second, verb
last, verbal brackets, separable verbs, another order of adverbials than in English, case and
agreement. Long sentences are long chains of ordinary clauses, so that a test set of longer
sentences than in training tests length alone. A sentence begins with a capital letter in
both languages, so that Moses finds its end where another one follows.
"""

from collections.abc import Collection
from random import Random
from typing import NamedTuple

from nmt.errors import UserError
from nmt.toy import tree
from nmt.toy.draw import LEAST, Drawing
from nmt.toy.grammar import LinkedClause, english, german

_TRIALS = 1000  # repeated sentences until an error reports that there are no more


class Sentence(NamedTuple):
    """A German sentence and its one translation, as they were drawn."""

    source: str
    target: str
    clauses: list[LinkedClause]

    def columns(self) -> dict[str, str]:
        """The columns of the source, each as a line; see `nmt.toy.tree`."""
        return tree.columns(self.clauses)


def words(text: str) -> list[str]:
    """Return the words of a line; commas and full stops are words, as after Moses tokenisation."""
    return text.replace(",", " ,").replace(".", " .").split()


def draw(
    count: int, shortest: int, longest: int, seed: int | str, avoid: Collection[str] = ()
) -> list[Sentence]:
    """Draw sentences, the same for the same arguments on every machine.

    Source sentences have from `shortest` to `longest` words (see `words`), each length equally
    often (up to one sentence); none is in `avoid`. Raises UserError for impossible lengths, and
    where too few sentences of a length are left.
    """
    if not LEAST <= shortest <= longest:
        raise UserError(
            f"toy corpus: cannot draw sentences of {shortest} to {longest} words;"
            f" choose lengths from {LEAST} up, the shortest first"
        )
    rng = Random(str(seed))  # the hash of a string is the same on every machine
    lengths = [shortest + i * (longest - shortest + 1) // count for i in range(count)]
    lengths.sort(key=lambda _: rng.random())
    return [_draw_new(rng, length, avoid) for length in lengths]


def pairs(
    count: int, shortest: int, longest: int, seed: int | str, avoid: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Draw sentence pairs (source, target); see `draw`."""
    return [drawn[:2] for drawn in draw(count, shortest, longest, seed, avoid)]


def _draw_new(rng: Random, length: int, avoid: Collection[str]) -> Sentence:
    for _ in range(_TRIALS):
        clauses = Drawing(rng).sentence(length)
        source = _text(german(clauses))
        if source not in avoid:
            return Sentence(source, _text(english(clauses)), clauses)
    raise UserError(
        f"toy corpus: no further sentences of {length} words; ask for fewer pairs, or longer ones"
    )


def _text(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" ,", ",").replace(" .", ".")
