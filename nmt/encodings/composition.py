"""All encodings of one attention site as one, applied in the order of the config."""

from functools import partial
from typing import cast

from torch import Tensor, nn

from nmt.encodings.base import Encoding, Projection
from nmt.encodings.context import Context


class Encodings(nn.Module):
    """Asks each encoding in turn; an empty list is attention without positions."""

    def __init__(self, entries: list[Encoding]) -> None:
        super().__init__()
        self.entries = nn.ModuleList(entries)

    def _all(self, context: Context) -> list[tuple[Encoding, Context]]:
        return [(e, context.placed(e.positions)) for e in self._each()]

    def _each(self) -> list[Encoding]:
        return cast(list[Encoding], list(self.entries))

    @property
    def fusible(self) -> bool:
        """Whether a kernel that knows only an additive mask computes the same."""
        return not any(_overrides(e, "scores") or _overrides(e, "values") for e in self.entries)

    @property
    def limit(self) -> int | None:
        """The longest sequence that every entry can encode; None: any."""
        return min((e.limit for e in self._each() if e.limit is not None), default=None)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """See `Encoding.embed`."""
        for e, c in self._all(context):
            x = e.embed(x, c)
        return x

    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        """See `Encoding.layer`."""
        for e, c in self._all(context):
            x = e.layer(x, layer, c)
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Encoding.project`; later entries wrap earlier ones."""
        for e, c in self._all(context):
            if _overrides(e, "project"):
                project = partial(e.project, project, layer=layer, context=c)
        return project(xq, xk, xv)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """See `Encoding.scores`."""
        for e, c in self._all(context):
            s = e.scores(s, q, k, layer, c)
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The sum of all biases; None if no entry has one."""
        total: Tensor | None = None
        for e, c in self._all(context):
            if (bias := e.bias(layer, c)) is not None:
                total = bias if total is None else total + bias
        return total

    def values(self, p: Tensor, layer: int, context: Context) -> Tensor | None:
        """The sum of all value terms; None if no entry has one."""
        total: Tensor | None = None
        for e, c in self._all(context):
            if (term := e.values(p, layer, c)) is not None:
                total = term if total is None else total + term
        return total

    def readout(self, x: Tensor, context: Context) -> Tensor:
        """See `Encoding.readout`."""
        for e, c in self._all(context):
            x = e.readout(x, c)
        return x


HOOKS = ("embed", "layer", "project", "scores", "bias", "values", "readout")


def hooks_of(cls: type[Encoding]) -> list[str]:
    """The questions that an encoding answers."""
    return [h for h in HOOKS if getattr(cls, h) is not getattr(Encoding, h)]


def _overrides(encoding: nn.Module, hook: str) -> bool:
    return getattr(type(encoding), hook) is not getattr(Encoding, hook)
