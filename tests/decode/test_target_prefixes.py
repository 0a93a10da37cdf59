"""Translations begin as they must, with the probability that the model gives to the whole."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nmt
from nmt import api
from nmt.decode.beam import Beam
from nmt.decode.engine import length_penalty
from nmt.decode.sampling import Sampling, probabilities, random_numbers
from nmt.decode.search import search, with_required
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.modeldir import Trained
from tests.decode.copying import decode
from tests.decode.test_beam import BOS, EOS, Table

CPU = torch.device("cpu")
LINES = ["w3 w1 w4", "w2", "", "w1 w5 w9 w2 w6 w5", "w3", "w5 w8 w9 w7 w9"]
PREFIXES = ["w7 w7", "", "", "w1 w30 w2", "w31", ""]
prefixes_of_batch = st.lists(st.lists(st.integers(2, 3), max_size=3), min_size=1, max_size=4)


@given(st.integers(0, 99), prefixes_of_batch)
def test_a_beam_finds_the_best_of_what_begins_so(seed: int, prefixes: list[list[int]]) -> None:
    """Against all outputs; each sentence of a batch has its own prefix."""
    longest, vocab, alpha = 3, 4, 0.6
    table = Table.random(seed, batch=len(prefixes), vocab=vocab, longest=longest)
    strategy = Beam(
        torch.full((len(prefixes),), longest),
        beam_size=vocab**longest,
        penalty=lambda length: length_penalty(length, alpha),
        eos=EOS,
    )
    found = search(with_required(table.again(), prefixes, EOS, CPU), strategy, BOS)
    for sentence, (hypotheses, prefix) in enumerate(zip(found, prefixes, strict=True)):
        expected = {}
        for length in range(len(prefix), longest + 1):
            for rest in itertools.product([2, 3], repeat=length - len(prefix)):
                ids = (*prefix, *rest)
                each = [table.after(sentence, ids[:at]) for at in range(length + 1)]
                total = sum(log_probs[token] for log_probs, token in zip(each, ids, strict=False))
                ends = length < longest or max(each[-1][1:]) == each[-1][EOS]
                total += each[-1][EOS] if ends else 0.0
                expected[ids] = total, total / length_penalty(length + ends, alpha)
        assert {tuple(h.ids) for h in hypotheses} == set(expected)
        for each_found in hypotheses:
            log_prob, score = expected[tuple(each_found.ids)]
            assert each_found.log_prob == pytest.approx(log_prob, abs=1e-5)
            assert each_found.score == pytest.approx(score, abs=1e-5)


def test_samples_begin_so_and_go_on_as_the_function_says() -> None:
    table, count, prefix = Table.random(2, batch=2, vocab=4, longest=2), 4000, [3]
    numbers = random_numbers(1, [(1, 0), (2, 0)], count, 3)
    step = with_required(table.again(), [prefix, []], EOS, CPU)
    limits = torch.tensor([2, 2])
    strategy = Sampling(limits, numbers, distribution=probabilities, eos=EOS)
    first, second = search(step, strategy, BOS)
    assert {h.ids[0] for h in first} == {3} and {tuple(h.ids[:1]) for h in second} > {(3,)}
    shares = torch.tensor(table.after(0, (3,))).softmax(0)
    ends = sum(h.ids == [3] for h in first) / count  # drawn after the prefix: eos
    assert ends == pytest.approx(float(shares[EOS]), abs=4 * (0.25 / count) ** 0.5)


def translations(
    some: Trained, prefixes: list[str] | None = PREFIXES, n_best: int = 1, **changes: Any
) -> list[list[Translation]]:
    options = decode(**{"max_length_ratio": 1.0, "max_length_offset": 6, **changes})
    return list(Translator.of(some, options).translate(LINES, n_best, prefixes=prefixes))


WAYS: list[dict[str, Any]] = [{"beam_size": 1}, {"beam_size": 4}, {"method": "sample"}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_line_begins_as_it_must_whatever_the_batches(
    whole: Trained, way: dict[str, Any]
) -> None:
    n_best = 1 if way == {"beam_size": 1} else 3
    found = translations(whole, n_best=n_best, **way)
    for prefix, translated in zip(PREFIXES, found, strict=True):
        assert all(t.text.startswith(prefix) for t in translated)
    free = translations(whole, None, n_best, **way)
    pairs = list(zip(PREFIXES, found, free, strict=True))
    assert all([t.text for t in some] == [t.text for t in same] for p, some, same in pairs if not p)
    assert not any(some[0].text == same[0].text for prefix, some, same in pairs if prefix)
    more: list[dict[str, Any]] = [{"batch_tokens": 1}, {"window": 2}, {"window": 99}]
    for changes in more:
        other = translations(whole, n_best=n_best, **{**way, **changes})
        assert [[t.text for t in some] for some in other] == [
            [t.text for t in some] for some in found
        ]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_score_is_that_of_the_whole_translation(whole: Trained, way: dict[str, Any]) -> None:
    found = translations(whole, alpha=0.0, **way)
    some = [
        (line, best)
        for line, (best,) in zip(LINES, found, strict=True)
        if whole.target.ids(best.text)[:-1] == list(best.ids) and line
    ]
    scored = api.score(whole, [line for line, _ in some], [best.text for _, best in some])
    assert {dict(zip(LINES, PREFIXES, strict=True))[line] for line, _ in some} & {"w7 w7", "w31"}
    for (_, best), exact in zip(some, scored, strict=True):
        log_probs = exact.log_probs if best.finished else exact.log_probs[:-1]
        assert best.score == pytest.approx(sum(log_probs), abs=1e-4)


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        (["w1", "", "", "", "w1"], "target prefixes: only 5 lines"),
        ([""] * 7, "the text: only 6 lines, but target prefixes has more"),
    ],
)
@pytest.mark.parametrize("window", [2, 99])
def test_prefixes_are_parallel_to_the_text(
    whole: Trained, prefixes: list[str], message: str, window: int
) -> None:
    with pytest.raises(UserError) as error:
        translations(whole, prefixes, window=window)
    assert str(error.value).startswith(message) and error.value.code == Exit.DATA


@pytest.mark.parametrize(
    ("number", "prefix", "message"),
    [
        (3, "w1", "target prefix, line 3: the line of the text is empty"),
        (2, "w1 what", "target prefix, line 2: the model does not know the piece 'what'; its line"),
        (2, "w1 " * 8, "target prefix, line 2: has 8 pieces, but the translation may have 7"),
    ],
)
@pytest.mark.parametrize("window", [2, 99])
def test_what_cannot_begin_costs_its_own_line_alone(
    whole: Trained,
    number: int,
    prefix: str,
    message: str,
    window: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prefixes = ["w1", "", "", "", "", "w1 who"]  # the last is unknown, too
    prefixes[number - 1] = prefix
    some = Translator.of(whole, decode(max_length_ratio=1.0, max_length_offset=6, window=window))
    found = some.translate(LINES, prefixes=prefixes)
    texts = [next(found)[0].text for _ in LINES]
    with pytest.raises(RefusedLinesError) as error:
        next(found)
    assert error.value.code == Exit.DATA and str(error.value) == (
        "target prefixes with which no translation can begin, their lines left empty: "
        f"2 (first: line {number}); change or empty them"
    )
    (warning,) = [text for text in caplog.messages if "target prefix" in text]
    assert warning.startswith(message) and warning.endswith("; its line is left empty")
    unfit = {number, 6}
    fit = ["" if n in unfit else p for n, p in enumerate(prefixes, 1)]
    right = translations(whole, fit, max_length_offset=6, window=window)
    assert texts == ["" if n in unfit else t.text for n, (t,) in enumerate(right, 1)]


def test_a_prefix_may_fill_all_the_room(whole: Trained) -> None:
    prefixes = ["", "w1 " * 7, "", "", "", ""]
    assert translations(whole, prefixes)[1][0].text == "w1 w1 w1 w1 w1 w1 w1"


def test_a_line_that_must_be_split_has_no_beginning(whole: Trained) -> None:
    some = Translator.of(whole, decode(max_source=3, too_long="split"))
    assert all(text for text, line in zip(some.texts(LINES), LINES, strict=True) if line)
    found = some.translate(LINES, prefixes=["", "", "", "w1", "", ""])
    assert next(found)[0].text and [next(found)[0].text for _ in range(5)][2] == ""
    with pytest.raises(
        RefusedLinesError, match=r"1 \(first: line 4; .*; split them, together with their"
    ):
        next(found)


def test_the_python_api_takes_them(whole: Trained) -> None:
    brief: dict[str, Any] = {"max_length_ratio": 1, "max_length_offset": 6, "alpha": 0.6}
    found = nmt.translate(whole, LINES, target_prefixes=PREFIXES, beam_size=2, **brief)
    assert found == [best.text for (best,) in translations(whole, beam_size=2)]
    with pytest.raises(UserError, match="target_prefixes: a text, where a list"):
        nmt.translate(whole, LINES, target_prefixes="w1")
