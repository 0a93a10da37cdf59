"""nmt-encodings: the list and the cards, all from the code."""

import pytest

from nmt.cli.compose import options_of
from nmt.cli.encodings import main


def test_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert [line.split()[0] for line in lines] == options_of("encoding")
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("option", options_of("encoding"))
def test_every_option_has_a_card(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    card = capsys.readouterr().out
    assert card.startswith(option) and "parameters" in card and "hooks" in card


def test_counts_at_the_chosen_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relative", "model=base"]) == 0
    assert "50,688 in a model of 512 x 6+6 layers" in capsys.readouterr().out


def test_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relativ"]) == 2
    said = capsys.readouterr().err
    assert said == "nmt: relativ: no such encoding; did you mean relative?\n"
