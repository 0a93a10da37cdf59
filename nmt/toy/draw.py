"""Draws random trees of the embedded grammar, of exactly the desired length."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from nmt.toy import lexicon
from nmt.toy.grammar import (
    Adverbial,
    Clause,
    LinkedClause,
    Phrase,
    Prepositional,
    german_adverbial,
    german_clause,
)
from nmt.toy.lexicon import NOUNS, ROLES, VERBS, Adverb, Noun, Preposition, Pronoun, Verb

T = TypeVar("T")
W = TypeVar("W", Noun, Verb)

LEAST = 3  # words of the shortest sentence: er schläft .
_LONGEST_CLAUSE = 11  # words, links apart
_LONGEST_SAYING = 8  # words of a clause that needs one with dass
_MEMORY = 4  # clauses in which no noun or verb is repeated, where there is a choice
_LEAST_DESCRIBING = 8  # words of a clause that may have a relative one in it
_LEAST_REST = 6  # words that can follow any clause
_NOUNS = {kind: [n for n in NOUNS if n.kind == kind] for kind in sorted({n.kind for n in NOUNS})}
_SAYING = [verb for verb in VERBS if verb.complement]
_PLAIN = [verb for verb in VERBS if not verb.complement]
_DOING = [verb for verb in VERBS if verb.accusative]
_DONE_TO = {  # verbs whose object may be a thing that a relative clause describes
    kind: [v for v in VERBS if kind in v.accusative and not v.dative] for kind in _NOUNS
}
_ADVERBIALS: dict[tuple[str, str], list[Adverb | Preposition]] = {
    (role, form): [a for a in lexicon.ADVERBS if a.role == role and form in a.forms]
    + [p for p in lexicon.PREPOSITIONS if p.role == role]
    for role in ROLES
    for form in "psm"
}
_COORDINATORS, _SUBORDINATORS = [*lexicon.COORDINATORS], [*lexicon.SUBORDINATORS]
_STEMS = {
    person: [stem for stem in lexicon.ADJECTIVES if stem != ("neu" if person else "jung")]
    for person in (True, False)
}
_MODIFIERS = (*ROLES, "subject", "accusative", "dative")  # adverbials; adjectives in a phrase
_EXCLUDES = {"time": {"time", "often"}, "often": {"time", "often"}}  # if any is present
_EXCLUDES |= {"manner": {"manner", "say"}, "place": {"place"}}
_SINGULAR, _PLURAL = ["der", *lexicon.SINGULAR], ["der", *lexicon.PLURAL]  # twice as often der


class Drawing:
    """One sentence being drawn; remembers recent words, which a speaker seldom repeats."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.recent: deque[set[str]] = deque(maxlen=_MEMORY)  # nouns and verbs of each clause
        self.current: set[str] = set()

    def sentence(self, length: int) -> list[LinkedClause]:
        """Draw a sentence of exactly `length` words, full stop included; at least LEAST."""
        parts: list[LinkedClause] = []
        remaining = length - 1
        follows = ""  # by the last clause: complement, main
        while remaining:
            links, order, follows = self.tie(follows, not parts, remaining)
            remaining -= len(links)
            sizes = [
                size
                for size in range(LEAST - 1, _LONGEST_CLAUSE + 1)
                if remaining - size >= _LEAST_REST or (remaining == size and not follows)
            ]
            size = self.pick(sizes)
            remaining -= size
            if remaining and not follows and size <= _LONGEST_SAYING and self.chance(0.25):
                follows = "complement"
            clause = self.clause(size, order, follows == "complement")
            parts.append(LinkedClause(links, clause, order))
        return parts

    def tie(self, follows: str, begins: bool, remaining: int) -> tuple[tuple[str, ...], str, str]:
        """Draw the links of a clause and its word order; last, what has to follow it."""
        if follows == "complement":
            return (",", lexicon.COMPLEMENT), "final", ""
        if follows == "main":
            return (",",), "first", ""
        head = () if begins else (",", self.pick(_COORDINATORS))
        fate = self.rng.random()
        if fate < 0.2 and remaining >= len(head) + 1 + LEAST + _LEAST_REST:
            return (*head, self.pick(_SUBORDINATORS)), "final", "main"
        if fate < 0.6 and not begins:
            return (",", self.pick(_SUBORDINATORS)), "final", ""
        return head, "second", ""

    def clause(self, size: int, order: str, saying: bool) -> Clause:
        """Draw a clause of exactly `size` words: a bare one, filled up with modifiers."""
        described = ""  # which part gets a relative clause
        if size >= _LEAST_DESCRIBING and self.chance(0.3):
            roomy = size > _LEAST_DESCRIBING + 1 and not saying
            described = self.pick(["subject", "object" if roomy else "subject"])
        while True:
            self.current = set()
            clause = self.bare(saying, described, 0.8 if size < LEAST else 0.3)
            full = self.fill(clause, size - _size(clause, order), saying)
            if full and order == "second":
                fronts = [role for role in full.adverbials if role in ("time", "place")]
                full = full._replace(front=self.pick(["", *fronts]))
            if full and _size(full, order) == size:  # a modifier may part two merged commas
                self.recent.append(self.current)
                return full

    def bare(self, saying: bool, described: str, pronouns: float) -> Clause:
        """Draw a clause without adverbials and adjectives."""
        verb = self.fresh(_SAYING if saying else _DOING if described == "object" else _PLAIN)
        subject = self.subject(pronouns, described == "subject")
        accusative, dative = self.objects(verb, described == "object")
        return Clause(subject, verb, self.auxiliary(verb), accusative, dative, {})

    def fill(self, clause: Clause, spare: int, saying: bool) -> Clause | None:
        """Add modifiers of `spare` words in all; None if they have another number of words."""
        adverbials: dict[str, Adverbial] = {}
        for _ in range(8):
            if spare <= 0:
                break
            kind = self.pick(_MODIFIERS)
            phrase = getattr(clause, kind, None)
            if isinstance(phrase, Phrase) and not phrase.adjective:
                clause = clause._replace(**{kind: self.modify(phrase)})  # type: ignore[arg-type]
                spare -= 1
            elif kind in ROLES and not _EXCLUDES[kind] & {*adverbials, "say" * saying}:
                adverbial = self.adverbial(kind, clause.auxiliary)
                words = len(german_adverbial(clause._replace(adverbials={kind: adverbial}), kind))
                if words <= spare:
                    adverbials[kind] = adverbial
                    spare -= words
        ordered = {role: adverbials[role] for role in ROLES if role in adverbials}
        return None if spare else clause._replace(adverbials=ordered)

    def pick(self, options: Sequence[T]) -> T:
        """Choose one; only `Random.random` gives the same in every version of Python."""
        return options[int(self.rng.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, options: Sequence[W]) -> W:
        """Choose a noun or verb that was not used recently, if a few trials find one."""
        for _ in range(6):
            word = self.pick(options)
            if word.english not in self.current.union(*self.recent):
                break
        self.current.add(word.english)
        return word

    def auxiliary(self, verb: Verb) -> str:
        fate = self.rng.random()
        return "" if fate < 0.45 else verb.perfect if fate < 0.7 else self.pick(lexicon.MODALS)

    def subject(self, pronouns: float, described: bool = False) -> Pronoun | Phrase:
        fate = self.rng.random()
        if fate < pronouns and not described:
            return self.pick(lexicon.PRONOUNS)
        phrase = self.phrase("person", described)
        coordinated = fate > 0.92 and not described
        return phrase._replace(other=self.phrase("person")) if coordinated else phrase

    def objects(self, verb: Verb, described: bool = False) -> tuple[Phrase | None, Phrase | None]:
        kinds = verb.accusative
        accusative = self.phrase(self.pick(kinds), described) if kinds else None
        return accusative, self.phrase("person") if verb.dative else None

    def phrase(self, kind: str, described: bool = False) -> Phrase:
        noun = self.fresh(_NOUNS[kind])
        many = self.chance(0.3)
        clause = self.relative(noun) if described else None
        return Phrase(self.pick(_PLURAL if many else _SINGULAR), "", noun, many, clause)

    def modify(self, phrase: Phrase) -> Phrase:
        return phrase._replace(adjective=self.pick(_STEMS[phrase.noun.kind == "person"]))

    def relative(self, noun: Noun) -> Clause:
        """Draw a short relative clause: a person does something, or a thing undergoes it."""
        person = noun.kind == "person"
        verb = self.fresh(_PLAIN if person else _DONE_TO[noun.kind])
        subject = None if person else self.subject(0.5)
        accusative, dative = self.objects(verb) if person else (None, None)
        auxiliary, role = self.auxiliary(verb), self.pick(ROLES)
        adverbials = {role: self.adverbial(role, auxiliary)} if self.chance(0.3) else {}
        return Clause(subject, verb, auxiliary, accusative, dative, adverbials)

    def adverbial(self, role: str, auxiliary: str) -> Adverbial:
        form = "m" if auxiliary in lexicon.MODALS else "s" if auxiliary else "p"
        option = self.pick(_ADVERBIALS[role, form])
        if isinstance(option, Adverb):
            return option
        phrase = self.phrase("place" if role == "place" else "person")
        return Prepositional(option, self.modify(phrase) if self.chance(0.2) else phrase)


def _size(clause: Clause, order: str) -> int:
    """Return the number of words of a clause; a last comma belongs to the next one."""
    tokens = german_clause(clause, order)
    return len(tokens) - (tokens[-1] == ",")
