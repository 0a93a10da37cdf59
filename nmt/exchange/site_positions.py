"""Positions of a site as plain tables, found by probing its encodings.

Other engines have a few forms of positions: vectors added to the embeddings, vectors or biases by
distance, rotations. The hooks that its encodings override decide which form a site may have. The
tables are filled by calling these hooks or, for vectors by distance, `by_distance`; then the hooks
are compared with the tables on random sentences, and a site that differs is refused.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, causal, list_computed, with_positions
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.site import SiteEncodings
from nmt.errors import UserError
from nmt.text.vocab import SPECIALS

EXACT = 1e-5  # largest difference by rounding, relative to the largest number
HIDDEN = -3e4  # a bias that hides a key, in float16 too: its probability is 0
CHECKED = 21  # most tokens of a sentence in which all pairs are compared with the tables
ON_KEYS = ("keys", "keys and values", "kernels of queries")  # roles of vectors by distance
ON_VALUES = ("values", "keys and values")
KINDS = {
    "embed": "input", "scores": "vectors", "outputs": "vectors", "bias": "bias",
    "project": "turned",
}  # hook -> form of positions  # fmt: skip
NEAREST = {
    **dict.fromkeys(("embed", "layer_input", "readout"), "encoding=absolute"),
    **dict.fromkeys(("scores", "outputs"), "encoding=relative"),
    "bias": "encoding=t5",
    "normalise": "encoding=none",
    "project": "encoding=rotary",
}  # hook -> the option of an expressible form that comes nearest


class Rotations(NamedTuple):
    """Rotations of queries and keys: component pair b turns by position base^(-2b / dim) / slow."""

    dim: int
    base: float
    interleaved: bool
    slow: float


class SitePositions(NamedTuple):
    """The positions of a site; None: it has none of that form."""

    table: Tensor | None = None  # [position, dim], added to the scaled embeddings
    keys: Tensor | None = None  # [layers, 2 tau + 1, head_dim] by distance, key minus query
    values: Tensor | None = None  # likewise; both or neither are there
    bias: Tensor | None = None  # [layers, heads, 2 reach + 1] by distance, added after scaling
    turns: Rotations | None = None
    scale: float | None = None  # of the scores; None: 1 / sqrt(head_dim)
    limit: int | None = None  # tokens of the longest sequence for which the tables are right


class _Probe(NamedTuple):
    """A site whose encodings are probed, up to a length."""

    site: SiteEncodings
    dims: Dims
    length: int

    def context(self, queries: Tensor, keys: int, rows: int = 1, seed: int = 0) -> Context:
        """The context of some queries in a sentence of random words."""
        draw = torch.Generator().manual_seed(seed)
        there = torch.arange(keys)[None]
        square = len(queries) == keys
        causal_mask = square and self.dims.site == "decoder"
        words = torch.randint(SPECIALS, self.dims.vocab, (rows, len(queries)), generator=draw)
        return Context(
            self.dims.site,
            query_positions=there if square else queries[None],
            key_positions=there,
            new_key_positions=there,
            rows=rows,
            allowed=causal(keys, keys, there.device) if causal_mask else None,
            lengths=torch.full((rows,), keys),
            tokens=words,
        )

    @property
    def few(self) -> int:
        """Tokens of a sentence in which all pairs are compared with the tables."""
        return min(self.length, CHECKED)

    @property
    def ends(self) -> list[Tensor]:
        """Queries: the last token, for all distances behind, and the first, for those ahead.

        A decoder never looks ahead.
        """
        last, first = torch.tensor([self.length - 1]), torch.tensor([0])
        return [last] if self.dims.site == "decoder" else [last, first]

    def having(self, *hooks: str) -> list[Encoding]:
        """The entries that override one of the hooks."""
        return [e for e in self.site if any(hook in e.hooks for hook in hooks)]

    def refuse(self, why: str, hook: str, entries: Sequence[Encoding] = ()) -> UserError:
        """An error that names entries (by default all of the hook's form) and a near encoding."""
        form = [other for other, kind in KINDS.items() if kind == KINDS.get(hook)]
        names = "+".join(e.name for e in entries or self.having(*form))
        return UserError(
            f"encoding.{names}: cannot be exported from the {self.dims.site}, because {why}; the "
            f"nearest that can is {NEAREST[hook]}"
        )


@torch.inference_mode()
def read(site: SiteEncodings, dims: Dims, longest: int) -> SitePositions:
    """The form of a site's positions, for up to `longest` tokens; UserError if it has none."""
    limit = site.max_length(training=False)
    probe = _Probe(site, dims, min(longest, limit or longest))
    _refuse_needs(probe)
    forms = {KINDS[h]: h for h in KINDS if probe.having(h)}
    context = probe.context(torch.arange(probe.few), probe.few)
    if "bias" in forms and all(site.bias(n, context) is None for n in range(dims.layers)):
        del forms["bias"]  # as it is configured
    if "input" in forms and len(forms) > 1:
        other = next(h for form, h in forms.items() if form != "input")
        why = "nothing is added to the embeddings where attention knows positions of its own"
        raise probe.refuse(why, other, probe.having("embed", other))
    positions = SitePositions(scale=site.score_scale(layer=0), limit=limit)
    if "turned" in forms:
        positions = positions._replace(turns=_rotations(probe))
    if not {"vectors", "bias"} & set(forms):
        if "turned" in forms:
            return positions
        return positions._replace(table=_table(probe), limit=probe.length)
    farthest = 0  # beyond this distance the tables do not change
    if "bias" in forms:
        bias = _bias(probe)
        farthest = _reach(bias, 2)
        bias = bias[..., probe.length - 1 - farthest : probe.length + farthest]
        positions = positions._replace(bias=bias)
    if "vectors" in forms:
        keys, values = _vectors(probe)
        most = max(_reach(keys, 1), _reach(values, 1))
        # together with biases CTranslate2 takes this for the last distance with its own bucket
        wide = max(most, farthest + 2) if "bias" in forms else most
        positions = positions._replace(keys=_resize(keys, wide), values=_resize(values, wide))
        farthest = max(farthest, most)
    return positions if farthest < probe.length - 1 else positions._replace(limit=probe.length)


def _refuse_needs(probe: _Probe) -> None:
    for e in probe.site:
        column = min(e.columns, default="")
        why_remembers = "it keeps something else of each word than key and value"
        for needed, why, hook in (  # and the hook that could do without
            (e.dims.served_layers, "it serves some layers only", (*e.hooks, "embed")[0]),
            (column, f"it reads the column {column}", "scores"),
            (e.needs_lengths, "it is told how long the output is to be", "embed"),
            (e.streams > 1, "its states are complex", "embed"),
            ("layer_input" in e.hooks, "it changes the input of every layer", "layer_input"),
            ("readout" in e.hooks, "it changes the top of the stack", "readout"),
            (e.changes_width, "it makes queries and keys wider", "project"),
            (not e.reads_probabilities, "it gates what attention gives", "outputs"),
            ("normalise" in e.hooks, "it takes the place of softmax", "normalise"),
            (_remembers(probe, e), why_remembers, "bias"),
            (e.positions.distances_only, "its distances are counted along edges", "scores"),
        ):
            if needed:
                raise probe.refuse(why, hook, [e])


def _remembers(probe: _Probe, e: Encoding) -> bool:
    """Whether it caches more than keys and values, so that scores depend on the words."""
    if "project" not in e.hooks:
        return False
    context = with_positions(probe.context(torch.arange(1), 1), e.positions)
    x, split = torch.zeros(1, 1, probe.dims.dim), (1, probe.dims.heads, 1, probe.dims.head_dim)
    e.project(lambda *_: (x.view(split),) * 3, x, x, x, 0, context)
    return "remembered" in list_computed(context)


def _table(probe: _Probe) -> Tensor:
    def added(x: Tensor, seed: int) -> Tensor:
        n = x.shape[1]
        return probe.site.embed(x, probe.context(torch.arange(n), n, len(x), seed)) - x

    n, dim = probe.length, probe.dims.dim
    table = added(torch.zeros(1, n, dim), 0)[0]
    draw = torch.Generator().manual_seed(1)
    others = added(torch.randn(2, probe.few, dim, generator=draw), 2)
    if not _close(others, table[: probe.few]):
        why = "what it adds to an embedding depends on the words, or on how many there are"
        raise probe.refuse(why, "embed")
    return table


def _bias(probe: _Probe) -> Tensor:
    """The bias of each distance [layers, heads, 2 length - 1]."""

    def add(layer: int, queries: Tensor, keys: int, seed: int) -> Tensor:
        bias = probe.site.bias(layer, probe.context(queries, keys, 1, seed))
        assert bias is not None  # an entry overrides the hook
        return bias.expand(1, probe.dims.heads, -1, -1)[0].float().clamp(min=HIDDEN)

    tables = []
    for layer in range(probe.dims.layers):
        if (table := _tabulate(probe, partial(add, layer))) is None:
            why = "the number that it adds to a score depends on more than layer, head and distance"
            raise probe.refuse(why, "bias")
        tables.append(table)
    return torch.stack(tables)


def _vectors(probe: _Probe) -> list[Tensor]:
    """The vectors of keys and of values [layers, 2 length - 1, head_dim]; zeros if none."""
    shape = probe.dims.layers, 2 * probe.length - 1, probe.dims.head_dim
    tables = [torch.zeros(shape), torch.zeros(shape)]
    for e in probe.having("scores", "outputs"):
        distances = _distances(probe, e)
        for layer in range(probe.dims.layers):
            stated = None if distances is None else e.by_distance(layer, distances)
            if stated is None or not stated.keys() <= {*ON_KEYS, *ON_VALUES}:
                why = "its scores are more than products of queries with vectors of the distances"
                if stated is None and distances is not None:
                    why += ", or its method by_distance does not return these"
                raise probe.refuse(why, "scores")
            for role, vectors in stated.items():
                if not _close(vectors, vectors[:1]):
                    why = "heads have vectors of their own for the distances"
                    raise probe.refuse(f"{why}, where they must share them", "scores")
                for table, roles in zip(tables, (ON_KEYS, ON_VALUES), strict=True):
                    if role in roles:
                        table[layer] += vectors[0].float()
    return tables


def _distances(probe: _Probe, e: Encoding) -> Tensor | None:
    """Its distance for each distance in tokens; None if it depends on more than that."""

    def measure(queries: Tensor, keys: int, seed: int) -> Tensor:
        return with_positions(probe.context(queries, keys, 1, seed), e.positions).delta[0]

    return _tabulate(probe, measure)


def _tabulate(probe: _Probe, answer: Callable[[Tensor, int, int], Tensor]) -> Tensor | None:
    """A table by distance [.., 2 length - 1] of what `answer` returns; None if it depends on more.

    `answer` takes queries, the number of keys, and a seed for the words; it returns [.., query,
    key].
    """
    behind, *others = (answer(query, probe.length, 0)[..., 0, :] for query in probe.ends)
    # a decoder never asks for what is ahead
    ahead = others[0] if others else behind[..., -1:].expand_as(behind)
    table = torch.cat([behind, ahead[..., 1:]], dim=-1)
    every = torch.arange(probe.few), probe.few
    far = torch.tensor([probe.length // 2]), probe.length
    for seed, (queries, keys) in enumerate((every, far), start=1):
        distances = torch.arange(keys) - queries[:, None]
        expected, answered = table[..., distances + probe.length - 1], answer(queries, keys, seed)
        unseen = (expected <= HIDDEN) & (answered <= HIDDEN)
        if probe.dims.site == "decoder":
            unseen = unseen | (distances > 0)
        if not _close(answered.masked_fill(unseen, 0), expected.masked_fill(unseen, 0)):
            return None
    return table


def _rotations(probe: _Probe) -> Rotations:
    (e, *more) = probe.having("project")
    methods = ("project", "cosines_and_sines")
    plain = all(getattr(type(e), m, None) is getattr(Rotary, m) for m in methods)
    few = probe.few
    context = with_positions(probe.context(torch.arange(few), few), e.positions)
    at = context.query_positions[0].double()
    step = float(at[1] - at[0]) if few > 1 else 1.0
    steady = _close(at - at[0], torch.arange(few) * step) and step > 0
    if more or not isinstance(e, Rotary) or e.magnitude != 1 or not plain or not steady:
        raise probe.refuse("queries and keys are changed by more than a rotation", "project")
    w = e.frequencies()
    ratio = float(w[0] / w[1]) if len(w) > 1 else 1.0
    base = ratio ** (e.rotary_dim / 2) if len(w) > 1 else 10000.0
    if not _close(w, w[0] * ratio ** -torch.arange(len(w), dtype=w.dtype)):
        raise probe.refuse("its frequencies are not the powers of one base", "project")
    slow = 1 / (float(w[0]) * step)
    return Rotations(e.rotary_dim, base, e.layout == "interleaved", slow)


def _close(a: Tensor, b: Tensor) -> bool:
    most = max(1.0, float(b.abs().max()))
    return bool((a - b).abs().max() <= EXACT * most)


def _resize(table: Tensor, reach: int) -> Tensor:
    """[layers, 2 n - 1, head_dim], cut or extended by its ends to the distances up to reach."""
    n = (table.shape[1] + 1) // 2
    distances = torch.arange(-reach, reach + 1).clamp(1 - n, n - 1)
    return table[:, distances + n - 1]


def _reach(table: Tensor, axis: int) -> int:
    """The distance beyond which the table does not change; `axis` holds 2 n - 1."""
    rows = table.movedim(axis, 0).flatten(1)
    n = (len(rows) + 1) // 2

    def last_change(side: Tensor) -> int:
        moved = (side != side[-1]).any(1).nonzero()
        return int(moved[-1]) + 1 if len(moved) else 0

    return max(last_change(rows[:n].flip(0)), last_change(rows[n - 1 :]))
