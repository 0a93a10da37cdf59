"""CTranslate2 directories come in verified, or are refused by name."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import build, modeldir
from nmt.cli import import_model
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_read, ctranslate2_write, importing
from nmt.exchange.exporting import export
from nmt.modeldir import SETTINGS_BESIDE
from nmt.text.languages import languages_of
from nmt.text.vocab import BOS, EOS
from tests.encodings.agreement import theirs
from tests.exchange import marian_models
from tests.exchange.opennmt_models import LINES, TAU, make
from tests.exchange.test_ctranslate2_export import LETTERS, made
from tests.exchange.test_ctranslate2_export import LINES as LETTERED

FEW = {"MADE_UP": 4, "BEYOND": 20, "ROOM": 4, "LONG": 1, "LONGEST": 64}


def test_a_model_of_opennmt_py_computes_the_same(tmp_path: Path) -> None:
    directory = make(tmp_path / "original", relative=True)
    (tmp_path / "lines").write_text("\n".join(LINES[:4]) + "\n")
    words = [str(directory), str(tmp_path / "imported"), "--samples", str(tmp_path / "lines")]
    import_model.command([*words, "--trained-length", "20"])
    certificate = json.loads((tmp_path / "imported/certificate.json").read_bytes())
    assert certificate["log_probs"] < 5e-5 and certificate["pieces"] > 60
    assert certificate["beam_4"]["compared"] > 1
    assert (
        certificate["greedy"]["equal"] + certificate["greedy"]["ties"] == certificate["lines"] > 4
    )
    trained = modeldir.load(tmp_path / "imported")
    assert not trained.settings.model.source_eos and trained.facts["longest_source"] == 20
    (options,) = trained.settings.encoding.values()
    assert (options["tau"], options["tied"]) == (TAU, True)


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=absolute", "encoding.absolute.at.index.start=1", "model.norm=post",
         "model.activation=gelu", "model.tie=all"],
        ["encoding=relative", "tau=3", "model.tie=target"],
    ],
)  # fmt: skip
def test_what_was_exported_comes_back(words: list[str], tmp_path: Path) -> None:
    trained = made(*words)
    export(trained, tmp_path / "made", LETTERED)
    again = ctranslate2_read.read(tmp_path / "made", 12).trained
    assert again.settings.model == trained.settings.model
    assert list(again.settings.encoding) == list(trained.settings.encoding)
    before, after = trained.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    for name in before:  # a decoder has no use for the vectors of keys ahead
        seen = (..., slice(4), slice(None)) if "decoder_encodings" in name else ...
        assert torch.equal(before[name][seen], after[name][seen]), name
    assert again.source.to_json() == trained.source.to_json()


def test_an_export_keeps_its_languages_search_and_trained_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    languages = ["decode.source_language=fra_Latn", "decode.target_language=eng_Latn"]
    languages.append("decode.max_length_offset=3")
    pieces = [*LETTERS, "eng_Latn", "fra_Latn"]
    trained = made("encoding=relative", "decode.unknown=forbid", *languages, letters=pieces)
    sides = trained.source, trained.target
    build.set_languages(
        trained.model, trained.settings.decode, *(side.vocabulary for side in sides)
    )
    with torch.no_grad():
        trained.model.output.bias[EOS] -= 2.5  # an output has pieces behind its language
    export(trained, tmp_path / "made", LETTERED)
    (tmp_path / "lines").write_text("\n".join(LETTERED) + "\n")
    words = [str(tmp_path / "made"), str(tmp_path / "again"), "--samples", str(tmp_path / "lines")]
    import_model.command(words)
    again = modeldir.load(tmp_path / "again")
    assert again.settings.decode == trained.settings.decode
    assert languages_of(again.settings) == ("fr", "en")
    assert again.facts == {"longest_source": 12} and "--trained-length" not in caplog.text
    texts = [Translator.of(each, each.settings.decode).texts(LETTERED) for each in (trained, again)]
    assert texts[0] == texts[1] and any(texts[0])
    (tmp_path / "made/manifest.json").unlink()
    with pytest.raises(UserError, match="not a whole directory of nmt-export"):
        ctranslate2_read.read(tmp_path / "made")


def test_sinusoids_that_are_not_in_the_file_are_those_of_ctranslate2(tmp_path: Path) -> None:
    """As in directories of OpenNMT-tf."""
    trained = made("encoding=absolute", "encoding.absolute.layout=halves",
                "encoding.absolute.denominator=tensor2tensor",
                "encoding.absolute.at.index.start=1")  # fmt: skip
    directory = tmp_path / "made"
    ctranslate2_write.prepare(trained).write(directory, "float32")
    naming, sites = ctranslate2_write.fit(trained)
    spec = ctranslate2_write.make_specification(trained, sites, naming)
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = "__optional"
    spec.optimize()
    spec.save(str(directory))
    (directory / SETTINGS_BESIDE).unlink()
    unknown = ctranslate2_read.read(directory)
    assert unknown.trained.settings.encoding == trained.settings.encoding
    assert unknown.trained.facts == {"longest_source": None}
    certificate = importing.certify(unknown, LETTERED)
    assert certificate["longest_trained_source"] is None and certificate["log_probs"] < 2e-5


def test_without_an_eos_the_source_ends_with_its_last_piece() -> None:
    """What is padding behind it changes nothing; a source that is nothing but eos keeps it."""
    trained = made("encoding=relative", "model.source_eos=false")
    with_it = made("encoding=relative")
    with_it.model.load_state_dict(trained.model.state_dict())
    target = torch.tensor([[1, 5, 6]])
    got = trained.model(torch.tensor([[4, 5, 7, EOS]]), target)
    assert torch.allclose(got, with_it.model(torch.tensor([[4, 5, 7]]), target), atol=1e-6)
    assert not torch.allclose(got, with_it.model(torch.tensor([[4, 5, 7, EOS]]), target), atol=1e-3)
    alone = trained.model(torch.tensor([[EOS, 0]]), target)
    assert torch.allclose(alone, with_it.model(torch.tensor([[EOS]]), target), atol=1e-6)


@pytest.fixture(scope="module")
def relative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of OpenNMT-py, converted, with relative positions."""
    return make(tmp_path_factory.mktemp("opennmt") / "original", relative=True)


def configured(key: str, value: Any) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        config = json.loads((directory / "config.json").read_bytes())
        (directory / "config.json").write_text(json.dumps({**config, key: value}))

    return change


def content(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        where = directory / "model.bin"
        where.write_bytes(change(where.read_bytes()))

    return write


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (configured("add_source_bos", True), "add_source_bos=true cannot be read"),
        (configured("unk_token", "<what>"), "the vocabulary has no <what>"),
        (lambda p: (p / "target.spm").unlink(), "no target.json and no target.spm"),
        (lambda p: (p / "target.spm").write_bytes(b"x"), "target.spm: no SentencePiece model"),
        (lambda p: (p / "shared_vocabulary.json").unlink(), "no source_vocabulary.json and no"),
        (content(lambda b: b[:-9]), "damaged or incomplete"),
        (content(lambda b: b"\x05" + b[1:]), "format 5; nmt reads 6: convert"),
        (content(lambda b: b.replace(b"TransformerSpec", b"TransformerSpek")), "TransformerSpek"),
        (
            content(lambda b: b.replace(b"/linear_1/bias", b"/linear_1/bars")),
            "linear_1/bars belongs",
        ),
        (
            content(lambda b: b.replace(b"decoder/scale_alibi", b"decoder/scale_alibo")),
            "scale_alibo belongs",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    change: Callable[[Path], Any], message: str, relative: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(relative, tmp_path / "original"))
    change(directory)
    with pytest.raises(UserError, match=message) as error:
        ctranslate2_read.read(directory, 20)
    assert error.value.code == Exit.DATA


def certify(directory: Path, **expected: Any) -> modeldir.Trained:
    """Read a directory and compare it with CTranslate2; the settings of the model must be these."""
    imported = ctranslate2_read.read(directory, 12)
    certificate = importing.certify(imported, LINES[:3])
    assert certificate["log_probs"] < 5e-5 and certificate["pieces"] > 60
    shape = imported.trained.settings.model
    assert {name: getattr(shape, name) for name in expected} == expected
    return imported.trained


def test_a_model_of_fairseq_starts_from_the_end_of_a_sentence(tmp_path: Path) -> None:
    directory = make(tmp_path / "made", False, decoder_start_token="</s>", add_source_eos=True)
    trained = certify(directory, source_eos=True)
    assert torch.equal(*trained.model.target_embedding.weight[[BOS, EOS]])
    names = json.loads((directory / "shared_vocabulary.json").read_bytes())
    (directory / "shared_vocabulary.json").write_text(json.dumps([*names[:-1], "eng_Latn"]))
    with pytest.raises(UserError, match="eng_Latn chooses a language"):
        ctranslate2_read.read(directory)


def test_opus_mt_in_ctranslate2_computes_the_same(tmp_path: Path) -> None:
    marian_models.make(tmp_path / "opus", separate=True)
    theirs("ctranslate2.converters").TransformersConverter(str(tmp_path / "opus")).convert(
        str(tmp_path / "made")
    )
    for side in ("source", "target"):
        shutil.copy(tmp_path / f"opus/{side}.spm", tmp_path / "made")
    certify(tmp_path / "made", target_bos=False)


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_quantised_weights_are_those_that_ctranslate2_computes_with(
    precision: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epsilon = 1e-3  # of layer norms; Eole has 1e-6
    made = make(tmp_path / "made", True, precision, layer_norm_epsilon=epsilon)
    certify(made, norm_epsilon=epsilon)
    assert ("quantised weights" in caplog.text) == precision.startswith("int")


def test_a_package_of_argos_translate_is_imported(tmp_path: Path) -> None:
    directory = make(tmp_path / "model", False, "int8")
    with zipfile.ZipFile(tmp_path / "de_en.argosmodel", "w") as archive:
        archive.write(directory / "source.spm", "de_en/sentencepiece.model")
        archive.writestr("de_en/metadata.json", '{"from_code": "de", "to_code": "en"}')
        archive.writestr("de_en/stanza/model.bin", "of a divider of sentences")
        for file in directory.glob("*.[bj]*"):
            archive.write(file, f"de_en/model/{file.name}")
    words = [str(tmp_path / "de_en.argosmodel"), str(tmp_path / "imported")]
    import_model.command([*words, "--trained-length", "9"])
    trained = modeldir.load(tmp_path / "imported")
    assert languages_of(trained.settings) == ("de", "en")
    assert trained.source.to_json() == trained.target.to_json()


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.argosmodel", "cannot be read"), ("bomb.argosmodel", "unpacks to more")],
)
def test_a_file_that_cannot_be_unpacked_is_refused(name: str, message: str, tmp_path: Path) -> None:
    where = tmp_path / name
    if name == "bomb.argosmodel":
        with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x/model/model.bin", bytes(10**6))
    else:
        where.write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(UserError, match=message) as error:
        importing.unpack(where, tmp_path / "work")
    assert error.value.code == Exit.DATA and "\n" not in str(error.value)
