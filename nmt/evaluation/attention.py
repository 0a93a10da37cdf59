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

import logging
import random
from collections.abc import Mapping, Sequence

import numpy as np

from nmt.corpus.grouping import by_length
from nmt.decode.lines import LineReader
from nmt.decode.models import cross_attention, mean_over_layers
from nmt.evaluation.metrics import Floats
from nmt.evaluation.options import EvaluationOptions
from nmt.evaluation.report import TranslatedTest
from nmt.evaluation.scoring import choose_lines
from nmt.evaluation.systems import System
from nmt.evaluation.translations import load_single, read_columns
from nmt.exchange import ctranslate2_engine
from nmt.modeldir import Trained

log = logging.getLogger(__name__)

TOKENS = 4096  # of a batch, padding included
SAMPLE = 16  # lines of a bucket whose attention is added up
LITTLE = 0.2
"""Coverage below which a source piece counts as not attended to.

It is the sum over all pieces of the translation: about 1 where both sides are equally long.
"""


def measure_coverage(
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
    filled = [i for i, pair in enumerate(pairs) if pair.pieces]
    for group in by_length([pairs[i].length for i in filled], tokens):
        batch = [filled[n] for n in group]
        attention = cross_attention([trained.model], [pairs[i] for i in batch], mean_over_layers)
        for i, weights in zip(batch, attention, strict=True):
            received = weights[:-1, :-1].sum(0)  # without <eos>, and the step that produces it
            covered[i][: len(received)] = received.tolist()  # pieces that were cut off got nothing
    return covered


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
    for line, values in zip(sample, measure_coverage(trained, *texts, chosen), strict=True):
        counts[line] = sum(value < LITTLE for value in values), len(values)
    return counts


def count_attention(
    test: TranslatedTest, s: int, system: System, options: EvaluationOptions
) -> Floats | None:
    """What `count_unattended` counts of the first run of system `s`, in a sample of each bucket.

    None for files and exports for CTranslate2, which show no attention.
    """
    if not system.models or ctranslate2_engine.is_exported(system.models[0].path):
        return None
    log.info("observing the attention of %s", system.label)
    sources = test.sources or []
    chosen = choose_lines(len(sources), test.lengths, options.bounds)
    buckets = [lines.tolist() for group, lines in chosen.items() if group.low is not None]
    sample = sorted(i for lines in buckets for i in draw_lines(lines, sources, options.seed))
    trained = load_single(system.models[0], options)
    columns = read_columns(trained, test.columns[s])
    return count_unattended(trained, sources, test.hypotheses[s][0], sample, columns)


def draw_lines(
    lines: Sequence[int], sources: Sequence[str], seed: int, most: int = SAMPLE
) -> list[int]:
    """Draw up to `most` lines without replacement, in order; empty ones are left out."""
    filled = [line for line in lines if sources[line].strip()]
    return sorted(random.Random(seed).sample(filled, min(most, len(filled))))
