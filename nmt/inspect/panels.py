"""What a picture of an encoding shows, as numbers: which panels is decided by what it does."""

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.composition import hooks_of
from nmt.inspect.specimen import Watched, ask, pass_over
from nmt.model import example

Array = np.ndarray
LENGTH = 60  # tokens; less than SIGNS
SIGNS, WORDS = 64, 2  # sentences: so many patterns of signs on so many draws of words
REACH = 24  # words of a sentence, where a recurrence runs over it
FLAT = 0.02  # of the largest logit: less is not worth a panel
STEP = 1e-3  # how far a word is moved
SMALL = 1e-4
BLOCKED = -1e30  # a logit below this hides its key


class Heat(NamedTuple):
    """A matrix as colours."""

    title: str
    down: str  # what the rows are
    across: str
    colour: str  # what the colour means
    values: Array  # [rows, columns]
    signed: bool  # zero is the middle of the colours


class Lines(NamedTuple):
    """Curves over distances, one for each head, or one for all."""

    title: str
    across: str
    up: str
    distances: Array  # [distance]
    curves: list[tuple[str, Array]]  # name, [distance]; NaN where there is nothing
    logarithmic: bool = False


Panel = Heat | Lines


def panels_of(e: Encoding, site: str, vocab: int) -> list[Panel]:
    """All that is worth drawing of one encoding in the first layer of a site."""
    n = min(LENGTH, e.limit or LENGTH)
    ids = example.ids(1, n, vocab)
    columns = example.columns(set(e.columns), ids)
    x = _contents(n, e)
    found: list[Panel] = []
    hooks = set(hooks_of(type(e)))
    if hooks & {"embed", "layer", "project"}:
        vectors = _vectors(e, x[:2], _context(ids, site, columns, 2))
        if vectors is not None:
            found += _positions(vectors)
        elif "embed" in hooks and site != "cross":
            found += _processed(e, x[:1, :REACH], pass_over(ids[:, :REACH], site, columns))
    if hooks & {"project", "scores", "bias"} or not hooks:
        found += _logits(e, x, _context(ids, site, columns, len(x)))
    if "values" in hooks:
        found += _values(e, _context(ids, site, columns, n))
    return found


def _contents(n: int, e: Encoding) -> Tensor:
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


def _context(ids: Tensor, site: str, columns: dict[str, Tensor], rows: int) -> Watched:
    """The pass over so many copies of one sentence."""
    repeated = {name: c.expand(rows, -1) for name, c in columns.items()}
    return pass_over(ids.expand(rows, -1), site, repeated)


def _vectors(e: Encoding, x: Tensor, context: Watched) -> Tensor | None:
    """What is added at each position of the first sentence [position, any]; None if not that."""
    if e.streams > 1:
        return None
    with torch.inference_mode():
        answers = [ask(e, content, context) for content in (x, x.flip(0) * 0.5)]
    pairs = [
        (answers[0].embedded - x, answers[1].embedded - x.flip(0) * 0.5),
        (answers[0].layered - x, answers[1].layered - x.flip(0) * 0.5),
    ]
    if answers[0].projected[0].shape == answers[0].plain.shape:
        queries = [(a.projected[0] - a.plain).transpose(1, 2).flatten(2) for a in answers]
        pairs.append((queries[0], queries[1]))
    for first, second in pairs:
        if float(first.abs().max()) > SMALL and float((first - second).abs().max()) < SMALL:
            return first[0]
    return None


def _positions(vectors: Tensor) -> list[Panel]:
    """The vectors themselves, how alike two of them are, and that by distance."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    alike = (unit @ unit.mT).numpy()  # [position, position]
    most = 2 * len(alike) // 3  # of longer distances there are few
    distances = np.arange(-most, most + 1)
    curve = np.array([np.diagonal(alike, d).mean() for d in distances])
    across = "distance (tokens)"
    return [
        Heat("Vectors added", "position (tokens)", "component", "value", vectors.numpy(), True),
        Heat(
            "Similarity of two positions",
            *("position (tokens)", "position (tokens)", "cosine"),
            alike,
            bool(alike.min() < 0),
        ),
        Lines("Similarity by distance", across, "mean cosine", distances, [("", curve)]),
    ]


def _processed(e: Encoding, x: Tensor, context: Watched) -> list[Panel]:
    """How far a word reaches, and the same word at two positions; for embeddings changed whole."""
    found: list[Panel] = []
    reach = _reach(e, x, context)  # [position, position]
    if float(np.abs(reach - np.diag(np.diagonal(reach))).max()) > SMALL:
        n = len(reach)
        distances = np.arange(-(n - 1), n)
        curve = np.array([np.diagonal(reach, d).mean() for d in distances])
        curve[curve <= curve.max() * 1e-9] = np.nan
        found.append(
            Lines(
                "Influence of a word on the vectors around it",
                "place of the word, minus that of the vector (tokens)",
                "change per change of the word",
                distances,
                [("", curve)],
                logarithmic=True,
            )
        )
    same = x[:1, :1].expand(*x.shape)
    with torch.inference_mode():
        y = e.embed(same, _alone(context).placed(e.positions))
    y = y.unflatten(0, (-1, e.streams)).transpose(1, 2).flatten(2)[0]  # [position, any]
    unit = torch.nn.functional.normalize(y.double(), dim=-1)
    title = "Similarity of one word at two positions"
    alike = (unit @ unit.mT).numpy()
    place = "position (tokens)"
    found.append(Heat(title, place, place, "cosine", alike, bool(alike.min() < 0)))
    return found


def _reach(e: Encoding, x: Tensor, context: Watched) -> Array:
    """How far each vector moves per change of each word [vector at, word at]; in float64."""
    n = x.shape[1]
    draw = torch.Generator().manual_seed(1)
    step = torch.randn(x.shape[2], generator=draw, dtype=torch.float64)
    step *= STEP / step.norm()
    words = x[:1].double().expand(n, -1, -1)
    moved = words + torch.eye(n, dtype=torch.float64)[..., None] * step  # row j: word j moved
    tokens = context.tokens
    assert tokens is not None  # pass_over gives them
    columns = {name: c[:1].expand(n, -1) for name, c in context.columns.items()}
    inside = pass_over(tokens[:1].expand(n, -1), context.site, columns).placed(e.positions)
    with torch.inference_mode():
        exact = copy.deepcopy(e).double()
        change = exact.embed(moved, inside) - exact.embed(words, inside)
    change = change.unflatten(0, (n, e.streams)).transpose(1, 2).flatten(2)  # [word, vector, any]
    return (change.norm(dim=-1) / STEP).mT.numpy()


def _logits(e: Encoding, x: Tensor, context: Watched) -> list[Panel]:
    """What is added to the logits of unrelated words, and what equal words get."""
    found: list[Panel] = []
    same = x[:, :1].expand(*x.shape)
    with torch.inference_mode():
        one = ask(e, x, context)
        equal = ask(e, same, _alone(context)).logits[:: e.streams].mean(0)  # [heads, query, key]
    delta = _delta(e, context)
    seen = context.allowed if context.site == "decoder" else None
    if e.streams == 1:
        scale = e.dims.head_dim**-0.5 if e.scale is None else e.scale
        plain = one.plain @ one.plain.mT * scale
        blocked = (one.logits < BLOCKED).any(0)  # by a bias that masks
        if blocked.any():
            title = "Keys that may be seen"
            found.append(_panel(e, (~blocked).float(), delta, seen, title, "share of pairs"))
        change = (one.logits - plain).masked_fill(blocked, 0)
        mean, variance = change.mean(0), change.var(0, correction=0)  # [heads, query, key]
        depends = float(variance.max()) > SMALL**2
        apart = ~torch.eye(mean.shape[-1], dtype=torch.bool)
        if float(mean[:, apart].abs().max()) > SMALL:
            title = "Logit added, mean" if depends else "Logit added"
            hidden = mean.masked_fill(blocked, float("nan"))
            found.append(_panel(e, hidden, delta, seen, title, "added to the logit"))
        if depends:
            title = "Logit changed, depending on the words"
            found.append(_panel(e, variance, delta, seen, title, "standard deviation", root=True))
        elif found:
            return found
    varies = float(equal.max() - equal.min()) > FLAT * float(equal.abs().max())
    if varies or not found:
        title = "Logit of a query and an equal key"
        found.append(_panel(e, equal, delta, seen, title, "mean logit"))
    return found


def _alone(context: Watched) -> Watched:
    """The same pass over a sentence of one word again and again."""
    tokens = context.tokens
    assert tokens is not None  # pass_over gives them
    same = tokens[:, :1].expand(*tokens.shape)
    return pass_over(same, context.site, context.columns)


def _delta(e: Encoding, context: Watched) -> Tensor:
    """Distances [batch | 1, query, key] as the encoding sees them."""
    placed = context.placed(e.positions)
    return placed.delta if e.positions.pairs else context.keys[:, None] - context.queries[..., None]


def _panel(
    e: Encoding,
    values: Tensor,
    delta: Tensor,
    seen: Tensor | None,
    title: str,
    meaning: str,
    root: bool = False,
) -> Panel:
    """Curves by distance where only distances matter, else a matrix; values [heads, query, key].

    `root`: take the square root of means.
    """
    if seen is not None:
        values = values.masked_fill(~seen[0], float("nan"))
    if not type(e).relative:
        first = "" if _alike(values) else ", mean over heads"
        mean = values.nanmean(0)
        matrix = (mean.sqrt() if root else mean).numpy()
        signed = bool(np.nanmin(matrix) < 0)
        return Heat(title, "query (tokens)", "key (tokens)", meaning + first, matrix, signed)
    pairs = e.positions.pairs
    distances, curves = _by_distance(values, delta[0], 1 if pairs else values.shape[1] // 3)
    curves = [np.sqrt(c) for c in curves] if root else curves
    across = "distance (edges)" if pairs else "key minus query (tokens)"
    return Lines(title, across, meaning, distances, _named(curves))


def _named(curves: list[Array]) -> list[tuple[str, Array]]:
    """Curves with names; heads that have the same share one."""
    groups: list[tuple[list[int], Array]] = []
    for head, curve in enumerate(curves, start=1):
        near = 1e-6 * (1 + float(np.nanmax(np.abs(curve))))
        for heads, other in groups:
            if np.allclose(curve, other, rtol=0, atol=near, equal_nan=True):
                heads.append(head)
                break
        else:
            groups.append(([head], curve))
    if len(groups) == 1:
        return [("all heads", curves[0])]
    plural = [("heads " if len(heads) > 1 else "head ", heads, c) for heads, c in groups]
    return [(word + ", ".join(map(str, heads)), curve) for word, heads, curve in plural]


def _alike(values: Tensor) -> bool:
    """Whether all heads have nearly the same."""
    clean = values.nan_to_num()
    return bool((clean - clean[:1]).abs().max() <= 1e-6 * (1 + float(clean.abs().max())))


def _by_distance(values: Tensor, delta: Tensor, least: int) -> tuple[Array, list[Array]]:
    """Mean of [heads, query, key] over all pairs of one distance, if there are enough."""
    distances, index = delta.flatten().unique(return_inverse=True)
    flat = values.flatten(1)
    real = ~flat.isnan()
    sums = torch.zeros(len(values), len(distances)).index_add(1, index, flat.nan_to_num().float())
    counts = torch.zeros_like(sums).index_add(1, index, real.float())
    curves = sums / counts  # NaN where no pair may look
    often = counts.amax(0) >= least
    return distances[often].numpy(), list(curves[:, often].numpy())


def _values(e: Encoding, context: Watched) -> list[Panel]:
    """The length of the vector that a fully attended key adds to the output, by distance."""
    n = context.keys.shape[1]
    p = torch.eye(n)[:, None, None].expand(n, e.dims.heads, n, n)  # row j attends to key j alone
    with torch.inference_mode():
        added = e.values(p, 0, context.placed(e.positions))
    if added is None:
        return []
    norms = added.norm(dim=-1).permute(1, 2, 0)  # [heads, query, key]
    seen = context.allowed if context.site == "decoder" else None
    delta = _delta(e, context)
    return [_panel(e, norms, delta, seen, "Vector added to values", "length of the vector")]
