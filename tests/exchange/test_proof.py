"""One proof for whatever scores and searches: what it finds equal, tied, other, or refuses."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import Exit, UserError
from nmt.exchange import model_card, proof
from nmt.exchange.interface import CTRANSLATE2, ENGINES, EngineScorer, Output
from nmt.modeldir import Trained
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS
from tests.exchange.test_ctranslate2_export import LINES, made

FEW = {"BEYOND": 20, "LONG": 1, "ROOM": 2}


class Copied(EngineScorer):
    """nmt itself as the other engine."""

    library = CTRANSLATE2
    barred: Sequence[int] = (PAD, BOS)
    longest_source: int | None = 60
    longest_target: int | None = 90

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    def source_ids(self, line: str) -> list[int] | None:
        return self.trained.source.ids(line)

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        for source, target in pairs:
            yield proof.log_probs(self.trained.model, source, target)[:, BOS:]

    def output(self, source: list[int], limit: int, beam: int) -> Output:
        """Greedy and the beam agree on what is as certain as here."""
        searched = proof.bar_ids(self.trained, self.barred).model
        ids: list[int] = []
        while len(ids) <= limit and EOS not in ids:
            ids.append(int(proof.log_probs(searched, source, ids)[-1].argmax()))
        return Output([i for i in ids if i != EOS][:limit], EOS in ids)


@pytest.fixture
def trained() -> Trained:
    """A model of which some outputs end."""
    return made("encoding=none")


def certified(
    trained: Trained, scorer: EngineScorer, lines: Sequence[str] = LINES
) -> dict[str, Any]:
    return proof.certify(proof.translate_samples(trained, scorer, lines), scorer)


def greedy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SEARCHES", {"greedy": 1, "beam_4": 1})


def test_a_certificate_says_what_was_compared(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy_alone(monkeypatch)
    certificate = certified(trained, Copied(trained), [*LINES, "", f" {LINES[0]}\u00a0"])
    lines = len(LINES) + 3  # one is joined and one made up, both longer than in training
    assert certificate["compared_with"].startswith("ctranslate2 ")
    assert (
        certificate["lines"],
        certificate["lines_left_out"],
        certificate["lines_normalised"],
    ) == (lines, 1, 1)
    assert (
        certificate["log_probs"] == 0
        and certificate["pieces"] > 60
        and certificate["ill_conditioned"] == 0
    )
    assert certificate["longest_source"] > certificate["longest_trained_source"] == 12
    assert certificate["greedy"]["equal"] == certificate["greedy"]["compared"] == lines
    assert certificate["right_for"] == {"source_pieces": 59, "target_pieces": 89}
    assert "options" not in certificate


def test_one_wrong_probability_is_enough(trained: Trained) -> None:
    class Spoiled(Copied):
        wrong = 1e-3

        def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
            for number, rows in enumerate(super().log_probs(pairs)):
                change = torch.zeros_like(rows)
                change[0, -1] = self.wrong if number == 1 else 0
                yield rows + change

    expected = proof.translate_samples(trained, Copied(trained), LINES)
    for Spoiled.wrong in (1e-3, math.nan):
        with pytest.raises(UserError, match="log-probabilities in ctranslate2 differ by") as error:
            proof.certify(expected, Spoiled(trained))
        assert error.value.code == Exit.DATA


def test_only_made_up_targets_may_differ_by_as_much_as_rounding(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rounded(Copied):
        first, more = 0, 0.0

        def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
            exact = deepcopy(self.trained.model).double()
            for number, (source, target) in enumerate(pairs):
                model = exact if number >= self.first else self.trained.model
                yield proof.log_probs(model, source, target)[:, BOS:] + self.more

    greedy_alone(monkeypatch)
    monkeypatch.setattr(proof, "LOG_PROBS", 1e-9)  # less than rounding
    expected = proof.translate_samples(trained, Copied(trained), LINES)
    with pytest.raises(UserError, match="log-probabilities"):  # in our own outputs
        proof.certify(expected, Rounded(trained))
    Rounded.first = len(expected.samples)
    certificate = proof.certify(expected, Rounded(trained))
    assert certificate["ill_conditioned"] > 0 and certificate["log_probs"] == 0
    assert "made-up translations do not count" in str(model_card.write_sentences(certificate))
    Rounded.more = 1e-4
    with pytest.raises(UserError, match=r"log-probabilities"):
        proof.certify(expected, Rounded(trained))


def test_other_pieces_of_a_line_are_named(trained: Trained) -> None:
    class Cut(Copied):
        def source_ids(self, line: str) -> list[int]:
            return [SPECIALS, *self.trained.source.ids(line)]

    with pytest.raises(UserError, match="ctranslate2 segments it differently"):
        certified(trained, Cut(trained))


def test_another_output_is_refused_and_measured(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy_alone(monkeypatch)

    class Other(Copied):
        def output(self, source: list[int], limit: int, beam: int) -> Output:
            output = super().output(source, limit, beam)
            return Output(output.ids, not output.finished)

    expected = proof.translate_samples(trained, Copied(trained), LINES[:1])
    with pytest.raises(UserError, match="gives another translation by greedy"):
        proof.certify(expected, Other(trained))
    greedy = proof.measure(expected, Other(trained))["greedy"]
    assert greedy["equal"] + greedy["ties"] < greedy["compared"]


def test_pieces_of_equal_probability_are_a_tie(trained: Trained) -> None:
    twins = (SPECIALS, SPECIALS + 1)
    with torch.no_grad():
        for part in (trained.model.output.weight, trained.model.output.bias):
            part[twins[0]] = part[twins[1]]
    one, other = (Output([twin, 9], True) for twin in twins)
    assert proof.is_tie(trained.model, [9, 8], one, other, 1)
    assert not proof.is_tie(trained.model, [9], Output([8], True), Output([9], True), 1)
    assert not proof.is_tie(trained.model, [9], Output([8], True), Output([8], True), 1)


def test_without_lines_some_are_made_up_fewer_for_a_large_model(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Copied(trained)
    chosen, left_out = proof.choose_samples(trained, scorer)
    assert (chosen, left_out) == proof.choose_samples(trained, scorer)
    assert left_out == 0 and len(chosen) == proof.MADE_UP + proof.LONG
    parameters = sum(weight.numel() for weight in trained.model.parameters())
    monkeypatch.setattr(proof, "LARGE", parameters // 2)
    few, _ = proof.choose_samples(trained, scorer)
    assert len(few) == proof.MADE_UP // 2 + proof.LONG


def test_lines_are_joined_until_they_are_longer_than_in_training(trained: Trained) -> None:
    pieces = len(trained.source.ids(LINES[0])) - 1
    facts = {**trained.facts, "longest_source": 5 * pieces // 2}
    chosen, _ = proof.choose_samples(trained._replace(facts=facts), Copied(trained), [LINES[0]] * 3)
    texts = [sample.line for sample in chosen]
    assert texts[:4] == [LINES[0]] * 3 + [" ".join([LINES[0]] * 3)]


def test_lines_whose_translation_would_not_fit_are_left_out(trained: Trained) -> None:
    class Small(Copied):
        longest_source: int | None = 12
        longest_target: int | None = 12

    kept, left_out = proof.choose_samples(trained, Small(trained), LINES)
    room = int((12 - 1 - proof.ROOM) / proof.RATIO)
    assert kept and left_out and all(len(sample.ids) <= room for sample in kept)
    Small.longest_target = 2
    with pytest.raises(UserError, match="no sample is short enough"):
        proof.choose_samples(trained, Small(trained), LINES)


def test_every_engine_has_a_writer() -> None:
    for engine in ENGINES.values():
        module, function = engine.writer.split(".")
        assert callable(getattr(import_module(f"nmt.exchange.{module}"), function))
