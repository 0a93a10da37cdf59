"""Sentences as trees, and how a tree is said in German and in English.

German: the finite verb stands second in a main clause, first after a fronted clause, and last in
a subordinate one; infinitive, participle or particle closes the clause; definite objects precede
the adverbials and indefinite ones follow them; adverbials come as time, manner, place.
English: subject, verb, object, then place, manner, time. A fronted adverbial is so in both.
"""

from typing import NamedTuple

from nmt.data.toy.lexicon import (
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
        """Whether a verb agrees with it in the plural."""
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


class Part(NamedTuple):
    """A clause and how it is tied to what precedes it."""

    links: tuple[str, ...]  # e.g. (",", "und", "wenn")
    clause: Clause
    order: str  # of the finite verb: second, first, final


def german(parts: list[Part]) -> list[str]:
    """Tokens of a German sentence, punctuation apart."""
    tokens: list[str] = []
    for part in parts:
        _join(tokens, [*part.links, *german_clause(part.clause, part.order)])
    if tokens[-1] == ",":  # the full stop ends a relative clause, too
        tokens.pop()
    return [*tokens, "."]


def german_clause(clause: Clause, order: str, plural: bool = False) -> list[str]:
    """Tokens of a clause; `plural` is the number of the subject if that is a relative pronoun."""
    verb = clause.verb
    if clause.subject:
        plural = clause.subject.plural
    if clause.auxiliary:
        finite = AUXILIARIES[clause.auxiliary][int(plural)]
        end = verb.participle if clause.auxiliary in ("hat", "ist") else verb.infinitive
    else:
        finite, end = (verb.plural if plural else verb.singular), verb.particle
    subject = _subject(clause.subject)
    field = _middle_field(clause)
    if order == "final":
        tail = [end, finite] if clause.auxiliary else [end + finite]
        return _chain(subject, field, tail)
    tail = [end] if end else []
    if order == "first":
        return _chain([finite], subject, field, tail)
    if clause.front:
        front = german_adverbial(clause.adverbials[clause.front])
        return _chain(front, [finite], subject, field, tail)
    return _chain(subject, [finite], field, tail)


def german_phrase(phrase: Phrase, case: int) -> list[str]:
    """Tokens of a noun phrase; an open relative clause gets its second comma from `_join`."""
    gender = "p" if phrase.many else phrase.noun.gender
    tokens = [article(phrase.determiner, gender, case)] if phrase.determiner else []
    if phrase.adjective:
        tokens.append(adjective(phrase.adjective, phrase.determiner, gender, case))
    singular, plural, dative_plural = phrase.noun[2:5]
    tokens.append((dative_plural if case == DATIVE else plural) if phrase.many else singular)
    if phrase.relative:
        role = ACCUSATIVE if phrase.relative.subject else NOMINATIVE
        tokens += [",", article("der", gender, role)]
        tokens += [*german_clause(phrase.relative, "final", phrase.many), ","]
    if phrase.other:
        tokens += ["und", *german_phrase(phrase.other, case)]
    return tokens


def _subject(subject: Pronoun | Phrase | None) -> list[str]:
    if isinstance(subject, Pronoun):
        return [subject.german]
    return german_phrase(subject, NOMINATIVE) if subject else []


def _middle_field(clause: Clause) -> list[str]:
    objects = [(clause.dative, DATIVE), (clause.accusative, ACCUSATIVE)]
    early = [german_phrase(o, c) for o, c in objects if o and o.determiner in DEFINITE]
    late = [german_phrase(o, c) for o, c in objects if o and o.determiner not in DEFINITE]
    adverbials = [
        german_adverbial(a) for role, a in clause.adverbials.items() if role != clause.front
    ]
    return _chain(*early, *adverbials, *late)


def german_adverbial(adverbial: Adverbial) -> list[str]:
    """Tokens of an adverb, or of a preposition (with dem, in becomes im) and its phrase."""
    if isinstance(adverbial, Adverb):
        return adverbial.german.split()
    tokens = german_phrase(adverbial.phrase, adverbial.preposition.case)
    if adverbial.preposition.german == "in" and tokens[0] == "dem":
        return ["im", *tokens[1:]]
    return [adverbial.preposition.german, *tokens]


def _chain(*pieces: list[str]) -> list[str]:
    tokens: list[str] = []
    for piece in pieces:
        _join(tokens, piece)
    return tokens


def _join(tokens: list[str], more: list[str]) -> None:
    """Append, merging the comma that ends a relative clause with one that begins `more`."""
    if tokens and tokens[-1] == "," and more and more[0] == ",":
        more = more[1:]
    tokens += more


def english(parts: list[Part]) -> list[str]:
    """Tokens of the English sentence, punctuation apart."""
    words = {**COORDINATORS, **SUBORDINATORS, COMPLEMENT: "that"}
    tokens: list[str] = []
    for part in parts:
        comma = part.links[:1] == (",",) and (len(part.links) == 1 or part.links[1] in COORDINATORS)
        tokens += [","] * comma
        tokens += [words[link] for link in part.links if link != ","]
        tokens += _english_clause(part.clause, part.order == "second")
    return [*tokens, "."]


def _english_clause(clause: Clause, main: bool, plural: bool = False) -> list[str]:
    subject = clause.subject
    if subject:
        plural = subject.plural
    if isinstance(subject, Pronoun):
        tokens = [subject.english]
    else:
        tokens = english_phrase(subject) if subject else []
    front = clause.front if main else ""
    if front:
        tokens = _english_adverbial(clause.adverbials[front]) + tokens
    tokens += _english_verb(clause, plural)
    if clause.accusative:
        tokens += english_phrase(clause.accusative)
    if clause.dative:
        tokens += ["to"] if clause.verb.accusative else []
        tokens += english_phrase(clause.dative)
    for role in ("place", "manner", "time"):
        if role in clause.adverbials and role != front:
            tokens += _english_adverbial(clause.adverbials[role])
    return tokens


def _english_verb(clause: Clause, plural: bool) -> list[str]:
    often = clause.adverbials.get("often")
    adverb = [often.english] if isinstance(often, Adverb) else []
    verb = clause.verb
    if not clause.auxiliary:
        return adverb + (verb.english if plural else verb.english_third).split()
    if clause.auxiliary in ("hat", "ist"):
        return adverb + verb.english_past.split()
    auxiliary = AUXILIARIES[clause.auxiliary][2 + int(plural)].split()
    if len(auxiliary) > 1:  # he often wants to read, but: he can often read
        return adverb + auxiliary + verb.english.split()
    return auxiliary + adverb + verb.english.split()


def english_phrase(phrase: Phrase) -> list[str]:
    """Tokens of a noun phrase, relative clause and coordinated phrase included."""
    word = (PLURAL if phrase.many else SINGULAR)[phrase.determiner]
    tokens = [ADJECTIVES[phrase.adjective]] if phrase.adjective else []
    tokens.append(phrase.noun.english_plural if phrase.many else phrase.noun.english)
    if word == "a" and tokens[0][0] in "aeiou":
        word = "an"
    if word:
        tokens.insert(0, word)
    if phrase.relative:
        tokens.append("that" if phrase.relative.subject else "who")
        tokens += _english_clause(phrase.relative, False, phrase.many)
    if phrase.other:
        tokens += ["and", *english_phrase(phrase.other)]
    return tokens


def _english_adverbial(adverbial: Adverbial) -> list[str]:
    if isinstance(adverbial, Adverb):
        return adverbial.english.split()
    return [*adverbial.preposition.english.split(), *english_phrase(adverbial.phrase)]
