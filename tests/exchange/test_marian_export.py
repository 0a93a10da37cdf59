"""Models go back to where Marian models come from, verified, or are refused with a reason."""

import json
import logging
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import modeldir
from nmt.cli import export_model, import_model
from nmt.cli.train import main as train
from nmt.errors import Exit, UserError
from nmt.exchange import exporting, marian_weights, transformers_read
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram, learn_model
from nmt.text.vocab import EOS, Vocabulary
from nmt.toy import pairs
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.exchange.marian_models import KINDS, make

FEW = {"BEYOND": 15, "ROOM": 2, "LONG": 1}
SLOW_IN_FULL = True
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
    """The same with symbols, in the place of the first pieces."""

    def side(side: Side) -> Side:
        plain = side.to_json()
        plain["segmenter"]["tokenizer"]["symbols"] = [*SYMBOLS]
        plain["vocabulary"][: len(SYMBOLS)] = SYMBOLS
        return Side.from_json(plain)

    return trained._replace(source=side(trained.source), target=side(trained.target))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if "relu" in kind else pytest.mark.slow) for kind in KINDS]
)
def test_what_was_imported_goes_back_as_it_came(kind: str, tmp_path: Path) -> None:
    make(tmp_path / "original", **KINDS[kind])
    trained = transformers_read.marian(tmp_path / "original", trained_length=12).trained
    found = export(trained, tmp_path / "made", LINES)
    assert found["compared_with"] == f"transformers {version('transformers')}"
    assert 0 < found["log_probs"] < 1e-4 and found["longest_source"] > 12
    assert found["greedy"]["equal"] + found["greedy"]["ties"] == found["lines"] >= len(LINES)
    again = transformers_read.marian(tmp_path / "made").trained
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


def test_a_language_that_is_chosen_must_stand_in_the_lines(tmp_path: Path) -> None:
    make(tmp_path / "original", **KINDS["multilingual gelu"])
    model, place = tmp_path / "model", tmp_path / "made"
    modeldir.save(transformers_read.marian(tmp_path / "original").trained, model)
    (tmp_path / "lines").write_text(f">>fr<< {LINES[0]}\n", encoding="utf-8")
    options = ["--to", "marian", "--samples", str(tmp_path / "lines"), "decode.source_language="]
    with pytest.raises(UserError, match=r"add decode.source_language=null if the lines thems"):
        export_model.command([str(model), str(place), *options[:-1], f"{options[-1]}fr"])
    export_model.command([str(model), str(place), *options[:-1], f"{options[-1]}null"])
    assert place.is_dir()


@pytest.mark.parametrize(
    ("words", "shared"),
    [
        (["model.tie=all", "segmenter.shared_vocabulary=true"], True),
        (["model.tie=target", "model.activation=gelu", "encoding.absolute.layout=halves"], False),
        (["model.tie=none", "model.share_layers=true"], False),
    ],
)
@pytest.mark.slow
def test_models_of_our_own_go_too(words: list[str], shared: bool, tmp_path: Path) -> None:
    trained = made("encoding=absolute", *words, shared=shared)
    found = export(trained, tmp_path / "made", [*LINES, "Der  Hund\u00a0schla\u0308ft ."])
    assert found["log_probs"] < 1e-4 and found["lines_normalised"] == 1
    again = transformers_read.marian(tmp_path / "made").trained
    ids = torch.tensor([trained.source.ids(LINES[0])])
    assert again.source.ids(LINES[0]) == ids[0].tolist()
    with torch.no_grad():
        ours, theirs = (each.model(ids, torch.tensor([[1, 5, 6]])) for each in (trained, again))
    assert torch.allclose(ours[..., 1:], theirs[..., 1:], atol=1e-4)
    assert (tmp_path / "made" / "target_vocab.json").exists() is not shared


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        (lambda: made("encoding=absolute", "model.norm=pre"), "model.norm=pre: cannot be exported"),
        (lambda: made("encoding=relative"), "encoding.relative: cannot be .* adds sinusoids to"),
        (lambda: made("encoding=none"), "encoding.none: cannot be .* of the encoder"),
        (lambda: made("encoding=learned"), "encoding.learned: cannot be .* adds sinusoids"),
        (lambda: made("encoding=[absolute,alibi]"), r"encoding.absolute\+alibi: cannot be"),
        (
            lambda: made("encoding=absolute", "encoding.absolute.where=encoder"),
            "of the decoder and knows no other",
        ),
        (
            lambda: made("encoding=absolute", "encoding.absolute.denominator=tensor2tensor"),
            "encoding.absolute: cannot be exported to Marian",
        ),
        (lambda: made("encoding=lstm"), "encoding.lstm: cannot be .* adds sinusoids"),
        (
            lambda: made("encoding=absolute", "model.drop_residual=[1]"),
            r"model.drop_residual=\[1\]",
        ),
        (lambda: made("encoding=absolute", form="nfkc"), "data.normalize=nfkc: cannot be exported"),
        (
            lambda: made("encoding=absolute", tokenizer="moses"),
            "segmenter.tokenizer=moses: cannot be exported to Marian",
        ),
        (
            lambda: with_symbols(made("encoding=absolute")),
            "data.user_symbols, tags, data.protected: cannot be exported to Mar.*--to ctranslate2",
        ),
    ],
)
def test_what_such_a_directory_cannot_hold_is_refused(
    trained: Callable[[], Trained], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as error:
        export(trained(), tmp_path / "made", LINES)
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


def test_pieces_of_byte_pair_encoding_are_refused(tmp_path: Path) -> None:
    from tests.exchange.test_ctranslate2_export import made as of_bpe

    with pytest.raises(UserError, match=r"segmenter.kind=bpe: .* train with segmenter=unigram"):
        export(of_bpe("encoding=absolute", "model.norm=post"), tmp_path / "made", LINES)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("final_logits_bias", lambda t: t[5:7].add_(0.1), "in transformers differ by"),
        ("encoder.layers.1.fc2.weight", lambda t: t.mul_(1.2), "in transformers differ by"),
        ("decoder.layers.0.encoder_attn.k_proj.weight", lambda t: t.mul_(2), "transformers differ"),
    ],
)
def test_what_computes_something_else_is_not_written(
    name: str, spoil: Callable[[Any], Any], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tensors = marian_weights.to_theirs

    def spoiled(*written: Any) -> Any:
        made_of = tensors(*written)
        spoil(made_of[name])
        return made_of

    monkeypatch.setattr(marian_weights, "to_theirs", spoiled)
    with pytest.raises(UserError, match=message) as error:
        export(made("encoding=absolute"), tmp_path / "made", LINES[:1])
    assert error.value.code == Exit.DATA and not list(tmp_path.iterdir())


def test_how_it_decodes_goes_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = ["encoding=absolute", "decode.beam_size=3", "decode.alpha=0.5", "decode.unknown=forbid"]
    trained = made(*words, "decode.length_penalty=power")
    export(trained, tmp_path / "made", LINES[:1])
    generation = json.loads((tmp_path / "made" / "generation_config.json").read_bytes())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.5)
    pad, unknown = json.loads((tmp_path / "made" / "vocab.json").read_bytes())["<pad>"], 1
    assert generation["bad_words_ids"] == [[pad], [unknown]]
    assert "decode.length_penalty" not in caplog.text
    with caplog.at_level(logging.WARNING):
        export(made(*words), tmp_path / "other", LINES[:1])
    assert "decode.length_penalty=wu: transformers divides by length ** 0.5" in caplog.text


@pytest.mark.slow
def test_a_child_that_was_trained_further_goes_back(tmp_path: Path) -> None:
    make(tmp_path / "original", **KINDS["shared swish"], updates=90)
    parent, child = tmp_path / "parent", tmp_path / "child"
    assert (
        import_model.main([str(tmp_path / "original"), str(parent), "--trained-length", "30"]) == 0
    )
    assert train([
        *("experiment=lengthen", f"parent={parent}", "name=child", f"runs={tmp_path}", "data=toy"),
        *(f"data.cache={tmp_path / 'cache'}", "trainer.max_steps=40", "data.train_pairs=300"),
        *("data.dev_pairs=20", "data.test_pairs=20", "trainer.batch_tokens=800"),
        *("trainer.device=cpu", "trainer.tensorboard=false"),
    ]) == 0  # fmt: skip
    assert export_model.main([str(child), str(tmp_path / "back"), "--to", "marian"]) == 0
    found = json.loads((tmp_path / "back" / "certificate.json").read_bytes())
    assert found["log_probs"] < 1e-4 and found["longest_source"] > 200
    assert found["greedy"]["equal"] + found["greedy"]["ties"] == found["lines"]
    one, other = (modeldir.load(path).model.output.bias for path in (parent, child))
    assert not torch.equal(one, other)
