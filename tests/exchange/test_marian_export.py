"""Models go back to where Marian models come from, verified, or are refused with a reason."""

import json
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.errors import Exit, UserError
from nmt.exchange import exporting, importing, transformers_read, transformers_write
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram, learn_model
from nmt.text.vocab import EOS, Vocabulary
from nmt.toy import pairs
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.exchange.marian_models import KINDS, make
from tests.exchange.test_ctranslate2_export import made as of_bpe
from tests.fast import fast_first

FEW = {"BEYOND": 15, "ROOM": 2, "LONG": 1}
TEXT = pairs(60, 3, 6, "samples")
LINES = [source for source, _ in TEXT[:2]]
export = partial(exporting.export, to="marian")
POST = ("model.norm=post", "segmenter=unigram")
NO_TABLE = ("config.json", "generation_config.json", "tokenizer_config.json")


@cache
def sentencepiece(text: int, size: int = 60) -> bytes:
    return learn_model([pair[text] for pair in TEXT], size, 1.0)


def made(*words: str, shared: bool = False, form: Any = "nfc", tokenizer: Any = "none") -> Trained:
    """A tiny model of our own, every parameter moved; some of its outputs end."""
    settings = settings_of(*TINY, *POST, *words)
    learned = [sentencepiece(0, 80), sentencepiece(0, 80) if shared else sentencepiece(1)]
    segmenters = [Unigram(Tokenizer(form, tokenizer, "de"), model) for model in learned]
    sides = [Side(segmenter, Vocabulary(segmenter.pieces)) for segmenter in segmenters]
    model = moved(settings, 0, *(len(side.vocabulary) for side in sides))
    with torch.no_grad():
        model.output.bias[EOS] += 1.0
    return Trained(settings, model, sides[0], sides[1], {"longest_source": 12})


SYMBOLS = (">>fr<<", "<BT>", "{a.b}")


def with_symbols(trained: Trained) -> Trained:
    """The same with symbols instead of the first pieces."""

    def side(side: Side) -> Side:
        plain = side.to_json()
        plain["segmenter"]["tokenizer"]["symbols"] = [*SYMBOLS]
        plain["vocabulary"][: len(SYMBOLS)] = SYMBOLS
        return Side.from_json(plain)

    return trained._replace(source=side(trained.source), target=side(trained.target))


def test_what_was_imported_goes_back_as_it_came(tmp_path: Path) -> None:
    make(tmp_path / "original", **KINDS["separate relu"])
    trained = transformers_read.read(tmp_path / "original", trained_length=12).trained
    certificate = export(trained, tmp_path / "made", LINES)
    assert certificate["compared_with"] == f"transformers {version('transformers')}"
    assert 0 < certificate["log_probs"] < 1e-4 and certificate["longest_source"] > 12
    assert (
        certificate["greedy"]["equal"] + certificate["greedy"]["ties"]
        == certificate["lines"]
        >= len(LINES)
    )
    again = importing.read(tmp_path / "made").trained
    assert again.facts["longest_source"] == 12
    weights = trained.model.state_dict()
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    for file in (tmp_path / "original").iterdir():
        written = tmp_path / "made" / file.name
        if file.suffix == ".json":
            one, other = (json.loads(path.read_bytes()) for path in (file, written))
            keys = {*one, *other} if file.name not in NO_TABLE else {*one} & {*other}
            keys -= {"init_std"}  # of no use
            assert {key: one[key] for key in keys} == {key: other[key] for key in keys}
        else:
            assert written.read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("tie", fast_first(0, ["target", "all"]))
def test_models_of_our_own_go_too(tie: str, tmp_path: Path) -> None:
    words = [f"model.tie={tie}", "model.share_layers=true", "model.activation=gelu"]
    shared = tie == "all"
    words += ["segmenter.shared_vocabulary=true"] if shared else []
    trained = made("encoding=absolute", *words, shared=shared)
    certificate = export(trained, tmp_path / "made", [*LINES, "Der  Hund\u00a0schla\u0308ft ."])
    assert certificate["log_probs"] < 1e-4 and certificate["lines_normalised"] == 1
    again = transformers_read.read(tmp_path / "made").trained
    ids = torch.tensor([trained.source.ids(LINES[0])])
    assert again.source.ids(LINES[0]) == ids[0].tolist()
    with torch.no_grad():
        before, after = (each.model(ids, torch.tensor([[1, 5, 6]])) for each in (trained, again))
    assert torch.allclose(before[..., 1:], after[..., 1:], atol=1e-4)
    assert (tmp_path / "made" / "target_vocab.json").exists() is not shared


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        (lambda: made("encoding=absolute", "model.norm=pre"), "model.norm=pre: cannot be exported"),
        (lambda: made("encoding=relative"), "encoding.relative: cannot be .* adds sinusoids to"),
        (
            lambda: made("encoding=absolute", "encoding.absolute.where=encoder"),
            "of the decoder and has no other",
        ),
        (
            lambda: made("encoding=absolute", tokenizer="moses"),
            "segmenter.tokenizer=moses: cannot be exported to .*Marian",
        ),
        (
            lambda: with_symbols(made("encoding=absolute")),
            "data.user_symbols, tags, data.protected: cannot be exported .*--to ctranslate2",
        ),
        (
            lambda: of_bpe("encoding=absolute", "model.norm=post"),
            "segmenter.kind=bpe: .* train with segmenter=unigram",
        ),
    ],
)
def test_what_such_a_directory_cannot_hold_is_refused(
    trained: Callable[[], Trained], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as error:
        export(trained(), tmp_path / "made", LINES)
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


def test_how_it_decodes_goes_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = ["encoding=absolute", "decode.beam_size=3", "decode.alpha=0.5", "decode.unknown=forbid"]
    trained = made(*words)
    transformers_write.prepare_marian(trained).write(tmp_path / "made", "float32")
    generation = json.loads((tmp_path / "made" / "generation_config.json").read_bytes())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.5)
    pad, unknown = json.loads((tmp_path / "made" / "vocab.json").read_bytes())["<pad>"], 1
    assert generation["bad_words_ids"] == [[pad], [unknown]]
    assert "decode.length_penalty=wu: transformers divides by length ** 0.5" in caplog.text
