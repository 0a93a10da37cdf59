"""Models go out to CTranslate2 verified, or are refused by name and reason."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from nmt import modeldir
from nmt.cli import export_model
from nmt.config.catalog import options_of
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_write, interface, site_positions, transformers_read
from nmt.exchange.ctranslate2_names import names
from nmt.exchange.ctranslate2_write import t5_buckets
from nmt.exchange.exporting import export
from nmt.modeldir import SETTINGS_BESIDE, Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import EOS, Vocabulary
from nmt.toy import pairs
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.encodings.agreement import theirs
from tests.exchange.marian_models import KINDS, make

FEW = {"BEYOND": 40, "LONG": 2, "LONGEST": 128}
SLOW_IN_FULL = True
LINES = [source for source, _ in pairs(3, 3, 5, "samples")]
LETTERS = sorted({letter for line in LINES for letter in line if letter != " "})
WANTED = {  # option -> a part of the reason why it is refused; the others export
    **dict.fromkeys(("lstm", "gru", "convolution"), "depends on the words"),
    **dict.fromkeys(("relative_absolute", "floater", "rr_transformer"), "nothing is added to the"),
    "relative_per_head": "heads have vectors of their own",
    **dict.fromkeys(("deberta", "tener", "transformer_xl"), "more than products"),
    "transformer_xl_untied": "more than products",
    **dict.fromkeys(
        ("conv_spe", "cope", "da_transformer", "dape", "irpe_qkv"), "more than products"
    ),
    **dict.fromkeys(("huang_1", "huang_2", "huang_3", "huang_4"), "more than products"),
    **dict.fromkeys(
        ("shaw_absolute", "synthesizer", "synthesizer_factorised"), "more than products"
    ),
    "synthesizer_random": "more than products",
    **dict.fromkeys(("diet_absolute", "fire", "scalar_absolute"), "depends on more than"),
    **dict.fromkeys(("tupe_absolute", "tupe_relative"), "depends on more than"),
    **dict.fromkeys(("ldpe", "lrpe"), "told how long the output is to be"),
    **dict.fromkeys(("position_infused", "ssmax", "xpos", "yarn", "fope"), "more than a rotation"),
    **dict.fromkeys(("gaussian", "sigmoid_attention", "stick_breaking"), "the place of softmax"),
    **dict.fromkeys(
        ("cable", "fox", "path_attention", "selective_rope"), "something else of each word"
    ),
    **dict.fromkeys(("sine_spe", "sine_spe_stochastic"), "queries and keys wider"),
    **dict.fromkeys(
        ("graformer", "spr_absolute", "spr_relative", "tpe", "laplacian"), "the column heads"
    ),
    **dict.fromkeys(("structural", "graph_transformer"), "the column heads"),
    "graph_bert": "the column depth",
    "per_language": "the column language",
    "xl_pe": "the column order",
    "p_rope": "not the powers of one base",
    "universal": "the input of every layer",
    "complex_order": "no complex maps",
    **dict.fromkeys(("coverage", "floater_cross"), "attention to the source"),
    "gated_attention": "gates what attention gives",
}


def made(*words: str, letters: list[str] = LETTERS) -> Trained:
    """A tiny model of single letters, every parameter moved; some of its outputs end."""
    pieces = [*letters, *(f"{letter}@@" for letter in letters)]
    side = Side(Bpe(Tokenizer("nfc", "none", "de"), []), Vocabulary(pieces))
    settings = settings_of(*TINY, *words)
    model = moved(settings, 0, len(side.vocabulary))
    with torch.no_grad():
        model.output.bias[EOS] += 0.5
    return Trained(settings, model, side, side, {"longest_source": 12})


def proven(trained: Trained, place: Path, lines: list[str] | None = LINES) -> dict[str, Any]:
    found = export(trained, place / "made", lines)
    assert found["log_probs"] < 2e-5 and found["pieces"] > 100
    for search in ("greedy", "beam_4"):
        counts = found[search]
        assert counts["equal"] + counts["ties"] == counts["compared"] and counts["ties"] <= 1
    assert found["greedy"]["compared"] == found["lines"]
    assert found["longest_source"] > 3 * found["longest_trained_source"] or lines is None
    return found


def test_an_export_needs_room_in_its_own_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    place = tmp_path / "new" / "made"
    export(made("encoding=none"), place, LINES)
    assert [*place.parent.iterdir()] == [place] and [*tmp_path.iterdir()] == [place.parent]

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(given[0]))

    monkeypatch.setattr(ctranslate2_write, "write_weights", full)
    with pytest.raises(OSError) as error:
        export(made("encoding=none"), tmp_path / "other", LINES)
    assert error.value.filename == str(tmp_path / "other")
    assert [*tmp_path.iterdir()] == [place.parent]


@pytest.mark.parametrize("too_long", ["refuse", "split"])
def test_samples_are_searched_whole_whatever_nmt_translate_does_with_them(
    too_long: str, tmp_path: Path
) -> None:
    trained = made("encoding=none", "decode.max_source=20", f"decode.too_long={too_long}")
    counts = proven(trained, tmp_path)["as_nmt_translate"]
    assert 0 < counts["equal"] < counts["compared"]


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=absolute", "encoding.absolute.at.index.start=3", "model.norm=post",
         "model.activation=gelu"],
        pytest.param(["encoding=none", "model.activation=swish", "model.tie=all"],
                     marks=pytest.mark.slow),
        ["encoding=relative", "tau=3", "model.share_layers=true"],
        pytest.param(["encoding=relative_value", "tau=3", "encoding.relative_value.where=encoder"],
                     marks=pytest.mark.slow),
        ["encoding=t5", "encoding.t5.buckets=8", "encoding.t5.max_distance=9",
         "encoding.t5.scaled=false"],
        pytest.param(["encoding=alibi_directional"], marks=pytest.mark.slow),
        pytest.param(["encoding=scalar_relative", "encoding.scalar_relative.longest=5"],
                     marks=pytest.mark.slow),
        ["encoding=rotary", "encoding.rotary.layout=halves", "encoding.rotary.partial=0.5",
         "encoding.rotary.scaling=linear", "encoding.rotary.factor=2"],
        pytest.param(["encoding=[rotary,kerple_log]"], marks=pytest.mark.slow),
        pytest.param(["encoding=[relative,alibi]", "tau=3"], marks=pytest.mark.slow),
        ["encoding=[relative,t5]", "tau=3", "encoding.t5.buckets=8", "encoding.t5.max_distance=9"],
        pytest.param(["encoding=[rotary,relative]", "tau=3"], marks=pytest.mark.slow),
        ["encoding=[irpe,wavelet]", "encoding.irpe.key=bias", "encoding.wavelet.scales=2"],
        pytest.param(["encoding=composite", "encoding.composite.query=false"],
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_each_form_of_positions_is_proven(words: list[str], tmp_path: Path) -> None:
    found = proven(made(*words), tmp_path)
    assert found["compared_with"] == f"ctranslate2 {version('ctranslate2')}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(([f"encoding={name}"], WANTED[name]) for name in (
            "lstm", "relative_absolute", "relative_per_head", "cope", "fire", "ldpe",
            "xpos", "sine_spe", "tpe", "universal", "complex_order", "floater_cross")),
        (["encoding=yarn", "encoding.yarn.attention=1"], "not the powers of one base"),
        (["encoding=relative", "+encoding.relative.at.sample.test=sample"], "more than products"),
        (["encoding=[absolute,alibi]"], "nothing is added to the embeddings where"),
        (["encoding=absolute", "model.drop_residual=[1]"], r"model.drop_residual=\[1\]: cannot"),
        (["encoding=absolute", "decode.position_scale=0.5"], "decode.position_scale=0.5"),
        (["encoding=absolute", "decode.no_repeat_ngram=3"], "decode.no_repeat_ngram=3"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctranslate2_write, "LONGEST", 2048)
    with pytest.raises(UserError, match=message) as error:
        export(made(*words), tmp_path / "made", LINES)
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("encoding", "spoil"),
    [
        ("absolute", lambda p: p._replace(table=p.table.roll(1, 0))),
        ("relative", lambda p: p._replace(values=p.values.flip(1))),
        ("alibi", lambda p: p._replace(bias=p.bias * 1.01)),
        ("rotary", lambda p: p._replace(turns=p.turns._replace(base=5000.0))),
    ],
)
def test_what_computes_something_else_is_not_written(
    encoding: str, spoil: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = site_positions.read
    monkeypatch.setattr(site_positions, "read", lambda *a: spoil(read(*a)))
    with pytest.raises(UserError, match="log-probabilities in ctranslate2 differ by") as error:
        export(made(f"encoding={encoding}"), tmp_path / "made", LINES)
    assert error.value.code == Exit.DATA and not list(tmp_path.iterdir())


def test_the_command_writes_what_ctranslate2_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = made("encoding=alibi", "decode.no_repeat_ngram=3")
    modeldir.save(trained, tmp_path / "model")
    samples, place = tmp_path / "samples.txt", tmp_path / "out" / "made"
    samples.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = [str(tmp_path / "model"), str(place), "--to", "ctranslate2"]
    arguments += ["--samples", str(samples), "--precision", "int8"]
    assert export_model.main(arguments) == Exit.USAGE
    assert "cannot be exported; add decode.no_repeat_ngram=0" in capsys.readouterr().err
    assert export_model.main([*arguments, "decode.no_repeat_ngram=0", "decode.alpha=0.25"]) == 0
    settings = json.loads((place / SETTINGS_BESIDE).read_bytes())
    assert (settings["decode"]["no_repeat_ngram"], settings["decode"]["alpha"]) == (0, 0.25)
    found = json.loads((place / "certificate.json").read_bytes())
    assert found["log_probs"] < 1e-5 < found["int8"]["log_probs"]
    assert found["int8"]["computed_in"] == "int8_float32"
    side = Side.from_json(json.loads((place / "source.json").read_bytes()))
    translator = ctranslate2.Translator(str(place))
    (result,) = translator.translate_batch([side.segmenter.encode(LINES[0])], **found["options"])
    assert isinstance(side.segmenter.decode(result.hypotheses[0]), str)
    assert export_model.main(arguments) == Exit.CANT_CREATE
    assert export_model.main([str(tmp_path), str(tmp_path / "x"), "--to", "ctranslate2"]) != 0


def test_another_precision_is_measured_and_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    trained = made("encoding=none")
    before = {name: t.clone() for name, t in trained.model.state_dict().items()}
    found = export(trained, tmp_path / "made", LINES, precision="int8")
    assert all(torch.equal(before[name], t) for name, t in trained.model.state_dict().items())
    assert (
        1e-4 < found["int8"]["log_probs"] < 2
    )  # 0.95 where a processor has no VNNI: sums saturate
    assert found["int8"]["greedy"]["compared"] == found["lines"]


def test_without_ctranslate2_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'nmt-toolkit\[ct2\]'") as error:
        export(made("encoding=none"), tmp_path / "made")
    assert error.value.code == Exit.UNAVAILABLE


def test_pieces_that_look_like_special_ids_are_no_special_ids(tmp_path: Path) -> None:
    assert names(Vocabulary(["a", "<s>", "<s>_"]), Vocabulary(["</s>"])) == (
        ["<blank>", "<s>__", "</s>_", "<unk>", "a", "<s>", "<s>_"],
        ["<blank>", "<s>__", "</s>_", "<unk>", "</s>"],
    )
    proven(made("encoding=none", letters=[*LETTERS, "</s>", "<s>"]), tmp_path)


def test_buckets_hold_each_distance_and_all_beyond() -> None:
    by_distance = torch.tensor([[-2.0, -1, 0, 1, 2]])  # [heads, distance]
    one, both = (t5_buckets(by_distance, both)[:, 0].tolist() for both in (False, True))
    assert one == [0, -1, -2, -2, -2, -2]
    assert both == [*one, 0, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("words", "longest"),
    [
        (["encoding=alibi"], 127),
        (["encoding=learned", "encoding.learned.size=70"], 69),
        (["encoding=relative"], None),
        pytest.param(
            *(["encoding=scalar_relative", "encoding.scalar_relative.longest=9"], None),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_longest_line_that_the_tables_are_right_for_is_said(
    words: list[str], longest: int | None, tmp_path: Path
) -> None:
    found = proven(made(*words), tmp_path)
    assert found["right_for"] == {"source_pieces": longest, "target_pieces": longest}


def test_an_output_may_be_empty(tmp_path: Path) -> None:
    trained = made("encoding=none")
    with torch.no_grad():
        trained.model.output.bias[EOS] += 50
    found = export(trained, tmp_path / "made", LINES)
    assert found["beam_4"]["equal"] == found["lines"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared swish", "multilingual gelu"])  # it reads one vocabulary
def test_marian_models_go_out_as_ctranslate2_itself_converts_them(
    kind: str, tmp_path: Path
) -> None:
    model = make(tmp_path / "marian", **KINDS[kind], updates=90)
    start = model.config.decoder_start_token_id
    with torch.no_grad():  # as in OPUS-MT, which CTranslate2 takes for granted
        model.get_decoder().embed_tokens.weight[start] = 0
        model.final_logits_bias[0, start] = -1e4
    model.save_pretrained(tmp_path / "marian")
    trained = transformers_read.marian(tmp_path / "marian").trained
    lines = [source for source, _ in pairs(8, 4, 14, "samples")]
    if "multilingual" in kind:
        lines = [f">>fr<< {line}" for line in lines]
    found = export(trained, tmp_path / "made", lines)
    assert found["greedy"]["compared"] == found["lines"] and not found["options"]["disable_unk"]
    converters = theirs("ctranslate2.converters")
    converters.TransformersConverter(str(tmp_path / "marian")).convert(str(tmp_path / "other"))
    sources = [trained.source.segmenter.encode(line) for line in lines]
    targets = [trained.target.segmenter.encode(target) for _, target in pairs(8, 4, 14, "samples")]
    read = {name: ctranslate2.Translator(str(tmp_path / name)) for name in ("made", "other")}
    ours = read["made"].score_batch(sources, targets)
    other = read["other"].score_batch([[*source, "</s>"] for source in sources], targets)
    for one, two in zip(ours, other, strict=True):
        assert one.log_probs == pytest.approx(two.log_probs, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("option", options_of("encoding"))
def test_every_option_exports_with_proof_or_is_refused_with_a_reason(
    option: str, tmp_path: Path
) -> None:
    trained = made(f"encoding={option}")
    if option not in WANTED:
        found = proven(trained, tmp_path, None)
        assert found["longest_source"] > 250
        return
    with pytest.raises(UserError, match=WANTED[option]):
        export(trained, tmp_path / "made")
    assert not list(tmp_path.iterdir())
