"""Columns from the tree of a sentence: head, depth and English position of each German word."""

from nmt.data.toy.grammar import Clause, LinkedClause, Phrase, Token, english, german
from nmt.data.toy.lexicon import COORDINATORS, Adverb

_Key = tuple[int, str]  # a node of the tree, and the role of a word in it


def columns(parts: list[LinkedClause]) -> dict[str, list[int]]:
    """Return the columns of a sentence; all but `language` have one integer per German word.

    A comma or full stop belongs to the word before it.

    heads: the 1-based position of the head word, 0 for the root, as in Universal Dependencies: the
        main verb leads its clause; its auxiliary, particle, subject, objects and adverbials hang
        on it, articles, adjectives and prepositions on their noun, a relative clause on the noun
        that it describes, a conjunction on the verb of its clause; a subordinate clause on the
        verb of the clause before it (or after it, if it stands first), further main clauses on
        the verb of the first.
    depth: steps to the root, which has 0.
    order: the position, from 0, of the word when the words are sorted by their positions in the
        English sentence; a permutation. A separable particle and the auxiliary of the perfect, for
        which English has no word, have the position of the verb; words at one position keep the
        German order.
    language: 0.
    """
    tokens = [token for token in german(parts) if isinstance(token, Token)]
    keys = [(id(token.owner), token.role) for token in tokens]
    above = _governors(parts)
    last = {key: number for number, key in enumerate(keys)}  # the last word: am -> Abend
    heads = []
    for number, key in enumerate(keys):
        head = key if last[key] != number else above[key]
        heads.append(0 if head is None else last[head] + 1)
    positions: dict[_Key | None, int] = {}
    for number, token in enumerate(english(parts)):
        if isinstance(token, Token):
            positions.setdefault((id(token.owner), token.role), number)
    english_of = [positions[key if key in positions else above[key]] for key in keys]
    order = [0] * len(keys)
    for rank, number in enumerate(sorted(range(len(keys)), key=english_of.__getitem__)):
        order[number] = rank
    return {"heads": heads, "order": order, "depth": _depths(heads), "language": [0]}


def _depths(heads: list[int]) -> list[int]:
    depths = []
    for head in heads:
        depth = 0
        while head:
            depth, head = depth + 1, heads[head - 1]
        depths.append(depth)
    return depths


def _governors(parts: list[LinkedClause]) -> dict[_Key, _Key | None]:
    """Return the governor of each key of the tree; None governs the root."""
    heads: dict[_Key, _Key | None] = {}
    verbs = [(id(part.clause), "verb") for part in parts]
    root = next(i for i, part in enumerate(parts) if part.order != "final")
    for i, part in enumerate(parts):
        fronted = part.order == "final" and parts[i + 1 : i + 2] and parts[i + 1].order == "first"
        main = i + 1 if fronted else i
        if part.order == "final":
            _clause(part.clause, verbs[i + 1 if fronted else i - 1], heads)
        else:
            _clause(part.clause, None if i == root else verbs[root], heads)
        for link in part.links:
            heads[id(part), link] = verbs[main if link in COORDINATORS else i]
    return heads


def _clause(clause: Clause, head: _Key | None, heads: dict[_Key, _Key | None]) -> None:
    verb = (id(clause), "verb")
    heads[verb] = head
    for role in ("auxiliary", "particle", "subject", "pronoun"):
        heads[id(clause), role] = verb
    for phrase in (clause.subject, clause.accusative, clause.dative):
        if isinstance(phrase, Phrase):
            _phrase(phrase, verb, heads)
    for role, adverbial in clause.adverbials.items():
        if isinstance(adverbial, Adverb):
            heads[id(clause), role] = verb
        else:
            heads[id(adverbial), "preposition"] = (id(adverbial.phrase), "noun")
            _phrase(adverbial.phrase, verb, heads)


def _phrase(phrase: Phrase, head: _Key, heads: dict[_Key, _Key | None]) -> None:
    noun = (id(phrase), "noun")
    heads[noun] = head
    for role in ("determiner", "adjective", "and"):
        heads[id(phrase), role] = noun
    if phrase.relative:
        _clause(phrase.relative, noun, heads)
    if phrase.other:
        _phrase(phrase.other, noun, heads)
