"""Samples have the probabilities they should, and none depends on its company."""

import itertools
import math
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt import api
from nmt.config.settings import Decode
from nmt.decode.engine import Hypothesis
from nmt.decode.sampling import Sampling, probabilities, random_numbers
from nmt.decode.search import search
from nmt.decode.translator import Translation, Translator
from nmt.errors import UserError
from nmt.modeldir import Trained
from tests.decode.copying import decode as decode_of
from tests.decode.test_beam import BOS, EOS, Table

LONGEST = 2
WAYS: list[dict[str, Any]] = [{}, {"temperature": 2.0, "top_k": 4, "top_p": 0.9}]


def kept(
    log_probs: list[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> dict[int, float]:
    """Token -> probability, one token after the other."""
    weights = {token: math.exp(value / temperature) for token, value in enumerate(log_probs)}
    ranked = sorted(weights, key=lambda token: -weights[token])
    ranked = ranked[: top_k or len(ranked)]
    whole, nucleus = sum(weights[token] for token in ranked), list[int]()
    for token in ranked:
        if top_p < 1 and sum(weights[t] for t in nucleus) >= top_p * whole:
            break
        nucleus.append(token)
    mass = sum(weights[token] for token in nucleus)
    return {token: weights[token] / mass for token in nucleus}


@given(
    st.lists(st.floats(-9, 0), min_size=1, max_size=12, unique=True),
    st.floats(0.1, 5),
    st.integers(0, 13),
    st.sampled_from([0.001, 0.3, 0.77, 0.95, 1.0]),
)
def test_what_is_kept_and_how_likely_it_is(
    log_probs: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    exact = kept(log_probs, temperature, top_k, top_p)
    row = torch.tensor([log_probs], dtype=torch.float64)
    found = probabilities(row, temperature, top_k, top_p)[0].tolist()
    assert found == pytest.approx([exact.get(token, 0.0) for token in range(len(row[0]))])


def test_random_numbers_are_those_of_philox_whatever_else_is_drawn() -> None:
    draws = [(7, 0), (8, 0), (8, 1)]
    numbers = random_numbers(5, draws, samples=3, steps=9)
    for (row, sentence), index in itertools.product(enumerate(draws), range(3)):
        bits = np.random.Philox(key=[5, sentence[0]], counter=[0, index, sentence[1], 0])
        assert numbers[row, index].tolist() == np.random.Generator(bits).random(9).tolist()
    assert torch.equal(random_numbers(5, draws[1:2], 2, 4), numbers[1:2, :2, :4])
    assert len({*numbers.flatten().tolist()}) == numbers.numel()
    assert not torch.equal(random_numbers(6, draws, 3, 9), numbers)


def drawn(table: Table, limits: list[int], samples: int, **way: Any) -> list[list[Hypothesis]]:
    draws = [(line, 0) for line in range(1, len(limits) + 1)]
    numbers = random_numbers(1, draws, samples, max(limits) + 1)
    rule = partial(probabilities, **way)
    return search(table, Sampling(torch.tensor(limits), numbers, distribution=rule, eos=EOS), BOS)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_outputs_are_as_frequent_as_their_probability_says(way: dict[str, Any]) -> None:
    """Pearson's chi-squared over all outputs, at a fixed seed: below its 99.9th percentile."""
    table, count = Table.random(3, batch=2, vocab=4, longest=LONGEST), 6000
    found = drawn(table.again(), [LONGEST, 1], count, **way)
    for sentence, limit in enumerate([LONGEST, 1]):
        expected = outputs(table, sentence, limit, way)
        assert sum(expected.values()) == pytest.approx(1)
        seen = Counter((tuple(h.ids), h.finished) for h in found[sentence])
        assert set(seen) <= set(expected)
        common = {output for output, chance in expected.items() if chance * count >= 5}
        pairs = [(seen[output], expected[output] * count) for output in common]
        rare = count - sum(n for n, _ in pairs), count - sum(e for _, e in pairs)
        pairs += [rare] if rare[1] > 1 else []
        squared = sum((n - e) ** 2 / e for n, e in pairs)
        free = max(1, len(pairs) - 1)  # Wilson and Hilferty 1931: the bound is within 2 %
        bound = free * (1 - 2 / (9 * free) + 3.09 * math.sqrt(2 / (9 * free))) ** 3
        assert squared < bound


def outputs(
    table: Table, sentence: int, limit: int, way: dict[str, Any]
) -> dict[tuple[tuple[int, ...], bool], float]:
    """(ids, finished) of every output -> its probability."""
    found: dict[tuple[tuple[int, ...], bool], float] = {}

    def follow(prefix: tuple[int, ...], chance: float) -> None:
        for token, share in kept(table.after(sentence, prefix), **way).items():
            if token == EOS or len(prefix) == limit:
                end = prefix, token == EOS
                found[end] = found.get(end, 0) + chance * share
            else:
                follow((*prefix, token), chance * share)

    follow((), 1.0)
    return found


@given(st.integers(0, 99), st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_scores_are_log_probabilities_under_the_function_itself(
    seed: int, samples: int, limits: list[int]
) -> None:
    table = Table.random(seed, batch=len(limits), vocab=4, longest=3)
    found = drawn(table.again(), limits, samples, temperature=1.7, top_k=3)
    for sentence, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        assert len(hypotheses) == samples
        for each in hypotheses:
            prefixes = itertools.accumulate([(token,) for token in each.ids], initial=())
            tokens = [*each.ids, EOS] if each.finished else each.ids
            steps = zip(tokens, prefixes, strict=False)
            exact = sum(table.after(sentence, prefix)[token] for token, prefix in steps)
            assert each.log_prob == each.score == pytest.approx(exact, abs=1e-5)
            assert len(each.ids) == limit or each.finished


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_without_a_finite_number_a_sample_ends_as_it_is(way: dict[str, Any], value: float) -> None:
    def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
        rows = torch.tensor([[0.0, 0.0, 1.0]]).log().repeat(len(tokens), 1)
        rows[tokens == 2] = value
        return rows

    numbers = torch.full((1, 2, 6), 0.5)
    rule = partial(probabilities, **way)
    strategy = Sampling(torch.tensor([5]), numbers, distribution=rule, eos=EOS)
    (found,) = search(step, strategy, BOS)
    assert found == [Hypothesis([2], 0.0, 0.0, False)] * 2


def sampling(**changes: Any) -> Decode:
    brief = {"max_length_ratio": 1.0, "max_length_offset": 3, "seed": 4}
    return decode_of(method="sample", **{**brief, **changes})


LINES = ["w3 w1 w4", "", "w1 w5 w9 w2 w6 w5", "w3", "w5 w8 w9 w7 w9 w3 w2 w3 w8", "w4 w6"]


def test_a_line_has_the_same_samples_alone_and_in_company(whole: Trained) -> None:
    def outcome(count: int, **changes: Any) -> list[list[Translation]]:
        return list(Translator.of(whole, sampling(**changes)).translate(LINES, count))

    together = outcome(3, batch_tokens=10_000, window=100)
    assert [len(each) for each in together] == [3, 1, 3, 3, 3, 3]
    texts = [[t.text for t in each] for each in together]
    assert len({text for each in texts for text in each}) == 16  # nothing makes two of them alike
    for changes in ({"batch_tokens": 1}, {"window": 1}, {"batch_tokens": 30, "window": 4}):
        other = outcome(3, **changes)
        assert [[t.text for t in each] for each in other] == texts
        for these, those in zip(other, together, strict=True):
            assert [t.score for t in these] == pytest.approx([t.score for t in those], abs=1e-4)
    assert [[t.text for t in each] for each in outcome(2)] == [each[:2] for each in texts]
    later = Translator.of(whole, sampling()).translate(LINES[3:], 3, first=4)
    assert [[t.text for t in each] for each in later] == texts[3:]
    assert [[t.text for t in each] for each in outcome(3, seed=5)] != texts


def test_the_score_of_a_sample_is_that_of_forced_decoding(whole: Trained) -> None:
    options = sampling(temperature=2.0, top_k=40, alpha=3.0, max_length_offset=50)
    found = Translator.of(whole, options).translate(LINES, 3)
    ended = [
        (line, each.text, each.score)
        for line, samples in zip(LINES, found, strict=True)
        for each in samples
        if line and each.finished and whole.target.ids(each.text)[:-1] == list(each.ids)
    ]
    assert len(ended) > 3
    given = api.score(whole, [line for line, _, _ in ended], [text for _, text, _ in ended])
    assert [score for _, _, score in ended] == pytest.approx([g.log_prob for g in given], abs=1e-4)


def test_no_translation_at_all_cannot_be_asked_for(whole: Trained) -> None:
    with pytest.raises(UserError, match=r"^n=0: a line has one translation or more"):
        api.n_best(whole, ["w1"], 0)
