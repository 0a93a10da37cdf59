"""Each fault of scripts/mutations.toml can be made, and its tests are there."""

from scripts.mutations import arguments, chosen_of, files_of, mutations, place_of
from tests.pages import ROOT


def test_the_text_of_each_fault_occurs_once_and_its_tests_are_there() -> None:
    files = files_of(ROOT)
    for mutation in mutations():
        assert mutation.new != mutation.old
        place_of(mutation, files)
        named = mutation.tests.partition(" -k ")[0].split()
        assert [len(arguments(ROOT, name)) for name in named] == [1] * len(named), named


def test_there_are_as_many_as_can_be_tried_before_a_release() -> None:
    assert 80 <= len(mutations()) <= 120


def test_some_are_chosen_by_folder_file_or_text() -> None:
    every = mutations()
    assert chosen_of([], ROOT) == every
    beam = chosen_of(["beam.py"], ROOT)
    assert beam and set(beam) < set(chosen_of(["decode"], ROOT)) < set(every)
    assert chosen_of([beam[0].old], ROOT) == beam[:1]
