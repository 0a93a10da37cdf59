"""M2M100 and NLLB models are read and written as transformers has them, or refused by name."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from nmt import build, modeldir
from nmt.cli import export_model, import_model, translate
from nmt.cli.train import main as train
from nmt.config.settings import with_decode
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange import exporting, importing, proof, transformers_read
from nmt.exchange.ctranslate2_engine import CTranslate2Engine, load
from nmt.exchange.interface import M2M100
from nmt.system.resources import DeviceName
from nmt.toy import pairs
from tests.encodings.agreement import theirs
from tests.exchange.m2m100_models import KINDS, make, write
from tests.exchange.test_card_code import translate_by_card
from tests.exchange.test_marian_export import made

pytestmark = pytest.mark.slow

FEW = {"MADE_UP": 4, "BEYOND": 20, "ROOM": 6, "LONG": 1, "USUAL_LENGTH": 12}
LINES = [source for source, _ in pairs(8, 4, 14, "samples")]
FILES = {"nllb": "tokenizer.json", "m2m100": "vocab.json"}  # that number the pieces


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("m2m100")
    for kind in KINDS:
        make(directory / kind, kind, updates=90)
    return directory


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """A directory to be spoiled."""
    return Path(shutil.copytree(models / "nllb", tmp_path / "copied"))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_logits_and_translations_are_those_of_transformers(kind: str, models: Path) -> None:
    imported = importing.read(models / kind)
    certificate = importing.certify(imported, LINES)
    assert certificate["compared_with"].startswith("transformers 5")
    assert 0 < certificate["log_probs"] < proof.LOG_PROBS and certificate["lines_left_out"] == 0
    for search in ("greedy", "beam_4"):
        assert certificate[search]["equal"] == certificate[search]["compared"]
    assert certificate["lines"] == certificate["greedy"]["compared"] > len(LINES)
    assert certificate["beam_4"]["compared"] > 4


def test_another_target_gives_the_translations_of_transformers(models: Path) -> None:
    trained = transformers_read.read(models / "m2m100").trained
    before = trained.model.target_language
    decode = with_decode(trained.settings, {"target_language": "fr", "beam_size": 1}).decode
    texts = Translator.of(trained, decode).texts(LINES)
    transformers = theirs("transformers")
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(models / "m2m100")
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(models / "m2m100")
    number = tokenizer.convert_tokens_to_ids("__fr__")
    for line, text in zip(LINES, texts, strict=True):
        inputs = tokenizer(line, return_tensors="pt")
        limit = 2 * (inputs["input_ids"].shape[1] - 2) + 20
        (ids,) = model.generate(
            **inputs, forced_bos_token_id=number, num_beams=1, max_new_tokens=limit + 2
        )
        assert " ".join(tokenizer.decode(ids[2:], skip_special_tokens=True).split()) == text
    assert len(set(texts)) > 2
    assert trained.model.target_language == before  # the model itself is left as it was
    assert texts != Translator.of(trained, trained.settings.decode).texts(LINES)


def test_an_unknown_language_is_refused_with_what_is_near(models: Path) -> None:
    for kind, source, near in (("nllb", "deu_Lat", "deu_Latn"), ("m2m100", "zh_CN", ".*zh")):
        message = rf"decode.source_language={source}: .* such as {near}"
        with pytest.raises(UserError, match=message):
            transformers_read.read(models / kind, languages=(source, KINDS[kind][1]))


def test_the_command_translates_as_it_is_told(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, made = tmp_path / "in.txt", tmp_path / "made"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = [str(models / "nllb"), str(made), "--samples", str(text)]
    assert import_model.main([*arguments, "--languages", "deu_Latn,fra_Latn"]) == Exit.OK
    assert modeldir.load(made).settings.decode.target_language == "fra_Latn"
    capsys.readouterr()
    outputs = []
    for word in ("eng_Latn", "fra_Latn", None):
        words = [] if word is None else [f"decode.target_language={word}"]
        assert translate.main([str(made), str(text), *words]) == Exit.OK
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1] == outputs[2]
    assert translate.main([str(made), str(text), "decode.target_language=fr"]) == Exit.USAGE


def test_outputs_are_those_of_ctranslate2_also_at_a_limit(models: Path, tmp_path: Path) -> None:
    """A language is no piece of the output that is limited."""
    trained = transformers_read.read(models / "nllb").trained
    exporting.export(trained, tmp_path / "exported", LINES[:3])
    short = {"max_length_ratio": 0, "max_length_offset": 3, "beam_size": 1}
    for changes in ({"length_penalty": "power"}, {"length_penalty": "wu"}, short):
        decode = with_decode(trained.settings, changes).decode
        engine = CTranslate2Engine(load(tmp_path / "exported"), decode, DeviceName("cpu"), 1)
        by_nmt, by_ctranslate2 = (
            [best[0] for best in translator.translate(LINES)]
            for translator in (Translator.of(trained, decode), Translator(trained, decode, engine))
        )
        assert [t.ids for t in by_nmt] == [t.ids for t in by_ctranslate2]
        if changes is not short:
            assert [t.score for t in by_nmt] == pytest.approx(
                [t.score for t in by_ctranslate2], abs=1e-3
            )
    assert {len(t.ids) for t in by_nmt} == {3}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_back_to_the_byte(
    kind: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = transformers_read.read(models / kind).trained
    modeldir.save(original, tmp_path / "model")
    back = tmp_path / "back"
    assert export_model.main([str(tmp_path / "model"), str(back), "--to", "m2m100"]) == Exit.OK
    for name in ("model.safetensors", "sentencepiece.bpe.model"):
        assert (back / name).read_bytes() == (models / kind / name).read_bytes(), name
    one, other = (json.loads((p / FILES[kind]).read_bytes()) for p in (models / kind, back))
    assert one == other or kind == "nllb"  # whose tokenizer.json has another form
    expected = Translator.of(original, original.settings.decode).texts(LINES)
    pairs = zip(translate_by_card(back, LINES, monkeypatch), expected, strict=True)
    assert sum(a == b for a, b in pairs) >= len(LINES) - 1  # transformers writes no language
    again = transformers_read.read(back).trained
    assert again.source.to_json() == original.source.to_json()


def test_what_training_would_change_is_refused_before_it(models: Path) -> None:
    trained = importing.read(models / "nllb", 12, KINDS["nllb"]).trained
    trainer = replace(trained.settings.trainer, target="m2m100")
    trained = trained._replace(settings=replace(trained.settings, trainer=trainer))
    for frozen in (["encoder"], ["output.bias"]):
        build.freeze(trained.model, frozen)
        with pytest.raises(UserError, match=r"trainer\.target=m2m100: .*trainer\.freeze"):
            copied = trained._replace(model=deepcopy(trained.model))
            exporting.refuse_target(trained.settings, copied)
    build.freeze(trained.model, ["embeddings"])
    exporting.refuse_target(trained.settings)
    exporting.refuse_target(trained.settings, trained)


def test_models_of_another_form_are_refused(tmp_path: Path) -> None:
    usual = M2M100.sinusoids.overrides()
    for words, message in (
        (["encoding=relative", "model.tie=all"], "encoding.relative: cannot be .*start=2"),
        ([*usual, "model.tie=none"], "model.tie=none: cannot be exported to .*M2M100"),
        ([*usual, "model.tie=all"], "decode.source_language and target_language: cannot be expo"),
    ):
        trained = made("model.norm=pre", *words, shared=True)
        with pytest.raises(UserError, match=message):
            exporting.export(trained, tmp_path / "made", LINES, "m2m100")


def test_engines_without_languages_refuse_them(models: Path, tmp_path: Path) -> None:
    trained = transformers_read.read(models / "nllb").trained
    with pytest.raises(UserError, match=r"=deu_Latn: cannot be exported .* before a line; export"):
        exporting.export(trained, tmp_path / "made", LINES, "marian")


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    """Changes keys of a JSON file; ...: takes one away."""

    def change(directory: Path) -> None:
        content = {**json.loads((directory / name).read_bytes()), **values}
        write(directory / name, {key: value for key, value in content.items() if value is not ...})

    return change


def added(directory: Path, piece: str, special: bool) -> None:
    """Adds a piece to the tokenizer, as people do who fine-tune: a row that was made up has it."""
    tokenizer = theirs("transformers").NllbTokenizer.from_pretrained(directory)
    tokenizer.add_tokens([piece], special_tokens=special)
    tokenizer.save_pretrained(directory)


SHAPES: dict[str, Callable[[Path], Any]] = {
    "a fine-tuned one": changed("generation_config.json", forced_bos_token_id=122),
    "a new language": lambda directory: added(directory, "nnh_Latn", special=True),
}


@pytest.mark.parametrize("name", SHAPES)
def test_nllb_as_users_have_it_is_certified(
    name: str, copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SHAPES[name](copied)
    imported = importing.read(copied)
    assert "not taken over" not in caplog.text
    assert "the model translates from deu_Latn to eng_Latn, as tokenizer_config" in caplog.text
    assert importing.certify(imported, LINES[:1])["log_probs"] < proof.LOG_PROBS
    if name == "a new language":
        exporting.export(imported.trained, tmp_path / "back", LINES[:1], "m2m100")


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {  # others: test_marian_read
    "no pieces": (
        lambda directory: (directory / "sentencepiece.bpe.model").unlink(),
        "the file is missing; copy it from",
    ),
    "tokenizer": (
        changed("tokenizer_config.json", tokenizer_class="SMALL100Tokenizer"),
        "tokenizer_class=SMALL100Tokenizer",
    ),
    "no language": (
        changed("tokenizer_config.json", src_lang=...),
        "add --languages SOURCE,TARGET",
    ),
    "code": (
        changed("tokenizer_config.json", tgt_lang="${oc.env:HOME}"),
        r"decode.target_language=\$\{oc.env:HOME\}: the model has no piece",
    ),
    "an adapter": (
        lambda directory: write(directory / "adapter_config.json", {"peft_type": "LORA"}),
        "weights of an adapter",
    ),
    "a token for all text": (
        lambda directory: added(directory, "__nnh__", special=False),
        "adds __nnh__",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_directory_is_refused_by_name(name: str, copied: Path) -> None:
    spoil, message = WRONG[name]
    spoil(copied)
    with pytest.raises(UserError, match=message) as error:
        importing.read(copied)
    assert error.value.code in (Exit.DATA, Exit.USAGE)


def test_what_transformers_4_stored_besides_is_read(copied: Path) -> None:
    """Several names of the matrix, the sinusoids, and a .bin instead of safetensors."""
    expected = transformers_read.read(copied).trained.model.state_dict()
    tensors = safetensors.torch.load((copied / "model.safetensors").read_bytes())
    shared = tensors["model.shared.weight"]
    model = theirs("transformers").M2M100ForConditionalGeneration.from_pretrained(copied)
    for stack in ("encoder", "decoder"):
        tensors[f"model.{stack}.embed_tokens.weight"] = shared
        table = getattr(model.model, stack).embed_positions.weights
        tensors[f"model.{stack}.embed_positions.weights"] = table
    (copied / "model.safetensors").unlink()
    changed("tokenizer_config.json", tokenizer_class="NllbTokenizerFast")(copied)
    torch.save(tensors | {"lm_head.weight": shared}, copied / "pytorch_model.bin")
    state = transformers_read.read(copied).trained.model.state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_a_lengthened_one_goes_on_to_ctranslate2(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child = tmp_path / "parent", tmp_path / "child"
    command = [str(models / "nllb"), str(parent), "--trained-length", "30"]
    assert import_model.main(command) == 0
    assert train([
        *("experiment=lengthen", f"parent={parent}", "name=child", f"runs={tmp_path}", "data=toy"),
        *(f"data.cache={tmp_path / 'cache'}", "trainer.max_steps=20", "data.train_pairs=300"),
        *("data.dev_pairs=20", "data.test_pairs=20", "trainer.batch_tokens=800"),
        *("trainer.device=cpu", "trainer.tensorboard=false", "encoding=relative", "tau=8"),
        *("decode=greedy", "decode.unknown=allow"),  # as CTranslate2 searches
    ]) == 0  # fmt: skip
    trained = modeldir.load(child)
    decode = trained.settings.decode
    assert (decode.source_language, decode.target_language) == ("deu_Latn", "eng_Latn")
    assert trained.model.target_language is not None and "relative" in trained.settings.encoding
    exporting.export(trained, tmp_path / "ct2", LINES)
    expected = Translator.of(trained, decode).texts(LINES)
    assert translate_by_card(tmp_path / "ct2", LINES, monkeypatch) == expected
    with pytest.raises(UserError, match=r"encoding.relative: cannot be exported to .*M2M100"):
        exporting.export(trained, tmp_path / "x", LINES, "m2m100")
