"""Cai, Lam (2020), Graph Transformer for Graph-to-Sequence Learning: a GRU reads each path.

    e_ij = (q_i + W_a r_ij) . (k_j + W_b r_ij) / sqrt(head_dim),   r_ij = [forwards; backwards]

are the last states of a GRU over labels and directions of the edges on the path from word i to j,
and of another from j to i. Here the graph is the source's dependency tree. (The paper projects r_ij
to r_(i->j) and r_(j->i), and these by W_q and W_k; its code has other matrices in each layer, and
GRUs of two. W_a and W_b are such products. As there, paths of more than 8 edges count as one.)
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.bias_table import scalars
from nmt.encodings.positions_columns import Heads
from nmt.encodings.trees.paths import LabelledTree, with_vectors


class GraphTransformer(Encoding):
    """2 matrices per layer: 4 layers width dim, 6 width (2 width + 2) of the GRU, width per step.

    All pieces of a word have its paths. Paths longer than `longest`, those within a word, and none
    have a vector each instead of steps.
    """

    sites = ("encoder",)  # columns are parallel to the source
    relative = True
    position_type = "none"  # positions come from the tree alone
    zeros = ("query", "key")

    def __init__(
        self,
        dims: Dims,
        tree: Heads = "heads",
        labels: str = "labels",
        kinds: PositiveInt = 20,
        longest: PositiveInt = 8,
        width: PositiveInt = 64,
    ) -> None:
        labelled = LabelledTree(tree, labels, kinds, longest)
        super().__init__(dims)
        self.columns |= labelled.columns
        self.column_ranges = {labels: range(kinds)}
        labelled.check()
        self.labelled = labelled
        self.steps = self.make_table(2 * kinds + 3, width, per_layer=False)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.query = self.make_table(dims.head_dim, 2 * width, per_head=True)
        self.key = self.make_table(dims.head_dim, 2 * width, per_head=True)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add the three products with W_a r_ij or W_b r_ij to s [batch, heads, query, key]."""
        states, index = self._states(context)
        to_query, to_key = self.pick(self.query, layer), self.pick(self.key, layer)
        both = ((states @ to_query.mT) * (states @ to_key.mT)).sum(-1)  # [heads, path]
        q, k = q @ to_key.to(q.dtype), k @ to_query.to(k.dtype)

        def products(q: Tensor, r: Tensor) -> Tensor:
            to_queries = torch.einsum("bhiw,bijw->bhij", q, r)
            return to_queries + torch.einsum("bhjw,bijw->bhij", k, r)

        return s + scalars(both, index) + with_vectors(products, q, states, index)

    def _states(self, context: Context) -> tuple[Tensor, Tensor]:
        """Of all paths [path, 2 width], and the number of each pair's [batch, query, key].

        In the number format of the weights: see `lstm.hidden_states`.
        """

        def make() -> tuple[Tensor, Tensor]:
            steps, lengths, index = self.labelled.paths(context)
            with torch.autocast(steps.device.type, enabled=False):
                x = F.embedding(steps, self.steps[0, 0])
                packed = pack_padded_sequence(
                    x, lengths.cpu(), batch_first=True, enforce_sorted=False
                )
                last = self.gru(packed)[1]  # [direction, path, width]
            return torch.cat(last.unbind(0), -1), index

        return context.once(("graph_transformer", id(self)), make)
