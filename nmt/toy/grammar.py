"""Sentences as trees, and their realisation in German and in English.

German: the finite verb stands second in a main clause, first after a fronted clause, and last in
a subordinate one; infinitive, participle or particle closes the clause; definite objects precede
the adverbials and indefinite ones follow them; adverbials come as time, manner, place.
English: subject, verb, object, then place, manner, time. A fronted adverbial is fronted in both.
Every word knows its role in a node of the tree, so that German and English words are aligned.
"""

from itertools import chain, pairwise
from typing import NamedTuple

from nmt.toy.lexicon import (
    ACCUSATIVE,
    ADJECTIVES,
    AUXILIARIES,
    COMPLEMENT,
    COORDINATORS,
    DATIVE,
    DEFINITE,
    NOMINATIVE,
    PLURAL,
    SINGULAR,
    SUBORDINATORS,
    Adverb,
    Noun,
    Preposition,
    Pronoun,
    Verb,
    adjective,
    article,
)


class Token(str):
    """A word, and the part of the tree that it realises: its `role` (verb, ...) in `owner`."""

    owner: object  # LinkedClause, Clause, Phrase or Prepositional
    role: str


class Phrase(NamedTuple):
    """A noun phrase: `die alte Frau, die schläft,` or `zwei Kinder und der Mann`."""

    determiner: str
    adjective: str  # stem, or ""
    noun: Noun
    many: bool
    relative: "Clause | None" = None
    other: "Phrase | None" = None  # coordinated with und

    @property
    def plural(self) -> bool:
        """Return whether its verb is in the plural."""
        return self.many or self.other is not None


class Prepositional(NamedTuple):
    """A preposition with its noun phrase."""

    preposition: Preposition
    phrase: Phrase


Adverbial = Adverb | Prepositional


class Clause(NamedTuple):
    """One clause; in a relative clause, the part that the pronoun stands for is None."""

    subject: Pronoun | Phrase | None
    verb: Verb
    auxiliary: str  # key of AUXILIARIES, or "" for the present tense
    accusative: Phrase | None
    dative: Phrase | None
    adverbials: dict[str, Adverbial]  # by role, German order: time, often, manner, place
    front: str = ""  # role of the adverbial before the verb


class LinkedClause(NamedTuple):
    """A clause and how it is linked to the preceding one."""

    links: tuple[str, ...]  # e.g. (",", "und", "wenn")
    clause: Clause
    order: str  # of the finite verb: second, first, final


def german(parts: list[LinkedClause]) -> list[str]:
    """Tokens of a German sentence, punctuation apart; the first begins with a capital letter."""
    tokens: list[str] = []
    for part in parts:
        tokens += [link if link == "," else _word(link, part, link) for link in part.links]
        tokens += german_clause(part.clause, part.order)
    tokens = _merged(tokens)
    if tokens[-1] == ",":  # the full stop ends a relative clause, too
        tokens.pop()
    return [*_capitalised(tokens), "."]


def german_clause(clause: Clause, order: str, plural: bool = False) -> list[str]:
    """Tokens of a clause; `plural` is the number of the subject if that is a relative pronoun."""
    verb = clause.verb
    if clause.subject:
        plural = clause.subject.plural
    subject = _subject(clause)
    field = _middle_field(clause)
    if clause.auxiliary:
        finite = _word(AUXILIARIES[clause.auxiliary][int(plural)], clause, "auxiliary")
        perfect = clause.auxiliary in ("hat", "ist")
        tail = _words(verb.participle if perfect else verb.infinitive, clause, "verb")
        if order == "final":
            return _merged([*subject, *field, *tail, finite])
    else:
        form = verb.plural if plural else verb.singular
        if order == "final":
            return _merged([*subject, *field, *_words(verb.particle + form, clause, "verb")])
        finite, tail = _word(form, clause, "verb"), _words(verb.particle, clause, "particle")
    if order == "first":
        return _merged([finite, *subject, *field, *tail])
    if clause.front:
        front = german_adverbial(clause, clause.front)
        return _merged([*front, finite, *subject, *field, *tail])
    return _merged([*subject, finite, *field, *tail])


def german_phrase(phrase: Phrase, case: int) -> list[str]:
    """Tokens of a noun phrase; a relative clause ends in a comma, see `_merged`."""
    gender = "p" if phrase.many else phrase.noun.gender
    tokens: list[str] = []
    if phrase.determiner:
        tokens += _words(article(phrase.determiner, gender, case), phrase, "determiner")
    if phrase.adjective:
        form = adjective(phrase.adjective, phrase.determiner, gender, case)
        tokens += _words(form, phrase, "adjective")
    singular, plural, dative_plural = phrase.noun[2:5]
    form = (dative_plural if case == DATIVE else plural) if phrase.many else singular
    tokens += _words(form, phrase, "noun")
    if relative := phrase.relative:
        role = ACCUSATIVE if relative.subject else NOMINATIVE
        tokens += [",", _word(article("der", gender, role), relative, "pronoun")]
        tokens += [*german_clause(relative, "final", phrase.many), ","]
    if phrase.other:
        tokens += [_word("und", phrase.other, "and"), *german_phrase(phrase.other, case)]
    return tokens


def _subject(clause: Clause) -> list[str]:
    subject = clause.subject
    if isinstance(subject, Pronoun):
        return _words(subject.german, clause, "subject")
    return german_phrase(subject, NOMINATIVE) if subject else []


def _middle_field(clause: Clause) -> list[str]:
    objects = [(clause.dative, DATIVE), (clause.accusative, ACCUSATIVE)]
    early = [german_phrase(o, c) for o, c in objects if o and o.determiner in DEFINITE]
    late = [german_phrase(o, c) for o, c in objects if o and o.determiner not in DEFINITE]
    adverbials = [
        german_adverbial(clause, role) for role in clause.adverbials if role != clause.front
    ]
    return [*chain.from_iterable([*early, *adverbials, *late])]


def german_adverbial(clause: Clause, role: str) -> list[str]:
    """Tokens of an adverb, or of a preposition (with dem, in becomes im) and its phrase."""
    adverbial = clause.adverbials[role]
    if isinstance(adverbial, Adverb):
        return _words(adverbial.german, clause, role)
    tokens = german_phrase(adverbial.phrase, adverbial.preposition.case)
    if adverbial.preposition.german == "in" and tokens[0] == "dem":
        return [_word("im", adverbial, "preposition"), *tokens[1:]]
    return [*_words(adverbial.preposition.german, adverbial, "preposition"), *tokens]


def _merged(tokens: list[str]) -> list[str]:
    """Return the tokens with one comma where one that ends a relative clause meets another."""
    return [token for before, token in pairwise(["", *tokens]) if not before == token == ","]


def _capitalised(tokens: list[str]) -> list[str]:
    """Return the tokens with a capital letter at the start; the first word keeps its role."""
    first, *others = tokens
    assert isinstance(first, Token)  # no sentence begins with a comma
    return [_word(first[0].upper() + first[1:], first.owner, first.role), *others]


def _word(text: str, owner: object, role: str) -> str:
    token = Token(text)
    token.owner, token.role = owner, role
    return token


def _words(text: str, owner: object, role: str) -> list[str]:
    return [_word(word, owner, role) for word in text.split()]


def english(parts: list[LinkedClause]) -> list[str]:
    """Tokens of the English sentence, punctuation apart; the first begins with a capital."""
    words = {**COORDINATORS, **SUBORDINATORS, COMPLEMENT: "that"}
    tokens: list[str] = []
    for part in parts:
        comma = part.links[:1] == (",",) and (len(part.links) == 1 or part.links[1] in COORDINATORS)
        tokens += [","] * comma
        tokens += [_word(words[link], part, link) for link in part.links if link != ","]
        tokens += _english_clause(part.clause, part.order == "second")
    return [*_capitalised(tokens), "."]


def _english_clause(clause: Clause, main: bool, plural: bool = False) -> list[str]:
    subject = clause.subject
    if subject:
        plural = subject.plural
    if isinstance(subject, Pronoun):
        tokens = _words(subject.english, clause, "subject")
    else:
        tokens = english_phrase(subject) if subject else []
    front = clause.front if main else ""
    if front:
        tokens = _english_adverbial(clause, front) + tokens
    tokens += _english_verb(clause, plural)
    if clause.accusative:
        tokens += english_phrase(clause.accusative)
    if clause.dative:
        tokens += ["to"] if clause.verb.accusative else []
        tokens += english_phrase(clause.dative)
    for role in ("place", "manner", "time"):
        if role in clause.adverbials and role != front:
            tokens += _english_adverbial(clause, role)
    return tokens


def _english_verb(clause: Clause, plural: bool) -> list[str]:
    often = clause.adverbials.get("often")
    adverb = _words(often.english, clause, "often") if isinstance(often, Adverb) else []
    verb = clause.verb
    if not clause.auxiliary:
        return adverb + _words(verb.english if plural else verb.english_third, clause, "verb")
    if clause.auxiliary in ("hat", "ist"):
        return adverb + _words(verb.english_past, clause, "verb")
    auxiliary = _words(AUXILIARIES[clause.auxiliary][2 + int(plural)], clause, "auxiliary")
    if len(auxiliary) > 1:  # he often wants to read, but: he can often read
        return adverb + auxiliary + _words(verb.english, clause, "verb")
    return auxiliary + adverb + _words(verb.english, clause, "verb")


def english_phrase(phrase: Phrase) -> list[str]:
    """Tokens of a noun phrase, relative clause and coordinated phrase included."""
    word = (PLURAL if phrase.many else SINGULAR)[phrase.determiner]
    noun = phrase.noun.english_plural if phrase.many else phrase.noun.english
    adjectives = _words(ADJECTIVES.get(phrase.adjective, ""), phrase, "adjective")
    tokens = [*adjectives, *_words(noun, phrase, "noun")]
    if word == "a" and tokens[0][0] in "aeiou":
        word = "an"
    tokens[:0] = _words(word, phrase, "determiner")
    if relative := phrase.relative:
        tokens.append(_word("that" if relative.subject else "who", relative, "pronoun"))
        tokens += _english_clause(relative, False, phrase.many)
    if phrase.other:
        tokens += [_word("and", phrase.other, "and"), *english_phrase(phrase.other)]
    return tokens


def _english_adverbial(clause: Clause, role: str) -> list[str]:
    adverbial = clause.adverbials[role]
    if isinstance(adverbial, Adverb):
        return _words(adverbial.english, clause, role)
    preposition = _words(adverbial.preposition.english, adverbial, "preposition")
    return [*preposition, *english_phrase(adverbial.phrase)]
