"""The numbers of an encoding's picture: outputs of its hooks."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.checks import example
from nmt.encodings.base import Encoding, softmax
from nmt.encodings.context import Context, causal, whole, with_positions
from nmt.encodings.site import SiteEncodings
from nmt.text.vocab import PAD

Array = np.ndarray
LENGTH = 60  # tokens of the sentence; less than SIGNS
SIGNS, WORDS = 64, 2  # sentences: so many patterns of signs on so many draws of words
CLOSE = 1e-4  # what two contents get is equal, or nothing
FLAT = 0.02  # of the largest logit: less is not worth a panel
TINY = 1e-7  # a weight that is not drawn
BLOCKED = -1e30  # a logit below this hides its key
POSITION, DISTANCE = "position (tokens)", "distance (tokens)"


class MatrixPanel(NamedTuple):
    """A matrix as colours."""

    title: str
    down: str  # what the rows are
    across: str
    meaning: str  # of the colours
    values: Array  # [rows, columns]
    signed: bool  # zero is the middle of the colours


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
    probe, hooks = Probe(e, vocab), set(e.hooks)
    panels: list[Panel] = []
    if hooks & {"embed", "layer_input", "project"}:
        vectors = probe.vectors()
        if vectors is not None:
            panels += position_panels(vectors)
    if hooks & {"project", "scores", "bias"} or not hooks - {"outputs"}:
        panels += probe.logits()
    if "normalise" in hooks:
        panels.append(probe.weights())
    if "outputs" in hooks:
        panels += probe.values()
    return panels


def position_panels(vectors: Tensor) -> list[Panel]:
    alike = similarity("Similarity of two positions", vectors)
    most = 2 * len(vectors) // 3  # of longer distances there are few
    distances = np.arange(-most, most + 1)
    curve = np.array([np.diagonal(alike.values, d).mean() for d in distances])
    return [
        MatrixPanel("Vectors added", POSITION, "component", "value", vectors.numpy(), True),
        alike,
        CurvesPanel("Similarity by distance", DISTANCE, "mean cosine", distances, [("", curve)]),
    ]


def similarity(title: str, vectors: Tensor) -> MatrixPanel:
    unit = F.normalize(vectors.double(), dim=-1)
    cosines = (unit @ unit.mT).numpy()
    return MatrixPanel(title, POSITION, POSITION, "cosine", cosines, bool(cosines.min() < 0))


def first_layer(e: Encoding) -> int:
    return 0 if e.dims.served_layers is None else e.dims.served_layers[0]


class HookOutputs(NamedTuple):
    """Outputs of the hooks of one encoding for contents x [batch, length, dim]."""

    embedded: Tensor  # [batch x streams, length, dim]
    layered: Tensor  # [batch, length, dim]
    query: Tensor  # [batch, heads, length, any]
    plain: Tensor  # [batch, heads, length, head_dim]: x, split into heads
    logits: Tensor  # [batch x streams, heads, query, key], scaled, not masked


class Probe:
    """One encoding at a site, asked about a synthetic sentence: its first layer, and its heads."""

    def __init__(self, e: Encoding, vocab: int) -> None:
        self.e, self.n = e, min(LENGTH, e.max_length(e.training) or LENGTH)
        self.ids = example.ids(1, self.n, vocab)
        self.columns = example.columns([e], self.ids)
        self.x = unrelated_words(self.n, e)
        self.site, self.layer = SiteEncodings([e]), first_layer(e)
        self.score_scale = e.dims.head_dim**-0.5 if e.score_scale is None else e.score_scale

    def context(self, rows: int, same: bool = False) -> Context:
        """The pass over copies of the sentence, or of one word again and again."""
        e, ids = self.e, self.ids
        ids = ids[:, :1].expand(ids.shape) if same else ids
        ids = ids.expand(rows * e.streams, -1)
        n, real = ids.shape[1], ids != PAD
        return whole(
            e.dims.site,
            n,
            rows=len(ids),
            streams=e.streams,
            allowed=causal(n, n, ids.device) if e.dims.site == "decoder" else real[:, None, None],
            lengths=real.sum(1),
            tokens=ids,
            columns={name: c.expand(len(ids), -1) for name, c in self.columns.items()},
        )

    def apply_hooks(self, x: Tensor, context: Context) -> HookOutputs:
        """Call every hook but `outputs` and `readout`, with projections that only split into heads.

        Between the stacks there is nothing to embed, as in the model.
        """
        e, site, layer = self.e, self.site, self.layer

        def split(*inputs: Tensor) -> tuple[Tensor, ...]:
            return tuple(t.unflatten(-1, (-1, e.dims.head_dim)).transpose(1, 2) for t in inputs)

        across = context.site == "cross"
        rows = x.repeat_interleave(e.streams, 0)
        embedded = rows if across else site.embed(rows, context)
        inputs = x if e.streams == 1 else embedded
        layered = inputs if across else site.layer_input(inputs, layer, context)
        q, k, _ = site.project(split, inputs, inputs, inputs, layer, context)  # type: ignore[arg-type]
        logits = site.scores(q, k, layer, context).float() * self.score_scale
        if (bias := site.bias(layer, context)) is not None:
            logits = logits + bias
        return HookOutputs(embedded, layered, q, split(inputs)[0], logits)

    def vectors(self) -> Tensor | None:
        """The vectors added at each position of the sentence [position, any]; None: not vectors."""
        if self.e.streams > 1:
            return None
        x, context = self.x[:2], self.context(2)
        y = x.flip(0) * 0.5
        with torch.inference_mode():
            first, second = (self.apply_hooks(words, context) for words in (x, y))
        for change in (
            shared_change(first.embedded, second.embedded, x, y),
            shared_change(first.layered, second.layered, x, y),
            shared_change(first.query, second.query, first.plain, second.plain),
        ):
            if change is not None:
                return (change.transpose(1, 2).flatten(2) if change.ndim == 4 else change)[0]
        return None

    def logits(self) -> list[Panel]:
        """The logits added for pairs of unrelated words, and the logits of equal words."""
        e, x, panels = self.e, self.x, list[Panel]()
        with torch.inference_mode():
            unrelated = self.apply_hooks(x, self.context(len(x)))
            equal = self.apply_hooks(x[:, :1].expand(*x.shape), self.context(len(x), same=True))
        if e.streams == 1:
            plain = unrelated.plain @ unrelated.plain.mT * self.score_scale
            blocked = (unrelated.logits < BLOCKED).any(0)  # by a bias that masks
            if blocked.any():
                panels.append(self.panel("Keys that may be seen", "share of pairs", ~blocked))
            change = (unrelated.logits - plain).masked_fill(blocked, 0)
            mean, variance = change.mean(0), change.var(0, correction=0)  # [heads, query, key]
            depends = float(variance.max()) > CLOSE**2
            apart = ~torch.eye(mean.shape[-1], dtype=torch.bool)
            if float(mean[:, apart].abs().max()) > CLOSE:
                title = "Logit added, mean" if depends else "Logit added"
                hidden = mean.masked_fill(blocked, float("nan"))
                panels.append(self.panel(title, "added to the logit", hidden))
            if depends:
                title = "Logit changed, depending on the words"
                panels.append(self.panel(title, "standard deviation", variance, root=True))
            elif panels:
                return panels
        values = equal.logits[:: e.streams].mean(0)  # [heads, query, key]
        varies = float(values.max() - values.min()) > FLAT * float(values.abs().max())
        if varies or not panels:
            panels.append(self.panel("Logit of a query and an equal key", "mean logit", values))
        return panels

    def weights(self) -> Panel:
        """The attention weights of the last query's keys, sorted."""
        with torch.inference_mode():
            context = self.context(len(self.x))
            logits = self.apply_hooks(self.x, context).logits  # keys may be remembered in context
            by_name = {
                "softmax": softmax(logits, context.allowed),
                self.e.name: self.site.normalise(logits, self.layer, context),
            }
        curves = []
        for name, weights in by_name.items():
            by_rank = weights[:, :, -1].sort(-1, descending=True)[0].mean((0, 1)).numpy()
            curves.append((name, np.where(by_rank > TINY, by_rank, np.nan)))
        title, across = "Weights of the last query's keys", "rank of the key by its weight"
        return CurvesPanel(title, across, "mean weight", np.arange(1, self.n + 1), curves, True)

    def values(self) -> list[Panel]:
        """The length of the vector that a fully attended key adds to the output, by distance."""
        if not self.e.reads_probabilities:
            return []
        n, heads, context = self.n, self.e.dims.heads, self.context(self.n)
        x = self.x[:1].expand(n, *self.x.shape[1:])
        p = torch.eye(n)[:, None, None].expand(n, heads, n, n)  # row j attends to key j alone
        with torch.inference_mode():
            self.apply_hooks(x, context)  # keys may be remembered in context
            nothing = torch.zeros(n, heads, n, self.e.dims.head_dim)
            added = self.site.outputs(nothing, x, p, self.layer, context)
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
        edges = self.e.positions.distances_only
        delta = with_positions(context, self.e.positions).delta if edges else context.delta
        distances, curves = mean_by_distance(values, delta[0], 1 if edges else self.n // 3)
        across = "distance (edges)" if edges else "key minus query (tokens)"
        curves = np.sqrt(curves) if root else curves
        return CurvesPanel(title, across, meaning, distances, name_curves(curves))


def shared_change(first: Tensor, second: Tensor, x: Tensor, y: Tensor) -> Tensor | None:
    """The change that contents x and y have in common; None if it depends on them, or is zero."""
    if first.shape != x.shape:
        return None
    change, other = first - x, second - y
    alike = float((change - other).abs().max()) <= CLOSE
    return change if alike and float(change.abs().max()) > CLOSE else None


def unrelated_words(n: int, e: Encoding) -> Tensor:
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


def mean_by_distance(values: Tensor, delta: Tensor, least: int) -> tuple[Array, Array]:
    """Means of [heads, query, key] over all pairs of one distance, if there are so many."""
    distances, index = delta.flatten().unique(return_inverse=True)
    flat = values.flatten(1)
    sums = torch.zeros(len(values), len(distances)).index_add(1, index, flat.nan_to_num())
    counts = torch.zeros_like(sums).index_add(1, index, (~flat.isnan()).float())
    often = counts.amax(0) >= least
    means = sums / counts  # NaN where no pair may look
    return distances[often].numpy(), means[:, often].numpy()


def name_curves(curves: Array) -> list[tuple[str, Array]]:
    """Curves [head, distance], with names; only one if all are equal."""
    near = 1e-6 * (1 + float(np.nanmax(np.abs(curves))))
    if np.allclose(curves, curves[:1], rtol=0, atol=near, equal_nan=True):
        return [("all heads", curves[0])]
    return [(f"head {number}", curve) for number, curve in enumerate(curves, start=1)]
