"""The share of the source that a translation never attends to: a sign of loss without references.

The model reads each source again together with its own translation (teacher forcing), and the
probabilities of cross-attention are added up while they are made.

- The translation is cut into pieces anew, not always those that the search found.
- The queries are the decoder's steps that produce the pieces of the translation, without <eos>.
  What goes to <eos> of the source covers nothing: heads rest there when they have nothing to do.
- Complex embeddings have two streams for each token, each with its own attention: their mean.
- Pieces that a table of positions cannot hold are cut off, as decode.too_long=truncate does, and
  have no attention.
- Encodings that need the desired length get that of the translation.
"""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.corpus.grouping import by_length
from nmt.decode.engine import Source
from nmt.decode.lines import LineReader
from nmt.decode.models import as_inputs, mean_over_layers, record_layers
from nmt.evaluation.metrics import Floats
from nmt.modeldir import Trained
from nmt.text.vocab import PAD

TOKENS = 4096  # of a batch, padding included
SAMPLE = 16  # lines of a bucket whose attention is added up
LITTLE = 0.2
"""Coverage below which a source piece counts as not attended to.

It is the sum over all pieces of the translation: about 1 where both sides are equally long.
"""


def coverage(
    trained: Trained,
    sources: Sequence[str],
    translations: Sequence[str],
    columns: Mapping[str, Sequence[str]] | None = None,
    tokens: int = TOKENS,
) -> list[list[float]]:
    """How much cross-attention each source piece got, summed over the translation's pieces.

    The mean over heads and layers. `columns`: the integers parallel to the sources, line by line,
    as for translation. A batch holds at most `tokens` tokens of the longer side. An empty source
    was not translated by the model and has no attention. Raises UserError as translation does.
    """
    reader = LineReader(trained, trained.model)
    lines = reader.lines(sources, columns or {}, translations)
    pairs = [reader.pair(line, truncate=True) for line in lines]
    encode = trained.source.segmenter.encode  # of whole lines, which pairs may have cut
    covered = [[0.0] * len(encode(pair.protected.text)) for pair in pairs]
    filled = [place for place, pair in enumerate(pairs) if pair.pieces]
    for group in by_length([pairs[place].length for place in filled], tokens):
        batch = [filled[i] for i in group]
        rows = _cover_batch(trained, [pairs[place] for place in batch])
        for place, row in zip(batch, rows.tolist(), strict=True):
            # pieces that were cut off got nothing, nor did <eos> and padding
            covered[place] = (row + covered[place])[: len(covered[place])]
    return covered


def _cover_batch(trained: Trained, pairs: Sequence[Source]) -> Tensor:  # [batch, source]
    model = trained.model
    source, target, columns = as_inputs(pairs, next(model.parameters()).device)
    keys, queries = map(_all_but_last, (source, target))  # <eos>, and the step that produces it
    with torch.inference_mode(), record_layers(model) as layers:
        model.hidden(source, target, columns)
    # without pieces for languages
    p = mean_over_layers(layers)[:, -queries.shape[1] :, -keys.shape[1] :]
    return (p * (queries[:, :, None] & keys[:, None, :])).sum(1)


def _all_but_last(ids: Tensor) -> Tensor:
    """Which ids [batch, length] are neither padding nor the last of their line."""
    filled = ids != PAD
    followed = filled & filled.roll(-1, 1)
    followed[:, -1] = False
    return followed


def count_unattended(
    trained: Trained,
    sources: Sequence[str],
    translations: Sequence[str],
    sample: Sequence[int],
    columns: Mapping[str, Sequence[str]] | None = None,
) -> Floats:
    """For each source, its pieces with too LITTLE coverage, and all its pieces: [lines, 2].

    Zero in lines that are not in the sample. An empty translation attends to nothing.
    """
    counts = np.zeros((len(sources), 2))
    chosen = {name: [column[i] for i in sample] for name, column in (columns or {}).items()}
    texts = [sources[i] for i in sample], [translations[i] for i in sample]
    for line, values in zip(sample, coverage(trained, *texts, chosen), strict=True):
        counts[line] = sum(value < LITTLE for value in values), len(values)
    return counts


def draw_lines(
    lines: Sequence[int], sources: Sequence[str], seed: int, most: int = SAMPLE
) -> list[int]:
    """Draw up to `most` lines without replacement, in order; empty ones are left out."""
    filled = [line for line in lines if sources[line].strip()]
    return sorted(random.Random(seed).sample(filled, min(most, len(filled))))
