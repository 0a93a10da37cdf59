"""Models of Marian itself come in, go on training and go back, or are refused by name."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sentencepiece import SentencePieceProcessor

from nmt import modeldir
from nmt.cli import export_model, import_model
from nmt.cli.train import main as train
from nmt.decode.translator import Translator
from nmt.encodings.sinusoids import sinusoids
from nmt.errors import Exit, UserError
from nmt.exchange import (
    exporting,
    importing,
    marian_ids,
    marian_npz,
    proof,
)
from nmt.exchange.marian_npz_adapter import MarianNpzAdapter
from nmt.text.vocab import EOS
from tests.encodings.agreement import theirs
from tests.exchange.npz_models import KINDS, TEXT, load, make, save
from tests.exchange.test_marian_export import made

FEW = {"MADE_UP": 4, "BEYOND": 40, "LONG": 2}
LINES = [source for source, _ in TEXT[:4]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("npz")
    for name, options in KINDS.items():
        make(place / name, **options)
    return place


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """A directory to be spoiled."""
    return Path(shutil.copytree(models / "opus", tmp_path / "copied"))


@pytest.mark.parametrize(("kind", "says"), [("opus", True), ("separate", False)])
def test_the_card_says_where_the_code_of_a_language_goes(
    kind: str, says: bool, models: Path
) -> None:
    usage = MarianNpzAdapter(importing.read(models / kind).trained).usage("out")
    command = "spm_encode --model out/source.spm | marian-decoder -c out/decoder.yml | spm_decode "
    assert usage.startswith(f"```sh\n{command}--model out/target.spm\n```")
    assert ("`>>de<<`, `>>fr<<`. This is one piece: write it before" in usage) is says


def test_marian_reads_text_where_the_vocabulary_is_a_sentencepiece_model(models: Path) -> None:
    usage = MarianNpzAdapter(importing.read(models / "firefox").trained).usage("out")
    assert usage == "```sh\nmarian-decoder -c out/decoder.yml\n```"


def test_a_vocabulary_that_is_a_sentencepiece_model_cuts_codes_as_marian_does(
    tmp_path: Path,
) -> None:
    make(tmp_path / "made", spm=True, symbols=[">>fr<<"])
    trained = importing.read(tmp_path / "made").trained
    processor = SentencePieceProcessor(model_file=str(tmp_path / "made/vocab.deen.spm"))
    line = f">>fr<< {LINES[0]}"
    pieces = processor.encode(line, out_type=str)
    assert pieces[:3] == ["\u2581", ">>fr<<", "\u2581"]
    assert trained.source.ids(line)[:-1] == trained.source.vocabulary.ids(pieces)[:-1]
    assert trained.target.text(trained.target.ids(LINES[0])) == LINES[0]
    usage = MarianNpzAdapter(trained).usage("out")
    assert usage.endswith("begins with the language of its translation, `>>fr<<`.")


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_in_computes_as_in_ctranslate2_and_goes_back_to_the_byte(
    kind: str, models: Path, tmp_path: Path
) -> None:
    imported = importing.read(models / kind, 12)
    found = importing.certify(imported, LINES)
    assert found["compared_with"].startswith("ctranslate2 ")
    assert 0 < found["log_probs"] < 1e-4 and found["longest_source"] > 12
    assert found["greedy"]["equal"] == found["lines"] > len(LINES)
    assert kind != "untied" or found["beam_4"]["equal"] == found["lines"]
    row = proof.log_probs(imported.trained.model, [5, 6], [7])
    assert row[:, :EOS].max() < -50  # the ids that Marian does not have get no probability
    again = exporting.export(imported.trained, tmp_path / "out", LINES, to="marian-npz")
    assert again["log_probs"] == found["log_probs"]
    (before, options), (after, written) = (
        load(path) for path in (models / kind / "opus.npz", tmp_path / "out" / "model.npz")
    )
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.shape == after[name].shape and tensor.tobytes() == after[name].tobytes()
    assert {key: written[key] for key in options if key not in ("transformer-depth-scaling",
            "version")}.items() <= options.items()  # fmt: skip
    decoder = yaml.safe_load((tmp_path / "out" / "decoder.yml").read_bytes())
    assert (decoder["beam-size"], decoder["normalize"], decoder["allow-unk"]) == (6, 1.0, False)
    names = yaml.safe_load((models / kind / "decoder.yml").read_bytes())["vocabs"]
    for one, other in zip(names, decoder["vocabs"], strict=True):
        a, b = models / kind / Path(one).name, tmp_path / "out" / other
        assert a.suffix == b.suffix
        if a.suffix == ".spm":
            assert a.read_bytes() == b.read_bytes()
        else:
            assert yaml.safe_load(a.read_bytes()) == yaml.safe_load(b.read_bytes())
            for side in ("source.spm", "target.spm"):
                assert (tmp_path / "out" / side).read_bytes() == (models / kind / side).read_bytes()
    once_more = dict(MarianNpzAdapter(importing.read(tmp_path / "out").trained).files())
    for name, data in once_more.items():
        assert (tmp_path / "out" / name).read_bytes() == data, name


def test_positions_are_those_of_marian_and_not_those_of_the_converters() -> None:
    """addPositionalEmbeddings of its transformer.h, in two loops."""
    ours, dim = marian_npz.positions(60, 16), 16
    increment = np.log(10000.0) / (dim / 2 - 1)
    for p in range(60):
        for i in range(dim // 2):
            v = p * np.exp(i * -increment)
            assert float(ours[p, i]) == pytest.approx(np.sin(v), abs=1e-6)
            assert float(ours[p, dim // 2 + i]) == pytest.approx(np.cos(v), abs=1e-6)
    converter = theirs("ctranslate2.converters.marian")
    usual = torch.tensor(converter._make_sinusoidal_position_encodings(dim, 60))
    assert (usual - sinusoids(torch.arange(60), dim, "halves", "paper")).abs().max() < 1e-6
    assert (usual - ours).abs().max() > 0.1


def with_bos(model: Any) -> None:
    """The decoder starts from an embedding."""
    model.target_bos = True
    model.target_embedding.weight[1].add_(0.1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m.output.bias[7:9].add_(0.001),
        lambda m: m.target_embedding.weight[5].mul_(1.1),
        with_bos,
        lambda m: m.decoder.layers[0].around_cross.norm.bias.add_(0.01),
    ],
)
def test_whatever_computes_something_else_is_found_out(
    spoil: Callable[[Any], None], models: Path
) -> None:
    imported = importing.read(models / "untied")
    with torch.no_grad():
        spoil(imported.trained.model)
    with pytest.raises(UserError, match="log-probabilities in ctranslate2 differ by"):
        importing.certify(imported, LINES[:2])


def test_pieces_of_any_characters_are_read_as_marian_and_ctranslate2_write_them(
    tmp_path: Path,
) -> None:
    odd = ["</s>", "<unk>", '▁"', "'", "''", '"', "\\", "▁:", ":", "a:", "#", "-", "?", "~", "null"]
    odd += ["yes", "<<", "1", "0x1F", "*", "{", ",", "é", "\u200b", "a#", "\x7f", "\x85", "😀"]
    odd += ["\u2028", "\ufeff", "\ufffe", "x" * 2000]
    data = marian_ids.dump_lines({piece: number for number, piece in enumerate(odd)})
    where = tmp_path / "vocab.yml"
    where.write_bytes(data)
    assert [*marian_ids.parse_lines(data, where)] == odd
    assert theirs("ctranslate2.converters.marian").load_vocab(where) == odd
    plain = {piece: number for number, piece in enumerate(odd[:25])}  # that YAML allows
    assert yaml.safe_load(marian_ids.dump_lines(plain)) == plain
    for width in (80, 10_000):  # the first writes long keys in two lines
        text = yaml.safe_dump(plain | {"y" * 300: 25}, allow_unicode=width > 80, width=width)
        assert marian_ids.parse_lines(text.encode(), where) == plain | {"y" * 300: 25}
    named = {"\xa0x": 0, "\u2028": 1, "\x85": 2, "\x07": 3}  # by letters behind a backslash
    assert marian_ids.parse_lines(yaml.safe_dump(named).encode(), where) == named


def option(**changed: Any) -> Callable[[Path], None]:
    """A model.yml in which some options are others."""

    def spoil(place: Path) -> None:
        tensors, options = load(place / "opus.npz")
        save(
            place / "opus.npz",
            tensors,
            options | {k.replace("_", "-"): changed[k] for k in changed},
        )

    return spoil


def tensor(name: str, change: Callable[[Any], Any] | None) -> Callable[[Path], None]:
    """An npz in which one tensor is another, or (None) absent."""

    def spoil(place: Path) -> None:
        tensors, options = load(place / "opus.npz")
        old = tensors.pop(name, None)
        save(place / "opus.npz", tensors | ({name: change(old)} if change else {}), options)

    return spoil


def file(name: str, data: bytes | None) -> Callable[[Path], None]:
    """A file that holds something else, or (None) is not there."""

    def spoil(place: Path) -> None:
        (place / name).unlink()
        if data is not None:
            (place / name).write_bytes(data)

    return spoil


def decoder(**values: Any) -> Callable[[Path], None]:
    """A decoder.yml in which some options are others."""

    def spoil(place: Path) -> None:
        where = place / "decoder.yml"
        where.write_text(yaml.safe_dump(yaml.safe_load(where.read_bytes()) | values))

    return spoil


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "SSRU": (option(transformer_decoder_autoreg="rnn"), "autoreg=rnn: SSRU and averages cannot"),
    "recurrent": (option(type="s2s"), "type=s2s: another family"),
    "factors": (option(lemma_dim_emb=-1), "lemma-dim-emb=-1: factors cannot be read"),
    "factored vocabulary": (decoder(vocabs=["v.fsv"]), "v.fsv: .*factors, .fsv, cannot"),
    "learned positions": (option(transformer_train_position_embeddings=True), "only sinusoids"),
    "pre-norm": (option(transformer_preprocess="n"), "preprocess=n: only norms after the sub"),
    "RMS norm": (option(transformer_postprocess="dar"), "postprocess=dar: only norms after"),
    "gelu": (option(transformer_ffn_activation="gelu"), "activation=gelu: that of Marian is x sig"),
    "another activation": (option(transformer_ffn_activation="prelu"), "=prelu: choose one of"),
    "tied layers": (option(transformer_tied_layers=[1, 1]), "layers that share weights"),
    "right to left": (option(right_left=True), "right-left=True: only outputs from left"),
    "half tied": (option(tied_embeddings_src=True, tied_embeddings_all=False), "=false: where bot"),
    "heads": (option(transformer_heads=3), "encoder_attention_heads: must divide d_model"),
    "8 bits": (tensor("Wemb", lambda t: t.astype(np.int8)), "Wemb is int8, not float32"),
    "not finite": (tensor("Wemb", lambda t: t * np.nan), "Wemb holds numbers that are not finite"),
    "one too many": (tensor("encoder_l1_self_Wo_ln_scale_pre", lambda _: np.ones((1, 16), "f4")),
                     r"encoder_l1_self_Wo_ln_scale_pre, \[16\], has no place"),
    "one too few": (tensor("decoder_l1_ffn_b2", None), "has no decoder_l1_ffn_b2"),
    "another vocabulary": (tensor("Wemb", lambda t: t[:-1]), "has 61 pieces, but Wemb is"),
    "a bias of one": (tensor("decoder_ff_logit_out_b", lambda t: t[:, :1]), "pieces, but decoder_"),
    "pickles": (tensor("Wemb", lambda t: t.astype(object)), "opus.npz: damaged, or holds more"),
    "a torn npz": (file("opus.npz", b"PK\x03\x04 torn"), "opus.npz: damaged, or holds more"),
    "no npz of Marian": (lambda place: np.savez(place / "opus.npz", a=np.ones(2)), "no model of"),
    "two models": (decoder(models=["a.npz", "b.npz"]), "a.npz, b.npz: expected one of .npz"),
    "no vocabulary": (decoder(vocabs=[]), r"no \*vocab\*.yml: expected one or two of .spm or .yml"),
    "ids missing": (file("opus.yml", b"</s>: 0\n<unk>: 1\na: 3\n"), "expected the ids 0 to 2"),
    "ids that are none": (file("opus.yml", b"</s>: 0\n<unk>: [1]\n"), "opus.yml: expected a piece"),
    "no character": (file("opus.yml", b'"\\UFFFFFFFF": 1'), "opus.yml: expected a piece"),
    "no text": (file("opus.yml", b'</s>: 0\n<unk>: 1\n"\\ud800": 2'), "opus.yml: "),
    "a number": (tensor("Wemb", lambda t: t[0, 0]), "opus.npz: expected names of tensors"),
    "no </s>": (file("opus.yml", b"a: 0\n<unk>: 1\n"), "has no </s>"),
    "no YAML": (file("opus.yml", b"\xff: 1"), "opus.yml: expected a piece"),
    "YAML that runs": (file("decoder.yml", b"a: !!python/object:os.getcwd {}"), "no valid YAML"),
    "YAML that swells": (file("decoder.yml", b"a: &a [x, x]\nword-penalty: [*a, *a]"), "aliases"),
    "an npz that swells": (lambda place: np.savez_compressed(place / "opus.npz", a=np.zeros(10**5)),
                           "opus.npz: damaged, or holds more"),
    "no keys": (file("decoder.yml", b"- a\n"), "decoder.yml: expected keys and values"),
    "no SentencePiece": (file("source.spm", None), "source.spm: the file is missing"),
    "a beam of none": (decoder(**{"beam-size": 0}), "decoder.yml: beam_size=0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_wrong_directory_is_refused_by_name(kind: str, copied: Path) -> None:
    spoil, message = REFUSED[kind]
    importing.read(copied)
    spoil(copied)
    with pytest.raises(UserError, match=message) as error:
        importing.read(copied)
    assert error.value.code == Exit.DATA and str(copied) in str(error.value)
    assert "\n" not in str(error.value)


def test_one_vocabulary_may_stand_in_two_files(copied: Path) -> None:
    expected = importing.read(copied).trained
    shutil.copy(copied / "opus.yml", copied / "target.yml")
    decoder(vocabs=["opus.yml", "target.yml"])(copied)
    found = importing.read(copied).trained
    assert found.settings == expected.settings
    assert found.model.source_embedding.weight is found.model.output.weight
    other = yaml.safe_load((copied / "opus.yml").read_bytes())
    pieces = [piece for piece in other if piece not in ("</s>", "<unk>")]
    other |= {pieces[0]: other[pieces[1]], pieces[1]: other[pieces[0]]}
    (copied / "target.yml").write_text(yaml.safe_dump(other), encoding="utf-8")
    with pytest.raises(UserError, match=r"opus.yml and target.yml number pieces otherwise; name"):
        importing.read(copied)


def test_files_are_found_without_a_decoder_yml(models: Path, tmp_path: Path) -> None:
    for kind, sizes in (("separate", 2), ("firefox", 1)):
        place = Path(shutil.copytree(models / kind, tmp_path / kind))
        expected = importing.read(place).trained
        (place / "decoder.yml").rename(place / "model.npz.decoder.yml")
        assert importing.read(place).trained.settings.decode.beam_size == 6
        (place / "model.npz.decoder.yml").unlink()
        trained = importing.read(place).trained
        assert (trained.settings.decode.beam_size, trained.settings.decode.alpha) == (12, 0.0)
        same = [t.model.state_dict().values() for t in (trained, expected)]
        assert all(torch.equal(*pair) for pair in zip(*same, strict=True))
        assert len({trained.source.vocabulary.to_json()[5], trained.target.vocabulary.to_json()[5]}
                   ) <= sizes  # fmt: skip


def test_two_vocabularies_are_not_guessed_by_their_names(models: Path, tmp_path: Path) -> None:
    """de comes before en, whichever is the source."""
    place = Path(shutil.copytree(models / "separate", tmp_path / "copied"))
    (place / "decoder.yml").unlink()
    (place / "opus.src.vocab.yml").rename(place / "vocab.en.yml")
    (place / "opus.trg.vocab.yml").rename(place / "vocab.de.yml")
    with pytest.raises(UserError, match=r"vocab.de.yml, vocab.en.yml: .* the source first"):
        importing.read(place)
    (place / "decoder.yml").write_text("vocabs: [vocab.en.yml, vocab.de.yml]")
    found = importing.read(place).trained
    expected = importing.read(models / "separate").trained
    assert found.source.vocabulary.to_json() == expected.source.vocabulary.to_json()


def test_what_decoder_yml_says_counts_and_what_is_left_out_is_said(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decoder(**{"beam-size": 3, "normalize": 0.6, "allow-unk": True, "word-penalty": 0.2,
               "max-length-factor": 3})(copied)  # fmt: skip
    settings = importing.read(copied).trained.settings.decode
    assert (settings.beam_size, settings.alpha, settings.unknown) == (3, 0.6, "allow")
    assert (settings.length_penalty, settings.stop) == ("power", "shrinking")
    assert "not taken over: word-penalty=0.2, max-length-factor=3;" in caplog.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.target_bos=false", "model.norm=pre"], "model.norm=pre: cannot be exported"),
        ([], "model.target_bos=true: cannot be exported to Marian"),
        (["model.target_bos=false", "encoding.absolute.denominator=paper"], "denominator=tensor2t"),
        (["model.target_bos=false", "model.activation=gelu"], "model.activation=gelu: that of Ma"),
    ],
)
def test_models_of_our_own_that_marian_cannot_compute_are_refused(
    words: list[str], message: str, tmp_path: Path
) -> None:
    given = ["encoding=absolute", "encoding.absolute.denominator=tensor2tensor", "model.norm=post"]
    with pytest.raises(UserError, match=message) as error:
        exporting.export(made(*given, *words), tmp_path / "made", LINES, to="marian-npz")
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


def test_models_of_marian_do_not_go_to_hugging_face(models: Path, tmp_path: Path) -> None:
    trained = importing.read(models / "opus").trained
    with pytest.raises(UserError, match=r"target_bos=false: .* export --to marian-npz, or exp"):
        exporting.export(trained, tmp_path / "made", LINES, to="marian")


def test_another_length_penalty_is_warned_of(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = importing.read(models / "opus").trained
    dict(MarianNpzAdapter(trained).files())
    assert not caplog.text
    decode = replace(trained.settings.decode, length_penalty="wu")
    settings = replace(trained.settings, decode=decode)
    dict(MarianNpzAdapter(trained._replace(settings=settings)).files())
    assert "decode.length_penalty=wu: Marian divides by length ** 1 instead" in caplog.text


@pytest.mark.parametrize("layout", ["halves", pytest.param("interleaved", marks=pytest.mark.slow)])
def test_models_of_our_own_go_there(layout: str, tmp_path: Path) -> None:
    trained = made(
        *("encoding=absolute", "encoding.absolute.denominator=tensor2tensor", "model.tie=none"),
        *("model.target_bos=false", f"encoding.absolute.layout={layout}"),
    )
    with torch.no_grad():
        trained.model.output.bias[EOS] += 3.0
    found = exporting.export(trained, tmp_path / "made", LINES, to="marian-npz")
    assert 0 < found["log_probs"] < 1e-4 and found["beam_4"]["equal"] > 0
    exporting.export(trained, tmp_path / "faster", LINES, to="ctranslate2")
    back = importing.read(tmp_path / "made").trained
    assert back.source.ids(LINES[0]) == trained.source.ids(LINES[0])


@pytest.mark.slow
def test_from_an_npz_to_longer_text_and_on_to_both_engines(tmp_path: Path) -> None:
    parent, child = tmp_path / "parent", tmp_path / "child"
    original = make(tmp_path / "original", **KINDS["opus"])
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    given = ["--samples", str(tmp_path / "in.txt")]
    assert import_model.main([str(original), str(parent), "--trained-length", "30", *given]) == 0
    found = json.loads((parent / "certificate.json").read_bytes())
    assert found["compared_with"].startswith("ctranslate2") and found["log_probs"] < 1e-4
    assert train([
        *("experiment=lengthen", f"parent={parent}", "name=child", f"runs={tmp_path}", "data=toy"),
        *(f"data.cache={tmp_path / 'cache'}", "trainer.max_steps=20", "data.train_pairs=300"),
        *("data.dev_pairs=20", "data.test_pairs=20", "trainer.batch_tokens=800"),
        *("trainer.device=cpu", "trainer.tensorboard=false"),
    ]) == 0  # fmt: skip
    for engine in ("ctranslate2", "marian-npz"):
        out = tmp_path / engine
        assert export_model.main([str(child), str(out), "--to", engine, *given]) == 0
        found = json.loads((out / "certificate.json").read_bytes())
        assert found["log_probs"] < 1e-4 and found["longest_source"] > 30
        assert found["greedy"]["equal"] + found["greedy"]["ties"] == found["lines"]
    one, other = (load(path)[0] for path in (original / "opus.npz", out / "model.npz"))
    assert one.keys() == other.keys() and not np.array_equal(one["Wemb"], other["Wemb"])
    trained, back = modeldir.load(child), importing.read(out).trained
    texts = [Translator.of(each, trained.settings.decode).texts(LINES) for each in (trained, back)]
    assert texts[0] == texts[1]
