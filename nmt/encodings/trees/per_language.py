"""Artetxe, Ruder, Yogatama (2020), On the Cross-lingual Transferability of Monolingual
Representations: learned positions of each language.

x_t + W[language, t]: languages order their words differently, so each has a table of its own, and
a sentence says which it is in. (They learn the table of a new language while the rest of a trained
model stays frozen; here all tables are trained with the model.)
"""

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class PerLanguage(Encoding):
    """Adds a learned vector per language and position: languages x longest x dim parameters."""

    position_type = "integer"
    zeros = ("weight",)

    def __init__(
        self,
        dims: Dims,
        column: str = "language",
        languages: PositiveInt = 2,
        longest: PositiveInt = 1024,
    ) -> None:
        super().__init__(dims)
        self.num_positions = longest
        self.columns |= {column}
        self.sentence_columns = frozenset({column})
        self.column_ranges = {column: range(languages)}
        if not column:
            raise ValueError("column=: name the column that says a sentence's language")
        self.column = column
        self.weight = nn.Parameter(torch.randn(languages, longest, dims.dim) * dims.dim**-0.5)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the row of each position in the sentence's table to x [batch, query, dim]."""
        numbers = context.column(self.column)  # [batch, 1], within `column_ranges`
        if numbers.shape[1] != 1:
            raise ValueError(f"column {self.column!r} must have one integer per sentence")
        return x + self.weight[numbers, context.query_positions].to(x.dtype)
