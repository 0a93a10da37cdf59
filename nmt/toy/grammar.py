"""Sentences as trees, and their realisation in German and in English.

German: the finite verb stands second in a main clause, first after a fronted clause, and last in
a subordinate one; infinitive, participle or particle closes the clause; definite objects precede
the adverbials and indefinite ones follow them; adverbials come as time, manner, place.
English: subject, verb, object, then place, manner, time. A fronted adverbial is fronted in both.
Every word knows its role in a node of the tree, so that German and English words are aligned.
"""

from itertools import chain, pairwise
from typing import NamedTuple

from nmt.toy import lexicon
from nmt.toy.lexicon import Adverb, Noun, Preposition, Pronoun, Verb


class Token(str):
    """A word, and the part of the tree that it realises: its `role` (verb, ...) in `owner`."""

    owner: object  # LinkedClause, Clause, Phrase or Prepositional
    role: str

    def __new__(cls, text: str, owner: object, role: str) -> "Token":
        token = super().__new__(cls, text)
        token.owner, token.role = owner, role
        return token


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
        tokens += [link if link == "," else Token(link, part, link) for link in part.links]
        tokens += german_clause(part.clause, part.order)
    tokens = _merge(tokens)
    return [*_capitalise(tokens[:-1] if tokens[-1] == "," else tokens), "."]


def german_clause(clause: Clause, order: str, plural: bool = False) -> list[str]:
    """Tokens of a clause; `plural` is the number of the subject if that is a relative pronoun."""
    verb, subject, middle = clause.verb, _german_subject(clause), _middle_field(clause)
    plural = clause.subject.plural if clause.subject else plural
    if clause.auxiliary:
        finite = Token(lexicon.AUXILIARIES[clause.auxiliary][int(plural)], clause, "auxiliary")
        perfect = clause.auxiliary in lexicon.PERFECT
        tail = _words(verb.participle if perfect else verb.infinitive, clause, "verb")
    else:
        form = verb.plural if plural else verb.singular
        finite = Token(verb.particle * (order == "final") + form, clause, "verb")
        tail = _words(verb.particle * (order != "final"), clause, "particle")
    if order == "final":
        return _merge([*subject, *middle, *tail, finite])
    if order == "first":
        return _merge([finite, *subject, *middle, *tail])
    if clause.front:
        front = german_adverbial(clause, clause.front)
        return _merge([*front, finite, *subject, *middle, *tail])
    return _merge([*subject, finite, *middle, *tail])


def german_phrase(phrase: Phrase, case: int) -> list[str]:
    """Tokens of a noun phrase; a relative clause ends in a comma, see `_merge`."""
    gender = "p" if phrase.many else phrase.noun.gender
    tokens = _words(lexicon.article(phrase.determiner, gender, case), phrase, "determiner")
    if phrase.adjective:
        form = lexicon.adjective(phrase.adjective, phrase.determiner, gender, case)
        tokens += _words(form, phrase, "adjective")
    noun = phrase.noun
    many = noun.dative_plural if case == lexicon.DATIVE else noun.plural
    tokens += _words(many if phrase.many else noun.singular, phrase, "noun")
    if relative := phrase.relative:
        role = lexicon.ACCUSATIVE if relative.subject else lexicon.NOMINATIVE
        tokens += [",", Token(lexicon.article("der", gender, role), relative, "pronoun")]
        tokens += [*german_clause(relative, "final", phrase.many), ","]
    if phrase.other:
        tokens += [Token("und", phrase.other, "and"), *german_phrase(phrase.other, case)]
    return tokens


def _german_subject(clause: Clause) -> list[str]:
    subject = clause.subject
    if isinstance(subject, Pronoun):
        return _words(subject.german, clause, "subject")
    return german_phrase(subject, lexicon.NOMINATIVE) if subject else []


def _middle_field(clause: Clause) -> list[str]:
    early, late = list[str](), list[str]()
    for phrase, case in ((clause.dative, lexicon.DATIVE), (clause.accusative, lexicon.ACCUSATIVE)):
        if phrase:
            part = early if phrase.determiner in lexicon.DEFINITE else late
            part += german_phrase(phrase, case)
    adverbials = (german_adverbial(clause, r) for r in clause.adverbials if r != clause.front)
    return [*early, *chain.from_iterable(adverbials), *late]


def german_adverbial(clause: Clause, role: str) -> list[str]:
    """Tokens of an adverb, or of a preposition (with dem, in becomes im) and its phrase."""
    adverbial = clause.adverbials[role]
    if isinstance(adverbial, Adverb):
        return _words(adverbial.german, clause, role)
    tokens = german_phrase(adverbial.phrase, adverbial.preposition.case)
    if adverbial.preposition.german == "in" and tokens[0] == "dem":
        return [Token("im", adverbial, "preposition"), *tokens[1:]]
    return [*_words(adverbial.preposition.german, adverbial, "preposition"), *tokens]


def _merge(tokens: list[str]) -> list[str]:
    """Return the tokens with one comma where one that ends a relative clause meets another."""
    return [token for before, token in pairwise(["", *tokens]) if not before == token == ","]


def _capitalise(tokens: list[str]) -> list[str]:
    """Return the tokens with a capital letter at the start; the first word keeps its role."""
    first, *rest = tokens
    assert isinstance(first, Token)  # no sentence begins with a comma
    return [Token(first[0].upper() + first[1:], first.owner, first.role), *rest]


def _words(text: str, owner: object, role: str) -> list[str]:
    return [Token(word, owner, role) for word in text.split()]


def english(parts: list[LinkedClause]) -> list[str]:
    """Tokens of the English sentence, punctuation apart; the first begins with a capital."""
    words = {**lexicon.COORDINATORS, **lexicon.SUBORDINATORS, lexicon.COMPLEMENT: "that"}
    tokens: list[str] = []
    for part in parts:
        if part.links == (",",) or lexicon.COORDINATORS.keys() & part.links:
            tokens.append(",")
        tokens += [Token(words[link], part, link) for link in part.links if link != ","]
        tokens += _english_clause(part.clause, part.order == "second")
    return [*_capitalise(tokens), "."]


def _english_clause(clause: Clause, main: bool, plural: bool = False) -> list[str]:
    subject, tokens = clause.subject, list[str]()
    front = clause.front if main else ""
    if front:
        tokens += _english_adverbial(clause, front)
    if isinstance(subject, Pronoun):
        tokens += _words(subject.english, clause, "subject")
    elif subject:
        tokens += english_phrase(subject)
    tokens += _english_verb(clause, subject.plural if subject else plural)
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
    adverb = _english_adverbial(clause, "often") if "often" in clause.adverbials else []
    verb, auxiliary = clause.verb, list[str]()
    form = verb.english if plural or clause.auxiliary else verb.english_third
    if clause.auxiliary in lexicon.PERFECT:
        form = verb.english_past
    elif clause.auxiliary:
        modal = lexicon.AUXILIARIES[clause.auxiliary][2 + int(plural)]
        auxiliary = _words(modal, clause, "auxiliary")
    often_first = len(auxiliary) > 1  # he often wants to read, but: he can often read
    before = [*adverb, *auxiliary] if often_first else [*auxiliary, *adverb]
    return [*before, *_words(form, clause, "verb")]


def english_phrase(phrase: Phrase) -> list[str]:
    """Tokens of a noun phrase, relative clause and coordinated phrase included."""
    word = (lexicon.PLURAL if phrase.many else lexicon.SINGULAR)[phrase.determiner]
    noun = phrase.noun.english_plural if phrase.many else phrase.noun.english
    tokens = _words(lexicon.ADJECTIVES.get(phrase.adjective, ""), phrase, "adjective")
    tokens += _words(noun, phrase, "noun")
    an = word == "a" and tokens[0][0] in "aeiou"
    tokens[:0] = _words("an" if an else word, phrase, "determiner")
    if relative := phrase.relative:
        tokens.append(Token("that" if relative.subject else "who", relative, "pronoun"))
        tokens += _english_clause(relative, False, phrase.many)
    if phrase.other:
        tokens += [Token("and", phrase.other, "and"), *english_phrase(phrase.other)]
    return tokens


def _english_adverbial(clause: Clause, role: str) -> list[str]:
    adverbial = clause.adverbials[role]
    if isinstance(adverbial, Adverb):
        return _words(adverbial.english, clause, role)
    preposition = _words(adverbial.preposition.english, adverbial, "preposition")
    return [*preposition, *english_phrase(adverbial.phrase)]
