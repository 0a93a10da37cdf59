"""Liu, Yu, Dhillon, Hsieh (2020), Learning to Encode Position for Transformer with Continuous
Dynamical Model: FLOATER.

Position vectors lie on a path that a small network f draws, so there is one for every position:

    dp/ds = f(s, p(s)),   p_t = p(step t),   f(s, p) = W2 [relu(W1 [p; s] + b1); s] + b2

Each layer has a path for queries, keys and values, which differ in their start p(0) and share f;
the vectors are added after the projections: q_i + p^Q_i, k_j + p^K_j, v_j + p^V_j. The sinusoids
at the input are kept, so a trained Transformer with zero paths is still itself. The equation is
solved by the classical Runge-Kutta method of fourth order with `substeps` steps per position.

As in the authors' code: step 0.01, Xavier start, and the sites of `floater_cross`. They take 5
substeps; one differs from that by less than 1e-6 in the first 255 positions of a fresh path.
Otherwise than there the ordinary projection biases stay (they only shift the paths), and
the path is drawn anew in each training pass, not every 400 updates: 4 substeps evaluations of f per
position, one after the other. Step by step decoding gives all source keys their own vectors.
"""

from functools import partial

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveFloat, PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, Projection

ROLES = 3  # queries, keys, values


class Dynamics(nn.Module):
    """The slope of all paths at time s: 2 (dim^2 + 2 dim) parameters."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Linear(dim + 1, dim) for _ in range(2))
        for linear in (self.inner, self.outer):
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, s: float, p: Tensor) -> Tensor:
        """Time s and points p [..., dim] -> [..., dim]."""
        time = p.new_full((*p.shape[:-1], 1), s)
        h = self.inner(torch.cat([p, time], dim=-1)).relu()
        return self.outer(torch.cat([h, time], dim=-1))


class Floater(Encoding):
    """Adds learned continuous paths to q, k and v: 3 layers dim + 2 (dim^2 + 2 dim) per site."""

    zeros = ("start", "dynamics.outer")
    # the path begins at 0 and has no end
    position_type = "integer"
    num_positions = 2**63 - 1

    def __init__(self, dims: Dims, step: PositiveFloat = 0.01, substeps: PositiveInt = 1) -> None:
        super().__init__(dims)
        self.step = step
        self.substeps = substeps
        self.start = self.make_table(ROLES, dims.dim)  # [layers, 1, role, width]
        self.dynamics = Dynamics(dims.dim)
        self._path_so_far: list[Tensor] = []  # the path so far, for passes without gradients
        self._path_parameters: list[Tensor] = []  # the parameters that it was drawn with

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add each role's vectors after the projection."""
        q, k, v = project(xq, xk, xv)
        path, first = context.once(("floater", id(self)), lambda: self._path(context))
        positions = (context.query_positions, context.new_key_positions, context.new_key_positions)
        q, k, v = (
            x + self._heads(path[at - first, layer, 0, role]).to(x.dtype)
            for role, (x, at) in enumerate(zip((q, k, v), positions, strict=True))
        )
        return q, k, v

    def _heads(self, p: Tensor) -> Tensor:
        """[batch | 1, n, width] -> [batch | 1, heads, n, head_dim]."""
        return p.unflatten(-1, (self.dims.heads, self.dims.head_dim)).transpose(1, 2)

    def _path(self, context: Context) -> tuple[Tensor, int]:
        """The stretch [position, layers, 1, role, width] that the pass needs, and its beginning."""
        first, last = _position_bounds(context)
        device = context.query_positions.device.type
        with torch.autocast(device, enabled=False):  # steps of 0.01 do not suit bfloat16
            path_of = partial(self._extended, []) if torch.is_grad_enabled() else self._extend_path
            path = path_of(last + 1)
            return torch.stack(path[first : last + 1]), first

    def _extend_path(self, count: int) -> list[Tensor]:
        """Decoding extends the path that it has, as long as no parameter changes.

        Their values are compared: fused optimisers, `.data` and inference mode count no versions.
        """
        parameters = [p.detach() for p in self.parameters()]
        if not self._path_so_far or not all(map(_same, parameters, self._path_parameters)):
            self._path_so_far, self._path_parameters = [], [p.clone() for p in parameters]
        self._path_so_far = self._extended(self._path_so_far, count)
        return self._path_so_far

    def _extended(self, path: list[Tensor], count: int) -> list[Tensor]:
        """The path with at least `count` points."""
        path = list(path) or [self.start]
        while len(path) < count:
            path.append(self._next(len(path) - 1, path[-1]))
        return path

    def _next(self, t: int, p: Tensor) -> Tensor:
        """From p_t to p_{t+1} in `substeps` steps of Runge-Kutta."""
        f, h = self.dynamics, self.step / self.substeps
        for n in range(self.substeps):
            s = t * self.step + n * h
            k1 = f(s, p)
            k2 = f(s + h / 2, p + h / 2 * k1)
            k3 = f(s + h / 2, p + h / 2 * k2)
            k4 = f(s + h, p + h * k3)
            p = p + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return p


def _position_bounds(context: Context) -> tuple[int, int]:
    """The first and the last position of queries and new keys, or of some more.

    For consecutive positions this needs no waiting for a GPU.
    """
    if not context.positions.consecutive:
        at = torch.cat([context.query_positions.flatten(), context.new_key_positions.flatten()])
        return int(at.min()), int(at.max())
    bounds = []
    news = {"query_positions": context.query_positions, "key_positions": context.new_key_positions}
    for which, new in news.items():
        if count := new.shape[1]:
            least, greatest = context.bounds(which)
            if not context.training:  # then nothing is drawn, and the new ones are the last
                least = max(least, greatest - count + 1)
            bounds.append((least, greatest))
    return min(least for least, _ in bounds), max(greatest for _, greatest in bounds)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
