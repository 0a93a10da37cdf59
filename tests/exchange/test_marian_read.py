"""Marian models are read as transformers reads them, or refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from nmt import modeldir
from nmt.cli import import_model
from nmt.decode.translator import Translator
from nmt.encodings.sinusoids import sinusoids
from nmt.errors import Exit, UserError
from nmt.exchange import importing, proof, transformers_read, transformers_write
from nmt.exchange.transformers_engine import TransformersScorer
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import MarianSegmenter
from nmt.text.vocab import BOS, EOS
from nmt.toy import pairs
from tests.encodings.agreement import theirs
from tests.exchange.marian_models import KINDS, make

FEW = {"MADE_UP": 4, "BEYOND": 20, "ROOM": 6, "LONG": 1, "USUAL_LENGTH": 12}
LINES = [source for source, _ in pairs(8, 4, 14, "samples")]
TRAINED = "shared swish"  # the outputs of the others hardly ever end


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("marian")
    for name, options in KINDS.items():
        if "relu" not in name:
            make(directory / name, **options, updates=60 if name == TRAINED else 0)
    return directory


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """A directory to be spoiled."""
    return Path(shutil.copytree(models / TRAINED, tmp_path / "copied"))


@pytest.mark.slow
def test_pieces_logits_and_translations_are_those_of_transformers(models: Path) -> None:
    imported = transformers_read.read(models / TRAINED)
    certificate = importing.certify(imported, LINES)
    assert certificate["compared_with"].startswith("transformers 5")
    assert certificate["lines"] == certificate["greedy"]["equal"] > len(LINES)
    assert 0 < certificate["log_probs"] < proof.LOG_PROBS and certificate["lines_left_out"] == 0
    assert certificate["beam_4"]["equal"] > 4
    assert imported.trained.facts == {"longest_source": None, "positions": 300}
    model: Any = imported.trained.model
    with torch.no_grad():
        model.decoder.layers[0].around_cross.norm.bias.add_(0.01)
    with pytest.raises(UserError, match="log-probabilities in transformers differ by"):
        importing.certify(imported, LINES[:2])


@pytest.mark.slow
def test_beam_search_is_that_of_transformers_with_its_length_penalty(copied: Path) -> None:
    change_json(copied / "generation_config.json", num_beams=4, length_penalty=1.0)
    imported = transformers_read.read(copied)
    decode = imported.trained.settings.decode
    assert (decode.beam_size, decode.alpha, decode.length_penalty) == (4, 1.0, "power")
    reference = imported.scorer()
    assert isinstance(reference, TransformersScorer)
    translations = Translator.of(imported.trained, decode).translate(LINES)
    model, compared = theirs("transformers").MarianMTModel.from_pretrained(copied), 0
    for line, (best, *_) in zip(LINES, translations, strict=True):
        generated = model.generate(
            **reference.tokenizer(line, return_tensors="pt"), max_new_tokens=80,
            forced_eos_token_id=None, bad_words_ids=[[reference.target.numbers[BOS]]],
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        ids = reference.target.to_nmt(generated.sequences[0].tolist())[1:]
        if best.finished and ids[-1] == EOS and best.ids == tuple(ids[:-1]):
            assert best.score == pytest.approx(float(generated.sequences_scores[0]), abs=1e-4)
            compared += 1
    assert compared >= 4


@pytest.mark.slow
def test_a_model_in_float16_is_one_in_float32_whose_weights_are_rounded(copied: Path) -> None:
    """Its sinusoids are not rounded, also where a table of them is stored."""
    where = copied / "model.safetensors"
    tensors = safetensors.torch.load_file(where)
    for side in ("encoder", "decoder"):
        table = sinusoids(torch.arange(300), 16, "halves", "paper")
        tensors[f"model.{side}.embed_positions.weight"] = table
    safetensors.torch.save_file({n: t.half() for n, t in tensors.items()}, where)
    change_json(copied / "config.json", dtype="float16")
    assert importing.certify(importing.read(copied), LINES[:1])["log_probs"] < proof.LOG_PROBS


def change_json(where: Path, **values: Any) -> None:
    """Give keys of a file other values."""
    where.write_text(json.dumps({**json.loads(where.read_bytes()), **values}))


def test_what_is_left_out_of_the_search_is_said(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = copied / "generation_config.json"
    given = json.loads(where.read_bytes()) | {"repetition_penalty": 1.0, "do_sample": False}
    given["max_length"] = 300  # positions
    where.write_text(json.dumps(given))
    transformers_read.read(copied)
    assert not caplog.text
    pad = given["pad_token_id"]
    more = {"no_repeat_ngram_size": 2, "max_length": 200, "bad_words_ids": [[pad], [5]]}
    where.write_text(json.dumps(given | more))
    imported = importing.read(copied)
    what = "not taken over: no_repeat_ngram_size=2, max_length=200, bad_words_ids=[[5]]; the"
    assert what in caplog.text
    importing.certify(imported, LINES[:1])  # without them, as nmt searches
    where.write_text(json.dumps(given | {"bad_words_ids": [[pad], [1]]}))
    caplog.clear()
    assert importing.read(copied).trained.settings.decode.unknown == "forbid"
    assert not caplog.text


def test_what_looks_like_a_sign_of_the_model_is_text(models: Path) -> None:
    imported = importing.read(models / "multilingual gelu")
    line = ">>fr<< Ein </s> <unk><pad> Hund"
    assert imported.scorer().source_ids(line) == imported.trained.source.ids(line)


def test_the_command_makes_a_model_directory(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, made = tmp_path / "samples.txt", tmp_path / "made"
    text.write_text("".join(f"{line}\n" for line in LINES[:3]), encoding="utf-8")
    arguments = [str(models / TRAINED), str(made)]
    more = ["--samples", str(text), "--trained-length", "30"]
    assert import_model.main([*arguments, *more]) == Exit.OK
    assert "comparing with transformers on 4 lines of up to " in capsys.readouterr().err
    trained = modeldir.load(made)
    assert trained.facts["longest_source"] == 30
    assert json.loads((made / "certificate.json").read_bytes())["lines"] == 4
    assert import_model.main(arguments) == Exit.CANT_CREATE
    assert import_model.main([str(tmp_path / "nothing"), str(tmp_path / "x")]) == Exit.NO_INPUT


def test_pytorch_model_bin_is_read_by_a_loader_that_runs_no_code(
    copied: Path, models: Path, tmp_path: Path
) -> None:
    tensors = safetensors.torch.load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    torch.save(tensors, copied / "pytorch_model.bin")
    same = [
        transformers_read.read(path).trained.model.state_dict()
        for path in (copied, models / TRAINED)
    ]
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[1])
    torch.save({"model.shared.weight": Touching(tmp_path / "ran")}, copied / "pytorch_model.bin")
    with pytest.raises(UserError, match="transformers cannot read it"):
        transformers_read.read(copied)
    assert not (tmp_path / "ran").exists()


class Touching:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


# keys of public configs, less their sizes: those of 2020 have the first two, which transformers
# ignores, and fine-tuned models the last three, which ask for another search
PUBLIC: dict[str, dict[str, Any]] = {
    "opus-mt-zh-en": {
        "extra_pos_embeddings": 65001,
        "normalize_before": False,
        "add_bias_logits": False,
        "num_beams": 6,
        "output_past": True,
        "prefix": ">>cmn<< ",
        "classif_dropout": 0.0,
    },
    "fine-tuned": {
        "max_position_embeddings": 1024,
        "forced_bos_token_id": 7,
        "suppress_tokens": [5],
        "dtype": "bfloat16",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_models_with_the_keys_of_public_configs_are_certified(name: str, copied: Path) -> None:
    change_json(copied / "config.json", **PUBLIC[name])
    if "num_beams" in PUBLIC[name]:  # so it was before there was a file of its own for them
        (copied / "generation_config.json").unlink()
    imported = importing.read(copied)
    assert imported.trained.settings.decode.beam_size == PUBLIC[name].get("num_beams", 1)
    assert importing.certify(imported, LINES[:1])["log_probs"] < proof.LOG_PROBS


def resize(directory: Path, tokens: list[str], multiple: int | None = None) -> None:
    """Add tokens, as people do who fine-tune, and round the rows of the embedding up."""
    transformers = theirs("transformers")
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    model = transformers.MarianMTModel.from_pretrained(directory)
    tokenizer.add_tokens(tokens)
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=multiple)
    model.final_logits_bias = torch.zeros(1, model.config.vocab_size)
    tokenizer.save_pretrained(directory)
    model.save_pretrained(directory)


@pytest.mark.slow
def test_rows_that_no_piece_has_are_read_and_an_added_token_is_named(
    copied: Path, tmp_path: Path
) -> None:
    resize(copied, [], multiple=64)
    imported = importing.read(copied)
    assert importing.certify(imported, LINES[:2])["log_probs"] < proof.LOG_PROBS
    assert len(imported.trained.target.vocabulary) > 128
    transformers_write.prepare_marian(imported.trained).write(tmp_path / "back", "float32")
    resize(copied, ["__nnh__"])
    refused(copied, "adds __nnh__")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "bart", "model_type=bart"),
        ("activation_function", "tanh", "activation_function=tanh"),
        ("quantization_config", {"load_in_8bit": True}, "8-bit quantization"),
        ("decoder_ffn_dim", 8, r"mismatched .*fc1"),
        ("tie_word_embeddings", False, "missing .*lm_head"),
        ("eos_token_id", [0, 5], r"eos_token_id=\[0, 5\]"),
        ("decoder_start_token_id", 5, "decoder_start_token_id=5"),
    ],
)
def test_a_config_that_means_another_model_is_refused(
    key: str, value: Any, message: str, copied: Path
) -> None:
    name = "generation_config.json" if key.endswith("token_id") else "config.json"
    values = json.loads((copied / name).read_bytes())
    values.pop(key, None)
    (copied / name).write_text(json.dumps(values if value is ... else {**values, key: value}))
    refused(copied, message)


@pytest.mark.parametrize(
    ("key", "value"), [("scale_embedding", False), ("decoder_attention_heads", 1)]
)
def test_a_config_that_is_not_read_alike_is_refused_by_the_proof(
    key: str, value: Any, copied: Path
) -> None:
    change_json(copied / "config.json", **{key: value})
    with pytest.raises(UserError, match="log-probabilities in transformers differ by"):
        importing.certify(importing.read(copied), LINES[:1])


def test_a_decoder_may_start_with_the_id_that_ends_a_line(copied: Path) -> None:
    change_json(copied / "generation_config.json", decoder_start_token_id=0)
    assert importing.certify(importing.read(copied), LINES[:2])["log_probs"] < proof.LOG_PROBS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(extra=torch.ones(2)), "unexpected .*extra"),
        (lambda t: t.pop("model.encoder.layers.0.fc1.bias"), r"missing .*layers\.0\.fc1\.bias"),
        (lambda t: t["model.shared.weight"].fill_(torch.nan), "numbers that are not finite"),
        (
            lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1}),
            "differ, and should be one matrix",
        ),
        (
            lambda t: t.update({"model.encoder.embed_positions.weight": torch.ones(300, 16)}),
            "holds positions that are no sinusoids",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    change: Callable[[Any], None], message: str, copied: Path
) -> None:
    where = copied / "model.safetensors"
    tensors = safetensors.torch.load_file(where)
    change(tensors)
    safetensors.torch.save_file(tensors, where)
    refused(copied, message)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("model.safetensors", b"no tensors"),
        ("model.safetensors", None),
        ("generation_config.json", b"{"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 3}'),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "a\\nb": 2, "<pad>": 3}'),
        ("source.spm", b"no model"),
    ],
)
def test_files_that_are_damaged_or_missing_are_refused(
    name: str, data: bytes | None, copied: Path
) -> None:
    (copied / name).unlink(missing_ok=True)
    if data is not None:
        (copied / name).write_bytes(data)
    refused(copied, str(copied))


def refused(directory: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        importing.certify(importing.read(directory), LINES[:1])
    assert error.value.code == Exit.DATA and "\n" not in str(error.value)
    assert str(directory) in str(error.value)


def test_the_code_of_a_language_is_a_piece(models: Path) -> None:
    model = (models / "multilingual gelu" / "source.spm").read_bytes()
    segmenter = MarianSegmenter(Tokenizer("none", "none", "de"), model)
    pieces = segmenter.encode(">>fr<< das Buch")
    assert pieces[0] == ">>fr<<" and segmenter.decode(pieces[1:]) == "das Buch"
    assert segmenter.encode("das >>fr<< Buch")[0] != ">>fr<<"
    of_the_source = "\u2581lacht"  # in a vocabulary of both sides
    assert segmenter.decode([*pieces[1:], of_the_source]) == "das Buch lacht"
