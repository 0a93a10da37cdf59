"""The numbers of an encoding's picture; its hooks decide which panels there are."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.checks import example
from nmt.encodings.base import Encoding, softmax
from nmt.encodings.context import Context
from nmt.encodings.limits import max_length
from nmt.encodings.passes import with_positions
from nmt.encodings.site import Encodings
from scripts.pictures.single import apply_hooks, changes_by_part, first_layer, pass_over, scale_of

Array = np.ndarray
LENGTH = 60  # tokens; less than SIGNS
SIGNS, WORDS = 64, 2  # sentences: so many patterns of signs on so many draws of words
REACH = 24  # words of a sentence, where a recurrence runs over it
FLAT = 0.02  # of the largest logit: less is not worth a panel
SMALL = 1e-4
TINY = 1e-7  # a weight that is not drawn
BLOCKED = -1e30  # a logit below this hides its key
PLACE, DISTANCE = "position (tokens)", "distance (tokens)"


class MatrixPanel(NamedTuple):
    """A matrix as colours."""

    title: str
    down: str  # what the rows are
    across: str
    meaning: str  # of the colours; empty: as in the panel to the right
    values: Array  # [rows, columns]
    signed: bool  # zero is the middle of the colours
    first: int = 0  # the position or distance of the first row and column


class CurvesPanel(NamedTuple):
    """Curves over distances, one for each head, or one for all."""

    title: str
    across: str
    meaning: str  # of their height
    distances: Array  # [distance]
    curves: list[tuple[str, Array]]  # name, [distance]; NaN where there is nothing
    logarithmic: bool = False


Panel = MatrixPanel | CurvesPanel


def panels_of(e: Encoding, vocab: int) -> list[Panel]:
    """All that is worth drawing of one encoding at a site, in the first layer that it serves."""
    portrait, hooks = _EncodingPanels(e, vocab), set(e.hooks)
    panels: list[Panel] = []
    if hooks & {"embed", "layer", "project"}:
        vectors = portrait.vectors()
        if vectors is not None:
            panels += _positions(vectors)
        elif "embed" in hooks and e.dims.site != "cross":
            panels.append(portrait.embeddings())
    if hooks & {"project", "scores", "bias"} or not hooks - {"outputs"}:
        panels += portrait.logits()
    if "normalise" in hooks:
        panels.append(portrait.weights())
    if "outputs" in hooks:
        panels += portrait.values()
    return panels


def _positions(vectors: Tensor) -> list[Panel]:
    """The vectors themselves, how alike two of them are, and that by distance."""
    alike = _similarity("Similarity of two positions", vectors)
    most = 2 * len(vectors) // 3  # of longer distances there are few
    distances, curve = _by_diagonal(alike.values, most)
    return [
        MatrixPanel("Vectors added", PLACE, "component", "value", vectors.numpy(), True),
        alike,
        CurvesPanel("Similarity by distance", DISTANCE, "mean cosine", distances, [("", curve)]),
    ]


def _similarity(title: str, vectors: Tensor) -> MatrixPanel:
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    alike = (unit @ unit.mT).numpy()
    return MatrixPanel(title, PLACE, PLACE, "cosine", alike, bool(alike.min() < 0))


def _by_diagonal(values: Array, most: int) -> tuple[Array, Array]:
    """Distances from -most to most, and the mean of a square matrix over each."""
    distances = np.arange(-most, most + 1)
    return distances, np.array([np.diagonal(values, d).mean() for d in distances])


class _EncodingPanels:
    """One encoding at a site, asked about a made-up sentence: its first layer, and its heads."""

    def __init__(self, e: Encoding, vocab: int) -> None:
        self.e, self.n = e, min(LENGTH, max_length(e, e.training) or LENGTH)
        self.ids = example.ids(1, self.n, vocab)
        self.columns = example.columns([e], self.ids)
        self.x = _unrelated_words(self.n, e)

    def context(self, rows: int, length: int | None = None, same: bool = False) -> Context:
        """The pass over copies of the sentence or its start, or of one word again and again."""
        ids = self.ids[:, :length]
        ids = (ids[:, :1] if same else ids).expand(rows, ids.shape[1])
        columns = {name: c.expand(rows, -1) for name, c in self.columns.items()}
        return pass_over(self.e, ids, columns)

    def vectors(self) -> Tensor | None:
        """The vectors added at each position of the sentence [position, any]; None: not vectors."""
        if self.e.streams > 1:
            return None
        x, context = self.x[:2], self.context(2)
        with torch.inference_mode():
            first, second = (apply_hooks(self.e, words, context) for words in (x, x.flip(0) * 0.5))
        changes = changes_by_part(first, second)
        for part in ("embed", "layer", "query"):
            kind, change = changes[part]
            if kind == "vectors":
                if part == "query":
                    change = change.transpose(1, 2).flatten(2)
                return change[0]
        return None

    def embeddings(self) -> Panel:
        """The same word at two positions, where all is changed."""
        same = self.x[:1, :1].expand(self.e.streams, min(REACH, self.n), -1)
        with torch.inference_mode():
            context = with_positions(self.context(1, REACH, same=True), self.e.positions)
            y = self.e.embed(same, context)  # [streams, position, dim]
        vectors = y.transpose(0, 1).flatten(1)
        return _similarity("Similarity of one word at two positions", vectors)

    def logits(self) -> list[Panel]:
        """The logits added for pairs of unrelated words, and the logits of equal words."""
        e, x, panels = self.e, self.x, list[Panel]()
        with torch.inference_mode():
            unrelated = apply_hooks(e, x, self.context(len(x)))
            equal = apply_hooks(e, x[:, :1].expand(*x.shape), self.context(len(x), same=True))
        logits, logits_of_equal = unrelated.logits, equal.logits
        if e.streams == 1:
            words = unrelated.plain
            plain = words @ words.mT * scale_of(e)
            blocked = (logits < BLOCKED).any(0)  # by a bias that masks
            if blocked.any():
                panels.append(self.panel("Keys that may be seen", "share of pairs", ~blocked))
            change = (logits - plain).masked_fill(blocked, 0)
            mean, variance = change.mean(0), change.var(0, correction=0)  # [heads, query, key]
            depends = float(variance.max()) > SMALL**2
            apart = ~torch.eye(mean.shape[-1], dtype=torch.bool)
            if float(mean[:, apart].abs().max()) > SMALL:
                title = "Logit added, mean" if depends else "Logit added"
                hidden = mean.masked_fill(blocked, float("nan"))
                panels.append(self.panel(title, "added to the logit", hidden))
            if depends:
                title = "Logit changed, depending on the words"
                panels.append(self.panel(title, "standard deviation", variance, root=True))
            elif panels:
                return panels
        values = logits_of_equal[:: e.streams].mean(0)  # [heads, query, key]
        varies = float(values.max() - values.min()) > FLAT * float(values.abs().max())
        if varies or not panels:
            title = "Logit of a query and an equal key"
            panels.append(self.panel(title, "mean logit", values))
        return panels

    def weights(self) -> Panel:
        """How much of the attention the keys of a query get that are most alike, in order."""
        with torch.inference_mode():
            context = self.context(len(self.x))
            e = apply_hooks(self.e, self.x, context).logits  # keys may be remembered in context
            weights = Encodings([self.e]).normalise(e, first_layer(self.e), context)
            both = [("softmax", softmax(e, context.allowed)), (self.e.name, weights)]
        ranks = np.arange(1, self.n + 1)
        curves = [
            (n, w[:, :, -1].sort(-1, descending=True)[0].mean((0, 1)).numpy()) for n, w in both
        ]
        title, across = "Weights of the last query's keys", "rank of the key by its weight"
        lines = [(name, np.where(w > TINY, w, np.nan)) for name, w in curves]
        return CurvesPanel(title, across, "mean weight", ranks, lines, True)

    def values(self) -> list[Panel]:
        """The length of the vector that a fully attended key adds to the output, by distance."""
        if not self.e.reads_probabilities:
            return []
        n, e, context = self.n, self.e, self.context(self.n)  # row j attends to key j alone
        x, heads = self.x[:1].expand(n, *self.x.shape[1:]), e.dims.heads
        p = torch.eye(n)[:, None, None].expand(n, heads, n, n)
        with torch.inference_mode():
            apply_hooks(e, x, context)  # keys may be remembered in context
            nothing = torch.zeros(n, heads, n, e.dims.head_dim)
            added = Encodings([e]).outputs(nothing, x, p, first_layer(e), context)
        if not added.any():
            return []
        norms = added.norm(dim=-1).permute(1, 2, 0)  # [heads, query, key]
        return [self.panel("Vector added to values", "length of the vector", norms)]

    def panel(self, title: str, meaning: str, values: Tensor, root: bool = False) -> Panel:
        """Values [heads, query, key] as curves where only distances matter, else as a matrix.

        `root`: take the square root of means.
        """
        context, values = self.context(1), values.float()
        if self.e.dims.site == "decoder" and context.allowed is not None:
            values = values.masked_fill(~context.allowed[0], float("nan"))
        if not type(self.e).relative:
            clean = values.nan_to_num()
            most = float((clean - clean[:1]).abs().max())
            alike = most <= 1e-6 * (1 + float(clean.abs().max()))
            mean = values.nanmean(0)
            matrix = (mean.sqrt() if root else mean).numpy()
            meaning += "" if alike else ", mean over heads"
            signed = bool(np.nanmin(matrix) < 0)
            return MatrixPanel(title, "query (tokens)", "key (tokens)", meaning, matrix, signed)
        distances, curves = self._by_distance(values, context)
        curves = [np.sqrt(c) for c in curves] if root else curves
        edges = self.e.positions.distances_only
        across = "distance (edges)" if edges else "key minus query (tokens)"
        return CurvesPanel(title, across, meaning, distances, _named(curves))

    def _by_distance(self, values: Tensor, context: Context) -> tuple[Array, list[Array]]:
        """Mean of [heads, query, key] over all pairs of one distance, if there are enough."""
        edges = self.e.positions.distances_only
        delta = with_positions(context, self.e.positions).delta if edges else context.delta
        distances, index = delta[0].flatten().unique(return_inverse=True)
        flat = values.flatten(1)
        real = ~flat.isnan()
        sums = torch.zeros(len(values), len(distances)).index_add(1, index, flat.nan_to_num())
        counts = torch.zeros_like(sums).index_add(1, index, real.float())
        curves = sums / counts  # NaN where no pair may look
        often = counts.amax(0) >= (1 if edges else self.n // 3)
        return distances[often].numpy(), list(curves[:, often].numpy())


def _unrelated_words(n: int, e: Encoding) -> Tensor:
    """Words [sentence, position, dim] that have nothing to do with each other.

    The signs of two positions agree in half of the sentences, so that whatever is linear in a
    word or in two has the mean zero. Heads see the same, so that only what they do differs.
    """
    signs = torch.ones(1, 1)
    while len(signs) < SIGNS:  # Sylvester's Hadamard matrix; its first column is constant
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    draw = torch.Generator().manual_seed(0)
    words = torch.randn(WORDS, 1, n, e.dims.head_dim, generator=draw)
    words = words * e.dims.head_dim**0.5 / words.norm(dim=-1, keepdim=True)
    return (words * signs[:, 1 : n + 1, None]).flatten(0, 1).repeat(1, 1, e.dims.heads)


def _named(curves: list[Array]) -> list[tuple[str, Array]]:
    """Curves of the heads, with names; equal ones share one."""
    groups: list[tuple[list[int], Array]] = []
    for head, curve in enumerate(curves):
        near = 1e-6 * (1 + float(np.nanmax(np.abs(curve))))
        for heads, other in groups:
            if np.allclose(curve, other, rtol=0, atol=near, equal_nan=True):
                heads.append(head + 1)
                break
        else:
            groups.append(([head + 1], curve))
    if len(groups) == 1:
        return [("all heads", curves[0])]
    return [
        (f"head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}", curve)
        for heads, curve in groups
    ]
