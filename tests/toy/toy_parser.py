"""Parses the embedded grammar's German into trees: it determines the English and the columns."""

from collections import defaultdict
from itertools import product

from nmt.toy import tree, words
from nmt.toy.grammar import (
    Adverbial,
    Clause,
    LinkedClause,
    Phrase,
    Prepositional,
    english,
    german,
    german_phrase,
)
from nmt.toy.lexicon import (
    ACCUSATIVE,
    ADJECTIVES,
    ADVERBS,
    AUXILIARIES,
    COMPLEMENT,
    COORDINATORS,
    DATIVE,
    NOMINATIVE,
    NOUNS,
    PLURAL,
    PREPOSITIONS,
    PRONOUNS,
    ROLES,
    SINGULAR,
    SUBORDINATORS,
    VERBS,
    Noun,
    Pronoun,
    Verb,
    article,
)

_ADVERBS = {adverb.german.split()[0]: adverb for adverb in ADVERBS}
_PREPOSITIONS = {p.german: p for p in PREPOSITIONS}
_PRONOUNS = {pronoun.german: pronoun for pronoun in PRONOUNS}
_CLAUSE_FINAL = {*SUBORDINATORS, COMPLEMENT}
_LINKS = {",", *COORDINATORS, *_CLAUSE_FINAL}
_DETERMINERS: dict[str, set[str]] = defaultdict(set)
for _name, _gender, _case in product({**SINGULAR, **PLURAL}, "mfnp", range(3)):
    _DETERMINERS[article(_name, _gender, _case)].add(_name)
_ADJECTIVES = {stem + e: stem for stem in ADJECTIVES for e in ("e", "en", "er", "es")}
_NOUNS: dict[str, list[tuple[Noun, bool]]] = defaultdict(list)
for _noun in NOUNS:
    _NOUNS[_noun.singular].append((_noun, False))
    for _form in {_noun.plural, _noun.dative_plural}:
        _NOUNS[_form].append((_noun, True))

# The verbal words of a clause -> verb, auxiliary, whether plural; two keys, for the finite verb
# stands apart from the rest in main clauses, and after it in subordinate ones
_APART: dict[tuple[str, ...], tuple[Verb, str, bool]] = {}
_LAST: dict[tuple[str, ...], tuple[Verb, str, bool]] = {}
for _verb, _many in product(VERBS, (False, True)):
    _finite = _verb.plural if _many else _verb.singular
    _APART[(_finite, *([_verb.particle] * bool(_verb.particle)))] = (_verb, "", _many)
    _LAST[(_verb.particle + _finite,)] = (_verb, "", _many)
    for _key, _auxiliary in AUXILIARIES.items():
        if _key in ("hat", "ist") and _key != _verb.perfect:
            continue
        _end = _verb.participle if _key == _verb.perfect else _verb.infinitive
        _APART[_auxiliary[_many], _end] = (_verb, _key, _many)
        _LAST[_end, _auxiliary[_many]] = (_verb, _key, _many)


def translate(source: str) -> str:
    """Return the one translation of a sentence; ValueError if it is not of the grammar."""
    return " ".join(english(parse(words(source)))).replace(" ,", ",").replace(" .", ".")


def columns(source: str) -> dict[str, str]:
    """Return the columns of a sentence, each as a line; ValueError as `translate`."""
    return tree.columns(parse(words(source)))


def parse(tokens: list[str]) -> list[LinkedClause]:
    """Parse a sentence that the grammar makes; any other raises ValueError."""
    try:
        parts = _Parser(within(tokens)).sentence()
    except (IndexError, KeyError, StopIteration):
        parts = []
    if not parts or german(parts) != tokens:
        raise ValueError(f"no sentence of the grammar: {' '.join(tokens)}")
    return parts


def within(tokens: list[str]) -> list[str]:
    """Return a sentence as it continues after a conjunction: only a noun keeps its capital."""
    if not tokens or tokens[0] in _NOUNS:
        return tokens
    return [tokens[0][:1].lower() + tokens[0][1:], *tokens[1:]]


class _Parser:
    """Recursive descent; `at` is the index of the next token."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = list(tokens)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def sentence(self) -> list[LinkedClause]:
        parts: list[LinkedClause] = []
        fronted = False
        while self.peek() != ".":
            links = self.links()
            if fronted:
                order = "first"
            elif _CLAUSE_FINAL & set(links):
                order = "final"
            else:
                order = "second"
            parts.append(LinkedClause(links, self.clause(order), order))
            fronted = order == "final" and not (links[0] == "," and len(links) == 2)
        return parts

    def links(self) -> tuple[str, ...]:
        start = self.at
        while self.peek() in _LINKS:
            self.at += 1
        return tuple(self.tokens[start : self.at])

    def clause(self, order: str) -> Clause:
        """A clause; in a main one the finite verb comes before or after the subject."""
        adverbials: dict[str, Adverbial] = {}
        front = ""
        verbal: list[str] = []
        subject: Pronoun | Phrase | None = None
        if order == "second":
            if fronted := self.adverbial():
                front = fronted[0]
                adverbials[front] = fronted[1]
            else:
                subject = self.subject()
        if order != "final":
            verbal.append(self.take())
        clause = self.rest(subject or self.subject(), verbal, adverbials)
        return clause._replace(front=front)

    def rest(
        self,
        subject: Pronoun | Phrase | None,
        verbal: list[str],
        adverbials: dict[str, Adverbial],
        gap: bool = False,
    ) -> Clause:
        """The middle field and the end of a clause; with a gap, its object has been named."""
        forms = _APART if verbal else _LAST
        objects: list[Phrase] = []
        while self.peek() not in (",", ".", ""):
            if adverbial := self.adverbial():
                adverbials[adverbial[0]] = adverbial[1]
            elif phrase := self.phrase(ACCUSATIVE, DATIVE):
                objects.append(phrase)
            else:
                verbal.append(self.take())
        verb, auxiliary, plural = forms[tuple(verbal)]
        if isinstance(subject, Pronoun):  # the verb distinguishes they from she
            word = subject.german
            subject = next(p for p in PRONOUNS if (p.german, p.plural) == (word, plural))
        in_dative = [o for o in objects if verb.dative and o.noun.kind == "person"]
        others = [o for o in objects if o not in in_dative]
        accusative, dative = (next(iter(o), None) for o in (others, in_dative))
        if len(others) != int(bool(verb.accusative) and not gap) or len(in_dative) != verb.dative:
            raise KeyError(" ".join(verbal))
        ordered = {role: adverbials[role] for role in ROLES if role in adverbials}
        return Clause(subject, verb, auxiliary, accusative, dative, ordered)

    def subject(self) -> Pronoun | Phrase:
        if pronoun := _PRONOUNS.get(self.peek()):
            self.at += 1
            return pronoun
        phrase = self.phrase(NOMINATIVE)
        if phrase is None:
            raise KeyError(self.peek())
        if self.peek() == "und":
            self.at += 1
            phrase = phrase._replace(other=self.phrase(NOMINATIVE))
        return phrase

    def adverbial(self) -> tuple[str, Adverbial] | None:
        if adverb := _ADVERBS.get(self.peek()):
            self.at += len(adverb.german.split())
            return adverb.role, adverb
        if self.peek() == "im":
            self.tokens[self.at : self.at + 1] = ["in", "dem"]
        preposition = _PREPOSITIONS.get(self.peek())
        if preposition is None:
            return None
        self.at += 1
        phrase = self.phrase(preposition.case)
        if phrase is None:  # the particle of mitbringen
            self.at -= 1
            return None
        return preposition.role, Prepositional(preposition, phrase)

    def phrase(self, *cases: int) -> Phrase | None:
        """A noun phrase in one of these cases; None, and nothing is read, if none begins here."""
        start = self.at
        determiners = _DETERMINERS.get(self.peek(), {""})
        self.at += "" not in determiners
        stem = _ADJECTIVES.get(self.peek(), "")
        self.at += bool(stem)
        nouns = _NOUNS.get(self.peek(), [])
        self.at += 1
        seen = self.tokens[start : self.at]
        for case, determiner, (noun, many) in product(cases, sorted(determiners), nouns):
            if determiner in (PLURAL if many else SINGULAR):
                phrase = Phrase(determiner, stem, noun, many)
                if german_phrase(phrase, case) == seen:
                    return phrase._replace(relative=self.relative(noun))
        self.at = start
        return None

    def relative(self, noun: Noun) -> Clause | None:
        """A relative clause; its second comma is left if that also begins what follows."""
        if self.peek() != "," or self.peek(1) not in ("der", "die", "das", "den"):
            return None
        self.at += 2
        gap = noun.kind != "person"
        clause = self.rest(self.subject() if gap else None, [], {}, gap)
        if self.peek() == "," and self.peek(1) not in _LINKS:
            self.at += 1
        return clause
