"""A small model with made-up sentences, and single encodings on their own, to be tried live."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nmt import build
from nmt.config import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context, causal
from nmt.model import example
from nmt.model.transformer import Transformer

VOCAB = 30
LENGTHS = (11, 20)  # of source and target
NOISE = 0.1  # what starts at zero must show, too


class Specimen(NamedTuple):
    """A small model in evaluation mode and a batch for it."""

    model: Transformer
    source: Tensor  # [batch, source] ids, the first row padded
    target: Tensor  # [batch, target] ids
    columns: dict[str, Tensor]

    def full(self) -> Tensor:
        """Logits [batch, target, vocab] of all prefixes at once."""
        return self.model(self.source, self.target, self.columns)

    def cached(self) -> Tensor:
        """The same, token by token."""
        lengths = (self.target != 0).sum(1) if self.model.needs_lengths else None
        state = self.model.start(self.source, self.columns, lengths)
        steps = range(self.target.shape[1])
        return torch.stack([self.model.step(self.target[:, t], state) for t in steps], 1)


def small(settings: Settings) -> Specimen:
    """The settings' encoding in a model of 16 dimensions, or of its own width where it must.

    Raises UserError as `build.transformer` does.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build.transformer(build.narrow(settings), VOCAB, VOCAB)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * NOISE)
    source = example.ids(2, LENGTHS[0], VOCAB)
    source[0, -3:] = 0
    target = example.ids(2, LENGTHS[1], VOCAB, seed=1)
    return Specimen(model.eval(), source, target, example.columns(model.columns, source))


@dataclass(eq=False)
class Watched(Context):
    """A context that notes whether it was asked for distances."""

    asked: set[str] = field(default_factory=set)

    @property
    def delta(self) -> Tensor:
        """See `Context.delta`."""
        self.asked.add("distances")
        return super().delta


def pass_over(ids: Tensor, site: str, columns: dict[str, Tensor]) -> Watched:
    """The context of one pass over whole sentences ids [batch, length]; a decoder's is causal."""
    n = ids.shape[1]
    at = torch.arange(n)[None]
    allowed = causal(n, n, at.device) if site == "decoder" else (ids != 0)[:, None, None, :]
    return Watched(
        site,
        queries=at,
        keys=at,
        new_keys=at,
        rows=len(ids),
        allowed=allowed,
        lengths=(ids != 0).sum(1),
        tokens=ids,
        columns=columns,
    )


def entries(model: Transformer) -> list[tuple[str, Encoding]]:
    """All encodings of a model with their sites."""
    return [
        (name, e)
        for name, site in model.sites.items()
        for e in site.entries
        if isinstance(e, Encoding)
    ]


class Answers(NamedTuple):
    """What a single encoding makes of contents x [batch, length, dim] in one layer."""

    embedded: Tensor  # [batch x streams, length, dim] after embed
    layered: Tensor  # [batch, length, dim]: x after layer
    projected: tuple[Tensor, Tensor, Tensor]  # q, k, v of x [batch, heads, length, any]
    plain: Tensor  # [batch, heads, length, head_dim]: x, split
    logits: Tensor  # [batch x streams, heads, query, key], scaled, not masked


def ask(e: Encoding, x: Tensor, context: Context, layer: int = 0) -> Answers:
    """Ask every hook but `values` and `readout`, with projections that only split into heads.

    Between the stacks there is nothing to embed, as in the model.
    """

    def split(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.unflatten(-1, (e.dims.heads, -1)).transpose(1, 2) for t in inputs)

    one = Encodings([e])
    across = context.site == "cross"
    embedded = x.repeat_interleave(e.streams, 0) if across else one.embed(x, context)
    inside = context.repeated(e.streams) if e.streams > 1 else context
    inputs = x if e.streams == 1 else embedded
    layered = inputs if across else one.layer(inputs, layer, inside)
    q, k, v = one.project(split, inputs, inputs, inputs, layer, inside)  # type: ignore[arg-type]
    scale = e.dims.head_dim**-0.5 if one.scale is None else one.scale
    logits = one.scores(q, k, layer, inside).float() * scale
    if (bias := one.bias(layer, inside)) is not None:
        logits = logits + bias
    return Answers(embedded, layered, (q, k, v), split(inputs)[0], logits)
