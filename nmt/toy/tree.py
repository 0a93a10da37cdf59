"""Columns from the tree of a sentence: head, label, depth and English position of each word."""

from nmt.toy.grammar import Clause, LinkedClause, Phrase, Token, english, german
from nmt.toy.lexicon import COMPLEMENT, COORDINATORS, Adverb

# labels of edges, as in Universal Dependencies; the column `labels` has their indices in this list
LABELS = [
    "root", "nsubj", "obj", "iobj", "obl", "advmod", "aux", "compound", "det", "amod", "case",
    "mark", "cc", "conj", "acl", "advcl", "ccomp", "fixed",
]  # fmt: skip

_Key = tuple[int, str]  # a node of the tree, and the role of a word in it
_Heads = dict[_Key, tuple[_Key | None, str]]  # the governor of each key, and the label


def columns(parts: list[LinkedClause]) -> dict[str, str]:
    """The columns of a sentence, each as a line: integers, all but `language` one per German word.

    A comma or full stop belongs to the word before it.

    heads: the 1-based position of the head word, 0 for the root, as in Universal Dependencies: the
        main verb leads its clause; its auxiliary, particle, subject, objects and adverbials hang
        on it, articles, adjectives and prepositions on their noun, a relative clause on the noun
        that it describes, a conjunction on the verb of its clause; a subordinate clause on the
        verb of the clause before it (or after it, if it stands first), further main clauses on
        the verb of the first.
    labels: the label of the edge to the head, an index of LABELS. Words of one expression, as in
        "am Abend", are `fixed` on its last word.
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
    heads, labels = [], []
    for number, key in enumerate(keys):
        head, label = (key, "fixed") if last[key] != number else above[key]
        heads.append(0 if head is None else last[head] + 1)
        labels.append(LABELS.index(label))
    positions: dict[_Key | None, int] = {}
    for number, token in enumerate(english(parts)):
        if isinstance(token, Token):
            positions.setdefault((id(token.owner), token.role), number)
    english_of = [positions[key if key in positions else above[key][0]] for key in keys]
    by_place = sorted(range(len(keys)), key=english_of.__getitem__)
    order = sorted(range(len(keys)), key=by_place.__getitem__)  # the inverse permutation
    depth = [_depth(heads, head) for head in heads]
    values_of = {"heads": heads, "labels": labels, "order": order, "depth": depth, "language": [0]}
    return {name: " ".join(map(str, values)) for name, values in values_of.items()}


def _depth(heads: list[int], head: int) -> int:
    return 1 + _depth(heads, heads[head - 1]) if head else 0


def _governors(parts: list[LinkedClause]) -> _Heads:
    """Return the governor of each key of the tree, and the label; None governs the root."""
    heads: _Heads = {}
    verbs = [(id(part.clause), "verb") for part in parts]
    root = next(i for i, part in enumerate(parts) if part.order != "final")
    for i, part in enumerate(parts):
        fronted = part.order == "final" and parts[i + 1 : i + 2] and parts[i + 1].order == "first"
        if part.order == "final":
            label = "ccomp" if COMPLEMENT in part.links else "advcl"
            _clause(part.clause, verbs[i + 1 if fronted else i - 1], label, heads)
        elif i == root:
            _clause(part.clause, None, "root", heads)
        else:
            _clause(part.clause, verbs[root], "conj", heads)
        for link in part.links:
            main = verbs[i + 1 if fronted else i]
            is_cc = link in COORDINATORS
            heads[id(part), link] = (main, "cc") if is_cc else (verbs[i], "mark")
    return heads


def _clause(clause: Clause, head: _Key | None, label: str, heads: _Heads) -> None:
    verb = (id(clause), "verb")
    heads[verb] = head, label
    heads[id(clause), "auxiliary"] = verb, "aux"
    heads[id(clause), "particle"] = verb, "compound"
    heads[id(clause), "subject"] = verb, "nsubj"
    heads[id(clause), "pronoun"] = verb, "obj" if clause.subject else "nsubj"
    objects = (clause.subject, "nsubj"), (clause.accusative, "obj"), (clause.dative, "iobj")
    for phrase, role in objects:
        if isinstance(phrase, Phrase):
            _phrase(phrase, verb, role, heads)
    for role, adverbial in clause.adverbials.items():
        if isinstance(adverbial, Adverb):
            heads[id(clause), role] = verb, "advmod"
        else:
            heads[id(adverbial), "preposition"] = (id(adverbial.phrase), "noun"), "case"
            _phrase(adverbial.phrase, verb, "obl", heads)


def _phrase(phrase: Phrase, head: _Key, label: str, heads: _Heads) -> None:
    noun = (id(phrase), "noun")
    heads[noun] = head, label
    heads[id(phrase), "determiner"] = noun, "det"
    heads[id(phrase), "adjective"] = noun, "amod"
    heads[id(phrase), "and"] = noun, "cc"
    if phrase.relative:
        _clause(phrase.relative, noun, "acl", heads)
    if phrase.other:
        _phrase(phrase.other, noun, "conj", heads)
