"""The card of a model that leaves tells what its files know, and nothing else."""

import pytest

from nmt.exchange import ctranslate2_write
from nmt.exchange.interface import ENGINES
from nmt.exchange.model_card import write_card
from nmt.modeldir import Trained
from tests.encodings.agreement import theirs
from tests.exchange.test_ctranslate2_export import made

FEW = {"BEYOND": 15, "LONG": 1, "LONGEST": 64}
FOUND = {
    "compared_with": "ctranslate2 4.8.5",
    "lines": 7,
    "longest_source": 300,
    "longest_trained_source": 12,
    "log_probs": 2.5e-6,
    "ill_conditioned": 0,
    "greedy": {"compared": 7, "equal": 6, "ties": 1},
    "beam_4": {"compared": 5, "equal": 5, "ties": 0},
    "right_for": {"source_pieces": 2047, "target_pieces": None},
    "int8": {
        "computed_in": "int8_float32",
        "log_probs": 0.125,
        "greedy": {"compared": 7, "equal": 4, "ties": 0},
        "beam_4": {"compared": 0, "equal": 0, "ties": 0},
    },
}


def text_of(trained: Trained, *options: str) -> str:
    prepared, engine = ctranslate2_write.prepare(trained), ENGINES["ctranslate2"]
    return write_card(prepared, engine, FOUND, "its name", "my model", *options).decode()


def test_the_hub_reads_its_front_matter() -> None:
    text = text_of(made("encoding=relative"), "apache-2.0")
    read = theirs("huggingface_hub").ModelCard(text)
    assert read.data.language == ["de", "en"] and read.data.license == "apache-2.0"
    assert read.data.library_name == "ctranslate2" and read.data.pipeline_tag == "translation"
    assert read.data.tags == ["translation", "relative"]


def test_what_is_known_is_told_and_nothing_else() -> None:
    text = text_of(made("encoding=relative"))
    for line in (
        "- Compared with ctranslate2 4.8.5 on 7 lines of up to 300 pieces: in float32 "
        "log-probabilities differ by at most 2.5e-06.\n",
        "- Sources in training had up to 12 pieces.\n",
        "- In int8 a beam of 4 was not compared: none of its translations ends.\n",
        "- Its positions suffice for sources of up to 2,047 pieces.\n",
        'directory = Path("its name")',
    ):
        assert line in text, line
    text = text_of(made("encoding=relative", "data.source_language=und"))
    for word in ("license", "language:", "from `"):
        assert word not in text, word


def test_languages_that_pieces_name_are_those_of_the_search() -> None:
    """A child of NLLB may have another corpus; one that was imported has none."""
    chosen = ("decode.source_language=fra_Latn", "decode.target_language=eng_Latn")
    for data in ((), ("data.source_language=und", "data.target_language=und")):
        trained = made("encoding=relative", *chosen, *data, letters=["a", "eng_Latn", "fra_Latn"])
        text = text_of(trained)
        assert theirs("huggingface_hub").ModelCard(text).data.language == ["fr", "en"]
        assert "A Transformer that translates from `fr` to `en`, written for" in text


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        ([], ["fr", "nl"]),
        (["decode.source_language=fra"], ["fr"]),
        (["data=files", "data.root=.", "+data.corpora.untagged={}"], ["en", "fr", "nl"]),
    ],
)
def test_several_targets_are_told(words: list[str], targets: list[str]) -> None:
    pieces = ["a", ">>fra<<", ">>nl<<"]
    text = text_of(made("encoding=relative", *words, letters=pieces))
    data = theirs("huggingface_hub").ModelCard(text).data.to_dict()
    assert data["language"] == ["de", *targets]
    assert f"translates from `de` to {', '.join(f'`{code}`' for code in targets)}, written" in text
    if not words:
        assert "names the language of its translation: `>>fra<<`, `>>nl<<`." in text
        assert 'print(translate(">>fra<< a line"))' in text
