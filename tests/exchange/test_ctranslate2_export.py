"""Models go out to CTranslate2 verified, or are refused by name and reason."""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from nmt import build, modeldir
from nmt.cli import export_model
from nmt.cli.encodings import exportable
from nmt.config.catalog import options_of
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_write, proof
from nmt.exchange.ctranslate2_names import name_ids
from nmt.exchange.exporting import export
from nmt.modeldir import SETTINGS_BESIDE, Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import EOS, Vocabulary
from nmt.toy import pairs
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.fast import fast_first

FEW = {"BEYOND": 20, "ROOM": 4, "LONG": 1, "LONGEST": 64}
LINES = [source for source, _ in pairs(3, 3, 5, "samples")]
LETTERS = sorted({letter for line in LINES for letter in line if letter != " "})
REFUSED = """
lstm gru convolution relative_absolute floater rr_transformer relative_per_head deberta tener
transformer_xl transformer_xl_untied conv_spe cope da_transformer dape irpe_qkv huang_1 huang_2
huang_3 huang_4 shaw_absolute synthesizer synthesizer_factorised synthesizer_random
diet_absolute fire scalar_absolute tupe_absolute tupe_relative ldpe lrpe position_infused ssmax
xpos yarn fope gaussian sigmoid_attention stick_breaking cable fox path_attention selective_rope
sine_spe sine_spe_stochastic graformer spr_absolute spr_relative tpe laplacian structural
graph_transformer graph_bert per_language xl_pe p_rope universal complex_order coverage
floater_cross gated_attention
"""  # options; the others export


def made(*words: str, letters: list[str] = LETTERS) -> Trained:
    """A tiny model of single letters, every parameter moved; some of its outputs end."""
    pieces = [*letters, *(f"{letter}@@" for letter in letters)]
    side = Side(Bpe(Tokenizer("nfc", "none", "de"), []), Vocabulary(pieces))
    settings = settings_of(*TINY, *words)
    model = moved(settings, 0, len(side.vocabulary))
    with torch.no_grad():
        model.output.bias[EOS] += 0.5
    return Trained(settings, model, side, side, {"longest_source": 12})


def proven(trained: Trained, directory: Path) -> dict[str, Any]:
    certificate = export(trained, directory / "made", LINES)
    assert certificate["log_probs"] < 2e-5 and certificate["pieces"] > 60
    for search in ("greedy", "beam_4"):
        counts = certificate[search]
        assert counts["equal"] + counts["ties"] == counts["compared"] and counts["ties"] <= 1
    assert certificate["greedy"]["compared"] == certificate["lines"]
    assert certificate["longest_source"] > certificate["longest_trained_source"]
    return certificate


def test_samples_are_searched_whole_whatever_nmt_translate_does_with_them(tmp_path: Path) -> None:
    trained = made("encoding=none", "decode.max_source=20", "decode.too_long=refuse")
    proven(trained, tmp_path)


@pytest.mark.parametrize("words", fast_first(5, [
    ["encoding=absolute", "encoding.absolute.at.index.start=3", "model.norm=post",
     "model.activation=gelu"],
    ["encoding=relative", "tau=3", "model.share_layers=true"],
    ["encoding=[relative,t5]", "tau=3", "encoding.t5.buckets=8", "encoding.t5.max_distance=9",
     "encoding.t5.scaled=false", "model.activation=swish", "model.tie=all"],
    ["encoding=rotary", "encoding.rotary.layout=halves", "encoding.rotary.partial=0.5",
     "encoding.rotary.scaling=linear", "encoding.rotary.factor=2"],
    ["encoding=[irpe,wavelet]", "encoding.irpe.key=bias", "encoding.wavelet.scales=2"],
    ["encoding=relative_value", "tau=3", "encoding.relative_value.where=encoder"],
    ["encoding=[rotary,kerple_log]"],
    ["encoding=[rotary,relative]", "tau=3"],
]))  # fmt: skip
def test_each_form_of_positions_is_proven(words: list[str], tmp_path: Path) -> None:
    certificate = proven(made(*words), tmp_path)
    assert certificate["compared_with"] == f"ctranslate2 {version('ctranslate2')}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["encoding=lstm"], "depends on the words"),
        (["encoding=relative_per_head"], "heads have vectors of their own"),
        (["encoding=cope"], "more than products"),
        (["encoding=fire"], "depends on more than"),
        (["encoding=xpos"], "more than a rotation"),
        (["encoding=tpe"], "the column heads"),
        (["encoding=complex_order"], "no complex maps"),
        (["encoding=floater_cross"], "attention to the source"),
        (["encoding=yarn", "encoding.yarn.attention=1"], "not the powers of one base"),
        (["encoding=[absolute,alibi]"], "nothing is added to the embeddings where"),
        (["encoding=absolute", "model.drop_residual=[1]"], r"model.drop_residual=\[1\]: cannot"),
        (["encoding=absolute", "decode.no_repeat_ngram=3"], "decode.no_repeat_ngram=3"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctranslate2_write, "LONGEST", 2048)
    trained = made(*words)
    with pytest.raises(UserError, match=message) as error:
        export(trained, tmp_path / "made", LINES)
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())
    assert message == "decode.no_repeat_ngram=3" or exportable(trained.settings).startswith("no: ")


def test_what_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "LOG_PROBS", -1.0)
    with pytest.raises(UserError, match="log-probabilities in ctranslate2 differ by") as error:
        export(made("encoding=none"), tmp_path / "made", LINES)
    assert error.value.code == Exit.DATA and not list(tmp_path.iterdir())


def test_the_command_writes_what_ctranslate2_reads_and_needs_room_there_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    trained = made("encoding=alibi", "decode.no_repeat_ngram=3")
    modeldir.save(trained, tmp_path / "model")
    samples, directory = tmp_path / "samples.txt", tmp_path / "out" / "made"
    samples.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = [str(tmp_path / "model"), str(directory), "--to", "ctranslate2"]
    arguments += ["--samples", str(samples), "--precision", "int8"]
    assert export_model.main(arguments) == Exit.USAGE
    assert "cannot be exported; add decode.no_repeat_ngram=0" in capsys.readouterr().err
    assert export_model.main([*arguments, "decode.no_repeat_ngram=0", "decode.alpha=0.25"]) == 0
    assert [*directory.parent.iterdir()] == [directory]
    settings = json.loads((directory / SETTINGS_BESIDE).read_bytes())
    assert (settings["decode"]["no_repeat_ngram"], settings["decode"]["alpha"]) == (0, 0.25)
    certificate = json.loads((directory / "certificate.json").read_bytes())
    assert certificate["log_probs"] < 1e-5 < certificate["int8"]["log_probs"] < 2
    assert certificate["int8"]["computed_in"] == "int8_float32"
    side = Side.from_json(json.loads((directory / "source.json").read_bytes()))
    translator = ctranslate2.Translator(str(directory))
    (result,) = translator.translate_batch(
        [side.segmenter.encode(LINES[0])], **certificate["options"]
    )
    assert isinstance(side.segmenter.decode(result.hypotheses[0]), str)
    assert export_model.main(arguments) == Exit.CANT_CREATE
    assert export_model.main([str(tmp_path), str(tmp_path / "x"), "--to", "ctranslate2"]) != 0


def test_pieces_that_look_like_special_ids_are_no_special_ids(tmp_path: Path) -> None:
    assert name_ids(Vocabulary(["a", "<s>", "<s>_"]), Vocabulary(["</s>"])) == (
        ["<blank>", "<s>__", "</s>_", "<unk>", "a", "<s>", "<s>_"],
        ["<blank>", "<s>__", "</s>_", "<unk>", "</s>"],
    )
    proven(made("encoding=none", letters=[*LETTERS, "</s>", "<s>"]), tmp_path)


@pytest.mark.parametrize(
    ("words", "longest"),
    [
        (["encoding=alibi"], 63),
        (["encoding=learned", "encoding.learned.size=50"], 49),
        (["encoding=scalar_relative", "encoding.scalar_relative.longest=9"], None),
    ],
)
def test_the_longest_line_that_the_tables_are_right_for_is_known(
    words: list[str], longest: int | None
) -> None:
    naming, _ = ctranslate2_write.fit(made(*words))
    wanted = None if longest is None else longest + 1  # with eos
    assert (naming.source.longest, naming.target.longest) == (wanted, wanted)


def test_an_output_may_be_empty(tmp_path: Path) -> None:
    trained = made("encoding=none")
    with torch.no_grad():
        trained.model.output.bias[EOS] += 50
    certificate = export(trained, tmp_path / "made", LINES)
    assert certificate["beam_4"]["equal"] == certificate["lines"]


def test_an_empty_output_that_ctranslate2_misses_behind_a_language_does_not_count(
    tmp_path: Path,
) -> None:
    trained = made("encoding=none", "decode.target_language=fr", letters=[*LETTERS, ">>fr<<"])
    vocabulary = trained.source.vocabulary
    build.set_languages(trained.model, trained.settings.decode, vocabulary, vocabulary)
    with torch.no_grad():
        trained.model.output.bias[EOS] += 0.5
    certificate = export(trained, tmp_path / "made", LINES)
    assert (
        certificate["beam_4"]["compared"] < certificate["lines"] == certificate["greedy"]["equal"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("option", options_of("encoding"))
def test_every_option_exports_with_proof_or_is_refused_with_a_reason(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = made(f"encoding={option}")
    if option not in REFUSED.split():
        proven(trained, tmp_path)
        return
    monkeypatch.setattr(ctranslate2_write, "LONGEST", 2048)  # up to 512, FIRE reads distances alone
    with pytest.raises(UserError, match="because "):
        export(trained, tmp_path / "made")
    assert not list(tmp_path.iterdir())
