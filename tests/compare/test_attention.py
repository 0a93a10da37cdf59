"""Attention statistics against loops over single sentences; batches and buckets change nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nmt.compare.attention.statistics import (
    AttentionStatistics,
    SentenceCoverage,
    attention_statistics,
    profiles,
    unattended,
)
from nmt.compare.report import REACH
from nmt.config.settings import Settings
from nmt.data.bpe import Bpe
from nmt.data.columns import ColumnLine, expand
from nmt.data.side import Side
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocab import BOS, Vocabulary
from nmt.errors import Exit, UserError
from nmt.model.attention import AttentionRecord
from nmt.model.transformer import Transformer
from nmt.model.watch import watching
from nmt.modeldir import Trained
from tests.composing import every_encoding

PIECES = [letter + end for letter in "abcdefgh" for end in ("", "@@")]
SOURCES = ["ab c", "h", "abc d ef", "a b c d", "gh", "abcdef abc h"]
HYPOTHESES = ["a b", "abc hg d e", "", "fed cba", "a", "h z g"]  # z is unknown
COLUMNS = {
    "heads": ["0 1", "0", "2 0 2", "0 1 2 3", "0", "3 1 0"],
    "order": ["1 0", "0", "2 1 0", "0 1 3 2", "0", "0 2 1"],
    "depth": ["0 1", "0", "1 0 1", "0 1 2 3", "0", "1 2 0"],
    "labels": ["0 3", "0", "1 0 2", "0 1 2 1", "0", "4 1 0"],
    "language": ["0", "1", "0", "1", "1", "0"],
}
PER = {"language": "sentence"}
FAR = "a b c d e f g h " * 6  # 48 pieces
SITES = ["encoder", "decoder", "cross"]

Make = Callable[..., Trained]
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


@pytest.fixture
def trained(tiny: Callable[..., Transformer], settings_of: Callable[..., Settings]) -> Make:
    """A model that was never trained, with segmenters of single letters."""

    def make(*words: str) -> Trained:
        vocabulary = Vocabulary(PIECES)
        side = Side(Bpe(Tokenizer("nfc", "none", "de"), [], PIECES), vocabulary)
        model = tiny(*words, vocab=len(vocabulary))
        return Trained(settings_of(*words), model, side, side, {"longest_source": 30})

    return make


def by_hand(some: Trained, place: int) -> tuple[SentenceCoverage, dict[str, Any]]:
    """Coverage and sums by site [layer, head, distance] of one sentence, in loops."""
    source, hypothesis = SOURCES[place], HYPOTHESES[place]
    ids, target = some.source.ids(source), [BOS, *some.target.ids(hypothesis)[:-1]]
    model = some.model
    beside = {
        name: ColumnLine(PER.get(name, "word"), COLUMNS[name][place], "here")
        for name in model.columns - {"words"}
    }
    found = expand(source, beside, some.source.segmenter, "here", words="words" in model.columns)
    columns = {name: torch.tensor([row]) for name, row in found.items()}
    looks: list[AttentionRecord] = []
    with torch.inference_mode(), watching(model, looks.append):
        model.hidden(torch.tensor([ids]), torch.tensor([target]), columns)
    n, steps, heads = len(ids) - 1, len(target) - 1, 2
    sums = {site: np.zeros((2, heads, 201)) for site in SITES}
    total, passes = np.zeros((steps, n)), np.zeros(steps)
    for site, layer, p, _ in looks:
        streams = model.streams
        for i in range(n if site == "encoder" else steps):
            for stream in range(streams):
                if site == "cross":
                    passes[i] += 1 / streams
                for j in range(n) if site != "decoder" else range(1, i + 1):
                    for head in range(heads):
                        a = float(p[stream, head, i, j]) / streams
                        sums[site][layer, head, 100 + j - i] += a
                        if site == "cross":
                            total[i, j] += a / heads
    coverage = [sum(total[i, j] / passes[i] for i in range(steps)) for j in range(n)]
    pieces = some.source.segmenter.encode(source)
    return SentenceCoverage(pieces, coverage), sums


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=absolute"],
        ["encoding=relative", "model.norm=post"],
        ["encoding=complex_order"],
        ["encoding=xl_pe"],
        ["encoding=tpe"],
        ["encoding=ldpe"],
        ["encoding=universal", "model.share_layers=true"],
    ],
    ids=" ".join,
)
def test_sums_by_hand(words: list[str], trained: Make) -> None:
    some = trained(*words)
    looked = attention_statistics(some, SOURCES, HYPOTHESES, COLUMNS)
    whole = {site: np.zeros((2, 2, 201)) for site in SITES}
    for place, seen in enumerate(looked.sentences):
        hand, sums = by_hand(some, place)
        assert seen.pieces == hand.pieces
        assert seen.coverage == pytest.approx(hand.coverage, abs=1e-5)
        for site in SITES:
            whole[site] += sums[site]
    assert list(looked.distances) == ["all"]
    distances = np.arange(-100, 101)
    for site, found in looked.distances["all"].items():
        assert np.allclose(found.weight, whole[site].sum(-1), atol=1e-4)
        assert np.allclose(found.moved, (whole[site] * abs(distances)).sum(-1), atol=1e-4)
        assert np.allclose(found.histogram, whole[site][..., 100 - REACH : 101 + REACH], atol=1e-4)
        assert found.weight.min() > 0


@pytest.mark.parametrize("option", every_encoding())
def test_every_encoding_whatever_the_batches(option: str, trained: Make) -> None:
    some = trained(f"encoding={option}")
    buckets = {"short": [1, 4], "long": [0, 2, 3, 5], "all": range(6), "none": []}
    together = attention_statistics(some, SOURCES, HYPOTHESES, COLUMNS, buckets)
    alone = attention_statistics(some, SOURCES, HYPOTHESES, COLUMNS, buckets, tokens=1)
    for a, b, text in zip(together.sentences, alone.sentences, HYPOTHESES, strict=True):
        outputs = len(some.target.ids(text)) - 1
        assert a.pieces == b.pieces
        assert a.coverage == pytest.approx(b.coverage, abs=1e-4)
        assert 0 < sum(a.coverage) < outputs or outputs == sum(a.coverage) == 0
    for bucket, sites in together.distances.items():
        assert list(sites) == ([] if bucket == "none" else SITES)
        for site, found in sites.items():
            other = alone.distances[bucket][site]
            for name in ("weight", "moved", "histogram"):
                assert np.allclose(getattr(found, name), getattr(other, name), atol=1e-3), name
            parts = [together.distances[part][site] for part in ("short", "long")]
            total = together.distances["all"][site].histogram
            assert np.allclose(parts[0].histogram + parts[1].histogram, total, atol=1e-9)
    shown = list(profiles(together, 3, "test"))
    assert {(p.bucket, p.site) for p in shown} == {
        (bucket, site) for bucket in ("short", "long", "all") for site in SITES
    }
    for p in shown:
        assert (p.system, p.test) == (3, "test")
        assert p.layer in (1, 2) and p.head in (1, 2)
        assert sum(p.weights) == pytest.approx(1)
        assert len(p.weights) == len(p.distances) == p.distances[-1] - p.distances[0] + 1
        mean = sum(abs(d) * w for d, w in zip(p.distances, p.weights, strict=True))
        assert mean == pytest.approx(p.distance, abs=1e-5)  # nothing here is farther than REACH
        if p.site == "decoder":
            assert p.distances[-1] <= 0


def test_what_is_far_is_at_the_ends(trained: Make) -> None:
    some = trained("encoding=absolute")
    looked = attention_statistics(some, [FAR.strip()], ["a b"])
    encoder = [p for p in profiles(looked, 0, "t") if p.site == "encoder"]
    for p in encoder:
        assert p.distances == list(range(-REACH, REACH + 1))
        assert p.weights[0] > 2 * p.weights[1]  # of 48 pieces, 16 + 15 + ... + 1 pairs
        assert p.distance > sum(abs(d) * w for d, w in zip(p.distances, p.weights, strict=True))
    cross = next(p for p in profiles(looked, 0, "t") if p.site == "cross")
    assert (cross.distances[0], cross.distances[-1]) == (-1, REACH)


def test_empty_sides(trained: Make) -> None:
    some = trained("encoding=absolute")
    looked = attention_statistics(some, ["", "a b", "c"], ["", "", "d"])
    assert looked.sentences[0] == SentenceCoverage([], [])
    assert looked.sentences[1] == SentenceCoverage(["a", "b"], [0, 0])
    assert sum(looked.sentences[2].coverage) > 0
    assert attention_statistics(some, [], []) == AttentionStatistics([], {"all": {}})
    none = attention_statistics(some, ["a b"], [""])
    assert {p.site for p in profiles(none, 0, "t")} == {"encoder"}


def test_what_the_table_cannot_hold_has_no_attention(trained: Make) -> None:
    some = trained("encoding=learned", "encoding.learned.size=6")
    assert (some.model.source_limit, some.model.target_limit) == (6, 6)
    long, cut = attention_statistics(
        some, ["a b c d e f g", "a b c d e"], ["a b c d e f g h", "a b c d e"]
    )[0]
    assert len(long.pieces) == 7
    assert long.coverage[5:] == [0, 0]
    assert long.coverage[:5] == pytest.approx(cut.coverage)


def test_trees_that_are_cut_are_cut_as_in_translation(trained: Make) -> None:
    some = trained("encoding=[learned,tpe]", "encoding.learned.size=4")
    seen = attention_statistics(some, ["a b c d e"], ["a"], {"heads": ["0 5 2 1 1"]}).sentences[0]
    assert seen.coverage[3:] == [0, 0] and min(seen.coverage[:3]) > 0


def test_unattended_by_hand() -> None:
    def seen(*coverage: float) -> SentenceCoverage:
        return SentenceCoverage(["a"] * len(coverage), list(coverage))

    some = [seen(0.1, 0.2, 1.9), seen(0), seen()]
    assert unattended(some) == 0.5
    assert unattended([seen()]) is None
    assert unattended([]) is None


def test_what_does_not_fit_is_refused(trained: Make) -> None:
    with pytest.raises(UserError, match="the translations end after line 1, but the text") as e:
        attention_statistics(trained("encoding=absolute"), ["a", "b"], ["c"])
    assert e.value.code == Exit.DATA
    some = trained("encoding=xl_pe")
    with pytest.raises(UserError, match="column order: this model reads it"):
        attention_statistics(some, ["a"], ["c"])
    with pytest.raises(UserError, match="column order, line 2"):
        attention_statistics(some, ["a", "b"], ["c", "d"], {"order": ["0", "1 0"]})
