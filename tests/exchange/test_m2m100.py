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
from nmt.cli import evaluate, export_model, import_model, score, translate
from nmt.cli.train import main as train
from nmt.config.settings import with_decode
from nmt.decode.translator import Translator
from nmt.encodings.positions import Index
from nmt.errors import Exit, UserError
from nmt.exchange import (
    exporting,
    families,
    importing,
    proof,
    transformers_engine,
    transformers_read,
)
from nmt.exchange.ctranslate2_engine import CTranslate2Engine, load
from nmt.exchange.settings import sinusoids
from nmt.modeldir import Trained
from nmt.system.resources import DeviceName
from nmt.text.languages import language_id
from nmt.text.vocab import BOS, Vocabulary
from nmt.toy import pairs
from tests.encodings.agreement import theirs
from tests.exchange.m2m100_models import KINDS, make, write
from tests.exchange.test_card_code import by_the_card
from tests.exchange.test_card_code import clients as clients

FEW = {"MADE_UP": 4, "BEYOND": 40, "LONG": 2}
LINES = [source for source, _ in pairs(8, 4, 14, "samples")]
FILES = {"nllb": "tokenizer.json", "m2m100": "vocab.json"}  # that number the pieces


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("m2m100")
    for kind in KINDS:
        make(place / kind, kind, updates=90)
    return place


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """A directory to be spoiled."""
    return Path(shutil.copytree(models / "nllb", tmp_path / "copied"))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_logits_and_translations_are_those_of_transformers(kind: str, models: Path) -> None:
    imported = importing.read(models / kind)
    found = importing.certify(imported, LINES)
    assert found["compared_with"].startswith("transformers 5")
    assert 0 < found["log_probs"] < proof.LOG_PROBS and found["lines_left_out"] == 0
    for search in ("greedy", "beam_4"):
        assert found[search]["equal"] == found[search]["compared"]
    assert found["lines"] == found["greedy"]["compared"] > len(LINES)
    assert found["beam_4"]["compared"] > 4


def test_the_class_of_a_tokenizer_may_have_another_ending_or_none(copied: Path) -> None:
    ids = importing.read(copied).trained.source.ids(LINES[0])
    for name in ("NllbTokenizerFast", "TokenizersBackend", ...):
        changed("tokenizer_config.json", tokenizer_class=name)(copied)
        assert importing.read(copied).trained.source.ids(LINES[0]) == ids


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.model.output.bias[7:9].add_(0.001),
        lambda t: t.model.decoder.norm.bias.add_(0.01),
        lambda t: setattr(t.model, "target_language", t.model.source_language),
        lambda t: setattr(t.model, "source_language", t.model.target_language),
        lambda t: setattr(t.model.encoder_encodings.entries[0], "positions", Index(start=1)),
    ],
)
def test_whatever_computes_something_else_is_found_out(
    spoil: Callable[[Trained], Any], models: Path
) -> None:
    imported = transformers_read.m2m100(models / "nllb")
    with torch.no_grad():
        spoil(imported.trained)
    with pytest.raises(UserError, match="log-probabilities in transformers differ by"):
        importing.certify(imported, LINES[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_another_target_gives_the_translations_of_transformers(kind: str, models: Path) -> None:
    other = {"nllb": "fra_Latn", "m2m100": "fr"}[kind]
    trained = transformers_read.m2m100(models / kind).trained
    before = trained.model.target_language
    decode = with_decode(trained.settings, {"target_language": other, "beam_size": 1}).decode
    texts = Translator.of(trained, decode).texts(LINES)
    transformers = theirs("transformers")
    tokenizer_class = {"nllb": transformers.NllbTokenizer, "m2m100": transformers.M2M100Tokenizer}
    tokenizer = tokenizer_class[kind].from_pretrained(models / kind)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(models / kind)
    number = tokenizer.convert_tokens_to_ids({"nllb": other, "m2m100": "__fr__"}[kind])
    for line, text in zip(LINES, texts, strict=True):
        inputs = tokenizer(line, return_tensors="pt")
        limit = 2 * (inputs["input_ids"].shape[1] - 2) + 20
        (ids,) = model.generate(
            **inputs, forced_bos_token_id=number, num_beams=1, max_new_tokens=limit + 2
        )
        known = ids.tolist()[2:]
        assert " ".join(tokenizer.decode(known, skip_special_tokens=True).split()) == text
    assert len(set(texts)) > 2
    assert trained.model.target_language == before  # the model itself is left as it was
    assert texts != Translator.of(trained, trained.settings.decode).texts(LINES)


def test_an_unknown_language_is_refused_with_what_is_near(models: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"decode.source_language=deu_Lat: .* such as deu_Latn"):
        transformers_read.m2m100(models / "nllb", languages=("deu_Lat", "eng_Latn"))
    with pytest.raises(UserError, match="=de: this model knows no language by a piece; leave it"):
        language_id(Vocabulary(["a"]), "de", "decode.source_language")
    with pytest.raises(UserError, match=r"decode.source_language=zh_CN: .* such as .*zh"):
        transformers_read.m2m100(models / "m2m100", languages=("zh_CN", "en"))
    trained = transformers_read.m2m100(models / "m2m100").trained
    decode = with_decode(trained.settings, {"target_language": "Haus"}).decode
    with pytest.raises(
        UserError, match=r"decode.target_language=Haus: .* has 100 of them"
    ) as error:
        Translator.of(trained, decode)
    assert error.value.code == Exit.USAGE


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


def test_scores_of_both_engines_and_of_given_translations_agree(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = transformers_read.m2m100(models / "nllb").trained
    exporting.export(trained, tmp_path / "ct2", LINES[:3])
    modeldir.save(trained, tmp_path / "model")
    exported = load(tmp_path / "ct2")
    for penalty in ("power", "wu"):
        decode = with_decode(trained.settings, {"length_penalty": penalty}).decode
        engine = CTranslate2Engine(exported, decode, DeviceName("cpu"), 1)
        both = [
            [best[0] for best in Translator(sides, decode, reader).translate(LINES)]
            for sides, reader in (
                (trained, Translator.of(trained, decode).engine),
                (exported, engine),
            )
        ]
        assert [t.text for t in both[0]] == [t.text for t in both[1]]
        assert [t.score for t in both[0]] == pytest.approx([t.score for t in both[1]], abs=1e-3)
    for name, lines in (("in", LINES), ("out", [t.text for t in both[0]])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert score.main([*map(str, (tmp_path / "model", tmp_path / "in", tmp_path / "out"))]) == 0
    log_prob, length = capsys.readouterr().out.split("\n")[0].split("\t")
    expected = both[0][0].score * (6 + int(length)) / 6  # the language counts, as one more
    assert float(log_prob) == pytest.approx(expected, abs=1e-3)


def test_a_line_in_parts_is_scored_like_one_that_is_whole(models: Path) -> None:
    trained = transformers_read.m2m100(models / "nllb").trained
    search = {"split": "sentences", "length_penalty": "power", "alpha": 1}
    translator = Translator.of(trained, with_decode(trained.settings, search).decode)
    found = translator.translate([*LINES[:2], " ".join(LINES[:2])])
    *parts, whole = (best for best, *_ in found)
    assert whole.ids == sum((part.ids for part in parts), ())
    lengths = [1 + len(part.ids) + part.finished for part in parts]  # a language, pieces, eos
    log_prob = sum(part.score * n for part, n in zip(parts, lengths, strict=True))
    assert whole.score == pytest.approx(log_prob / sum(lengths))


def test_references_are_scored_in_the_language_that_is_asked_for(
    models: Path, tmp_path: Path
) -> None:
    for target in ("eng_Latn", "fra_Latn"):
        read = transformers_read.m2m100(models / "nllb", languages=("deu_Latn", target))
        modeldir.save(read.trained, tmp_path / target)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    text = ["--source", str(tmp_path / "text"), "--reference", str(tmp_path / "text")]
    both = [str(tmp_path / target) for target in ("eng_Latn", "fra_Latn")]
    words = [*both, *text, "--perplexity", "-o", str(tmp_path / "s.json"), "--samples", "40"]
    words += ["--target-language", "en"]  # else they are not compared
    for language, same in ((), False), (["decode.target_language=fra_Latn"], True):
        assert evaluate.main([*words, *language]) == 0
        figures = json.loads((tmp_path / "s.json").read_bytes())["figures"]
        one, other = (
            f["mean"] for f in figures if f["metric"] == "perplexity" and f["group"] == "all"
        )
        assert (one == other) == same


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_at_its_limit_is_that_of_ctranslate2(
    kind: str, models: Path, tmp_path: Path
) -> None:
    """A language is no piece of the output that is limited."""
    trained = transformers_read.m2m100(models / kind).trained
    exporting.export(trained, tmp_path / "ct2", LINES[:3])
    short = {"max_length_ratio": 0, "max_length_offset": 3, "beam_size": 1}
    decode = with_decode(trained.settings, short).decode
    ours = Translator.of(trained, decode)
    engine = CTranslate2Engine(load(tmp_path / "ct2"), decode, DeviceName("cpu"), 1)
    both = [
        [best[0].ids for best in translator.translate(LINES)]
        for translator in (ours, Translator(trained, decode, engine))
    ]
    assert both[0] == both[1] and set(map(len, both[0])) == {3}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_back_to_the_byte(kind: str, models: Path, tmp_path: Path) -> None:
    modeldir.save(transformers_read.m2m100(models / kind).trained, tmp_path / "model")
    command = [str(tmp_path / "model"), str(tmp_path / "back"), "--to", "m2m100"]
    assert export_model.main(command) == Exit.OK
    for name in ("model.safetensors", "sentencepiece.bpe.model"):
        assert (tmp_path / "back" / name).read_bytes() == (models / kind / name).read_bytes(), name
    one, other = (
        json.loads((place / FILES[kind]).read_bytes())
        for place in (models / kind, tmp_path / "back")
    )
    assert one == other or kind == "nllb"  # whose tokenizer.json has another form
    ids = [
        transformers_engine.pieces_of(transformers_engine.open_tokenizer(place))[0]
        for place in (models / kind, tmp_path / "back")
    ]
    assert ids[0] == ids[1]
    counts = json.loads((tmp_path / "back" / "certificate.json").read_bytes())["as_nmt_translate"]
    assert counts["equal"] >= counts["compared"] - 1  # transformers never writes a language
    again = transformers_read.m2m100(tmp_path / "back").trained
    original = transformers_read.m2m100(models / kind).trained
    assert again.source.to_json() == original.source.to_json()
    assert export_model.main(
        [*command[:1], str(tmp_path / "x"), *command[2:], "--precision", "int8"]
    )


def test_names_and_positions_are_those_of_ctranslate2s_own_converter(
    models: Path, tmp_path: Path
) -> None:
    from ctranslate2 import Translator as Reader
    from ctranslate2.converters import TransformersConverter

    trained = transformers_read.m2m100(models / "nllb").trained
    exporting.export(trained, tmp_path / "ours", LINES[:3])
    TransformersConverter(str(models / "nllb")).convert(str(tmp_path / "theirs"))
    pieces = [trained.source.segmenter.encode(line) for line in LINES]
    outputs = []
    for name in ("ours", "theirs"):
        reader = Reader(str(tmp_path / name), intra_threads=1)
        outputs.append([
            result.hypotheses[0]
            for result in reader.translate_batch(
                [
                    ["deu_Latn", *line, *(["</s>"] if name == "theirs" else [])]
                    for line in pieces
                ],
                target_prefix=[["eng_Latn"]] * len(pieces),
                beam_size=1,
            )
        ])  # fmt: skip
    assert outputs[0] == outputs[1] and all(line[0] == "eng_Latn" for line in outputs[0])


def test_sinusoids_of_the_other_layout_go_in_another_order(models: Path, tmp_path: Path) -> None:
    trained = transformers_read.m2m100(models / "nllb").trained
    before = trained.model(torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]]))
    for name in ("encoder", "decoder"):
        (entry,) = trained.model.sites[name]
        entry.layout = "interleaved"  # type: ignore[assignment]
    assert not torch.equal(trained.model(torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]])), before)
    assert exporting.export(trained, tmp_path / "made", LINES, "m2m100")["log_probs"] < 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.output.bias[7].fill_(0.5), r"output.bias: cannot be exported to .*M2M100"),
        (lambda m: m.output.weight[BOS].add_(0.5), "the embedding of bos: cannot be exported"),
    ],
)
def test_what_training_changed_and_m2m100_has_not_is_refused(
    change: Callable[[Any], Any], message: str, models: Path, tmp_path: Path
) -> None:
    trained = transformers_read.m2m100(models / "nllb").trained
    with torch.no_grad():
        change(trained.model)
    with pytest.raises(UserError, match=message) as error:
        exporting.export(trained, tmp_path / "made", LINES, "m2m100")
    assert error.value.code == Exit.USAGE and not (tmp_path / "made").exists()


def test_what_training_would_change_is_refused_before_it(models: Path) -> None:
    trained = importing.read(models / "nllb", 12, KINDS["nllb"]).trained
    trainer = replace(trained.settings.trainer, target="m2m100")
    trained = trained._replace(settings=replace(trained.settings, trainer=trainer))
    for frozen in (["encoder"], ["output.bias"]):
        build.freeze(trained.model, frozen)
        with pytest.raises(UserError, match=r"trainer\.target=m2m100: .*trainer\.freeze"):
            exporting.refuse_target(trained._replace(model=deepcopy(trained.model)))
    build.freeze(trained.model, ["embeddings"])
    exporting.refuse_target(trained)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["encoding=relative", "model.tie=all"], "encoding.relative: cannot be .*start=2"),
        (["model.norm=post"], "model.norm=post: cannot be exported to .*M2M100"),
        (["model.tie=none"], "model.tie=none: cannot be exported to .*M2M100"),
        (["model.tie=all"], "decode.source_language and target_language: cannot be exported"),
    ],
)
def test_models_of_another_form_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    from tests.exchange.test_marian_export import made

    usual = [] if "encoding=relative" in words else sinusoids(*families.M2M100.sinusoids)
    trained = made(*usual, "model.norm=pre", *words, shared=True)
    with pytest.raises(UserError, match=message):
        exporting.export(trained, tmp_path / "made", LINES, "m2m100")


def test_an_export_has_the_language_that_is_asked_for(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, made, text = (tmp_path / name for name in ("model", "made", "in.txt"))
    modeldir.save(transformers_read.m2m100(models / "nllb").trained, saved)
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    other, greedy = "decode.target_language=fra_Latn", ("--device", "cpu", "decode.beam_size=1")
    arguments = [str(saved), str(made), "--to", "ctranslate2", "--samples", str(text), other]
    assert export_model.main(arguments) == Exit.OK
    capsys.readouterr()
    outputs = []
    for name, *words in ((saved, other), (made,), (saved,)):
        assert translate.main([str(name), str(text), *greedy, *words]) == Exit.OK
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize("to", ["marian", "argos"])
def test_engines_without_languages_refuse_them(to: str, models: Path, tmp_path: Path) -> None:
    trained = transformers_read.m2m100(models / "nllb").trained
    with pytest.raises(UserError, match=r"=deu_Latn: cannot be exported .* before a line; export"):
        exporting.export(trained, tmp_path / "x.argosmodel", LINES, to)


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    """Changes keys of a JSON file; ...: takes one away."""

    def change(place: Path) -> None:
        content = {**json.loads((place / name).read_bytes()), **values}
        write(place / name, {key: value for key, value in content.items() if value is not ...})

    return change


def removed(*names: str) -> Callable[[Path], None]:
    """Takes files away."""

    def remove(place: Path) -> None:
        for name in names:
            (place / name).unlink()

    return remove


def added(place: Path, piece: str, special: bool) -> None:
    """Adds a piece to the tokenizer, as people do who fine-tune: a row that was made up has it."""
    tokenizer = theirs("transformers").NllbTokenizer.from_pretrained(place)
    tokenizer.add_tokens([piece], special_tokens=special)
    tokenizer.save_pretrained(place)


def saved_by_5(place: Path) -> None:
    """NLLB as transformers 5 saves it."""
    theirs("transformers").NllbTokenizer.from_pretrained(place).save_pretrained(place)
    (place / "sentencepiece.bpe.model").unlink()


def saved_by_4(place: Path) -> None:
    """NLLB as the tokenizer in Python of transformers 4 saves it, with <mask> first."""
    values = json.loads((place / "tokenizer.json").read_bytes())
    (place / "tokenizer.json").unlink()
    tokens = sorted(values["added_tokens"], key=lambda t: t["id"])
    first, others = tokens[:4], tokens[4:]
    ids = range(others[0]["id"], others[0]["id"] + len(others))
    tokens = [
        *first,
        *({**t, "id": i} for i, t in zip(ids, others[-1:] + others[:-1], strict=True)),
    ]
    by_id = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}
    changed("tokenizer_config.json", added_tokens_decoder=by_id)(place)
    write(place / "added_tokens.json", {t["content"]: t["id"] for t in tokens[4:]})


SHAPES: dict[str, Callable[[Path], Any]] = {
    "saved by transformers 5": saved_by_5,
    "saved by transformers 4": saved_by_4,
    "facebook/nllb-200-distilled-600M": changed(
        "config.json",
        max_length=200,
        num_hidden_layers=2,
        torch_dtype="float32",
        encoder_layerdrop=0,
    ),
    "a fine-tuned one": changed("generation_config.json", forced_bos_token_id=122, max_length=200),
    "a new language": lambda place: added(place, "nnh_Latn", special=True),
    "transformers decides": changed(
        "config.json", normalize_before=False, decoder_start_token_id=0
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_nllb_as_it_is_found_is_certified_and_goes_back(
    name: str, copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SHAPES[name](copied)
    imported = importing.read(copied)
    assert "not taken over" not in caplog.text
    assert importing.certify(imported, LINES[:2])["log_probs"] < proof.LOG_PROBS
    exporting.export(imported.trained, tmp_path / "back", LINES[:1], "m2m100")


def test_m2m100_418m_is_certified(models: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(models / "m2m100", tmp_path / "copied"))
    more = {
        "early_stopping": True,
        "gradient_checkpointing": False,
        "num_beams": 5,
        "max_length": 200,
    }
    changed("config.json", **more)(place)
    (place / "generation_config.json").unlink()
    imported = importing.read(place)
    assert imported.trained.settings.decode.beam_size == 5
    assert importing.certify(imported, LINES[:2])["log_probs"] < proof.LOG_PROBS


def test_a_tokenizer_that_no_sentencepiece_model_is_like_is_refused(copied: Path) -> None:
    saved_by_5(copied)
    values = json.loads((copied / "tokenizer.json").read_bytes())
    values["model"]["merges"].reverse()
    write(copied / "tokenizer.json", values)
    with pytest.raises(UserError, match=r"bpe.model: the file is missing.*copy the file") as error:
        importing.read(copied)
    assert error.value.code == Exit.DATA


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {  # others: test_marian_read
    "no pieces": (removed("sentencepiece.bpe.model", "tokenizer.json"), "tokenizer.json: the file"),
    "padding": (changed("config.json", pad_token_id=0), "pad_token_id: must be 1"),
    "an adapter": (
        lambda place: write(place / "adapter_config.json", {"peft_type": "LORA"}),
        "weights of an adapter",
    ),
    "legacy": (changed("tokenizer_config.json", legacy_behaviour=True), "legacy_behaviour=True"),
    "tokenizer": (
        changed("tokenizer_config.json", tokenizer_class="SMALL100Tokenizer"),
        "tokenizer_class=SMALL100Tokenizer",
    ),
    "no language": (
        changed("tokenizer_config.json", src_lang=...),
        "add --languages SOURCE,TARGET",
    ),
    "language": (changed("tokenizer_config.json", tgt_lang="xx"), "decode.target_language=xx: the"),
    "no text": (
        changed("tokenizer_config.json", tgt_lang="null"),
        "decode.target_language=null: the",
    ),
    "code": (
        changed("tokenizer_config.json", tgt_lang="${oc.env:HOME}"),
        r"decode.target_language=\$\{oc.env:HOME\}: the model has no piece",
    ),
    "a token for all text": (lambda place: added(place, "__nnh__", special=False), "adds __nnh__"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_directory_is_refused_by_name(name: str, copied: Path, tmp_path: Path) -> None:
    spoil, message = WRONG[name]
    spoil(copied)
    with pytest.raises(UserError, match=message) as error:
        importing.read(copied)
    assert error.value.code in (Exit.DATA, Exit.USAGE)
    assert import_model.main([str(copied), str(tmp_path / "made")]) == error.value.code
    assert not (tmp_path / "made").exists()


def test_what_transformers_4_stored_besides_is_read(copied: Path) -> None:
    """Several names of the matrix, the sinusoids, and a .bin in place of safetensors."""
    expected = transformers_read.m2m100(copied).trained.model.state_dict()
    tensors = safetensors.torch.load((copied / "model.safetensors").read_bytes())
    shared = tensors["model.shared.weight"]
    model = theirs("transformers").M2M100ForConditionalGeneration.from_pretrained(copied)
    for stack in ("encoder", "decoder"):
        tensors[f"model.{stack}.embed_tokens.weight"] = shared
        table = getattr(model.model, stack).embed_positions.weights
        tensors[f"model.{stack}.embed_positions.weights"] = table
    (copied / "model.safetensors").unlink()
    torch.save(tensors | {"lm_head.weight": shared}, copied / "pytorch_model.bin")
    found = transformers_read.m2m100(copied).trained.model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_languages_are_for_models_that_name_them_by_pieces(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(UserError, match="--languages: only M2M100 and NLLB"):
        importing.read(tmp_path, None, ("de", "en"))


@pytest.mark.slow
def test_a_lengthened_one_is_translated_without_nmt(
    models: Path, tmp_path: Path, clients: Path
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
    assert export_model.main([str(child), str(tmp_path / "ct2"), "--to", "ctranslate2"]) == 0
    texts = Translator.of(trained, decode).texts(LINES)
    assert by_the_card(tmp_path / "ct2", LINES, clients) == texts
    assert len(set(texts)) > 2
    with pytest.raises(UserError, match=r"encoding.relative: cannot be exported to .*M2M100"):
        exporting.export(trained, tmp_path / "x", LINES, "m2m100")


@pytest.mark.slow
def test_what_training_leaves_as_it_is_goes_back(models: Path, tmp_path: Path) -> None:
    modeldir.save(transformers_read.m2m100(models / "nllb", 30).trained, tmp_path / "parent")
    assert train([
        *(f"trainer.init_from={tmp_path / 'parent'}", "name=child", f"runs={tmp_path}", "data=toy"),
        *(f"data.cache={tmp_path / 'cache'}", "trainer.max_steps=4", "data.train_pairs=100"),
        *("data.dev_pairs=20", "data.test_pairs=20", "trainer.batch_tokens=400"),
        *("trainer.device=cpu", "trainer.tensorboard=false"),
        "trainer.freeze=[embeddings,output.bias]",
    ]) == 0  # fmt: skip
    found = exporting.export(modeldir.load(tmp_path / "child"), tmp_path / "x", LINES, "m2m100")
    assert found["log_probs"] < proof.LOG_PROBS
