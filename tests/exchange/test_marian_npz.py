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

from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange import exporting, importing, marian_directory, marian_npz, proof
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.vocab import EOS
from tests.encodings.agreement import theirs
from tests.exchange.npz_models import KINDS, TEXT, load, make, save
from tests.exchange.test_marian_export import made
from tests.fast import fast_first

FEW = {"MADE_UP": 4, "BEYOND": 20, "ROOM": 6, "LONG": 1, "USUAL_LENGTH": 12}
LINES = [source for source, _ in TEXT[:4]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("npz")
    for name, options in KINDS.items():
        make(directory / name, **options)
    return directory


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Path:
    """A directory to be spoiled."""
    return Path(shutil.copytree(models / "opus", tmp_path / "copied"))


def usage_of(trained: Trained, name: str) -> str:
    usage = marian_directory.prepare(trained).usage
    assert usage
    return usage(name)


@pytest.mark.parametrize("kind", ["opus", "firefox"])
def test_the_card_shows_pymarian_and_the_languages(kind: str, models: Path) -> None:
    usage = usage_of(importing.read(models / kind).trained, "out")
    code, text = usage.removeprefix("```python\n").split("```\n")
    compile(code, "card", "exec")
    assert 'Translator("-c out/decoder.yml --cpu-threads 4")' in code
    assert ("SentencePieceProcessor" in code) is (kind == "opus")
    assert (">>fr<<" in text and "one piece" in text) is (kind == "opus")


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
    assert '[">>fr<< a line"]' in usage_of(trained, "out")


@pytest.mark.parametrize("kind", fast_first(2, ["opus", "firefox", "separate", "untied"]))
def test_what_comes_in_computes_as_in_ctranslate2_and_goes_back_to_the_byte(
    kind: str, models: Path, tmp_path: Path
) -> None:
    imported = importing.read(models / kind, 12)
    certificate = importing.certify(imported, LINES)
    assert certificate["compared_with"].startswith("ctranslate2 ")
    assert 0 < certificate["log_probs"] < 1e-4 and certificate["longest_source"] > 12
    assert certificate["greedy"]["equal"] == certificate["lines"] > len(LINES)
    assert kind != "untied" or certificate["beam_4"]["equal"] == certificate["lines"]
    row = proof.log_probs(imported.trained.model, [5, 6], [7])
    assert row[:, :EOS].max() < -50  # the ids that Marian does not have get no probability
    again = exporting.export(imported.trained, tmp_path / "out", LINES, to="marian-npz")
    assert again["log_probs"] == certificate["log_probs"]
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
    once_more = importing.read(tmp_path / "out").trained
    marian_directory.prepare(once_more).write(tmp_path / "again", "float32")
    for file in (tmp_path / "again").iterdir():
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes(), file.name


def test_pieces_of_any_characters_are_read_as_marian_and_ctranslate2_write_them(
    tmp_path: Path,
) -> None:
    odd = ["</s>", "<unk>", '▁"', "'", "''", '"', "\\", "▁:", ":", "a:", "#", "-", "?", "~", "null"]
    odd += ["<<", "0x1F", "*", "{", ",", "é", "\u200b", "a#", "\x7f", '"\x9f', "\x85", "\u2028"]
    where = tmp_path / "vocab.yml"
    where.write_bytes(data := marian_directory.dump_vocabulary({p: n for n, p in enumerate(odd)}))
    assert [*marian_directory.parse_vocabulary(data, where)] == odd
    assert theirs("ctranslate2.converters.marian").load_vocab(where) == odd
    ids = {piece: number for number, piece in enumerate([*odd[:-3], "y" * 300, "\x07", "\ufffe"])}
    for width in (80, 10_000):  # the first writes long keys in two lines
        text = yaml.safe_dump(ids, allow_unicode=width > 80, width=width)
        assert marian_directory.parse_vocabulary(text.encode(), where) == ids


def npz(change: Callable[[Any, Any], Any]) -> Callable[[Path], None]:
    """An npz whose tensors and options are changed."""

    def spoil(directory: Path) -> None:
        tensors, options = load(directory / "opus.npz")
        change(tensors, options)
        save(directory / "opus.npz", tensors, options)

    return spoil


def option(text: str) -> Callable[[Path], None]:
    """A model.yml in which options have other values, in YAML."""
    values = {name: yaml.safe_load(v or "''") for name, v in (x.split("=") for x in text.split())}
    return npz(lambda _, options: options.update(values))


def tensor(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """An npz in which one tensor is another."""
    return npz(lambda tensors, _: tensors.update({name: change(tensors.get(name))}))


def bias(first: int, last: int, more: float) -> Callable[[Path], None]:
    """A model that prefers some ids."""
    return npz(lambda tensors, _: tensors["decoder_ff_logit_out_b"][0, first:last].__iadd__(more))


def file(name: str, data: bytes | None) -> Callable[[Path], None]:
    """A file that holds something else, or (None) is not there."""

    def spoil(directory: Path) -> None:
        (directory / name).unlink()
        if data is not None:
            (directory / name).write_bytes(data)

    return spoil


def decoder(**values: Any) -> Callable[[Path], None]:
    """A decoder.yml in which some options are changed."""

    def spoil(directory: Path) -> None:
        where = directory / "decoder.yml"
        where.write_text(yaml.safe_dump(yaml.safe_load(where.read_bytes()) | values))

    return spoil


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "factored vocabulary": (decoder(vocabs=["v.fsv"]), "v.fsv: .*factored"),
    "gelu": (option("transformer-ffn-activation=gelu"), "activation=gelu: that of Ma"),
    "half tied": (option("tied-embeddings-src=true tied-embeddings-all=false"), "src=True: only"),
    "an option to come": (option("transformer-twist=1"), "transformer-twist=1: an unknown option"),
    "8 bits": (tensor("Wemb", lambda t: t.astype(np.int8)), "Wemb is int8, not float32"),
    "one too many": (tensor("encoder_l1_self_Wo_ln_scale_pre", lambda _: np.ones((1, 16), "f4")),
                     "encoder_l1_self_Wo_ln_scale_pre belongs to another"),
    "another vocabulary": (tensor("Wemb", lambda t: t[:-1]), "has 61 pieces, but Wemb is"),
    "pickles": (tensor("Wemb", lambda t: t.astype(object)), "opus.npz: damaged, or holds more"),
    "a length that is none": (
        lambda path: (path / "certificate.json").write_text('{"longest_trained_source": "x"}'),
        "certificate.json: longest_trained_source=x",
    ),
    "two models": (decoder(models=["a.npz", "b.npz"]), "a.npz, b.npz: expected one file"),
    "ids missing": (file("opus.yml", b"</s>: 0\n<unk>: 1\na: 3\n"), "expected the ids 0 to 2"),
    "YAML that runs": (file("decoder.yml", b"a: !!python/object:os.getcwd {}"), "no valid YAML"),
    "YAML that swells": (file("decoder.yml", b"a: &a [x, x]\nword-penalty: [*a, *a]"), "aliases"),
    "an npz that swells": (lambda path: np.savez_compressed(path / "opus.npz", a=np.zeros(10**5)),
                           "opus.npz: damaged, or holds more"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_wrong_directory_is_refused_by_name(kind: str, copied: Path) -> None:
    spoil, message = REFUSED[kind]
    spoil(copied)
    with pytest.raises(UserError, match=message) as error:
        importing.read(copied)
    assert error.value.code == Exit.DATA and str(copied) in str(error.value)
    assert "\n" not in str(error.value)


CHANGED = (
    "type=s2s lemma-dim-emb=-1 right-left=true input-types=[class] ulr=true "
    "transformer-decoder-autoreg=rnn transformer-attention-mask=alibi transformer-pool=true "
    "transformer-disable-position-embeddings=true output-omit-bias=true "
    "transformer-decoder-ffn-depth=3 transformer-decoder-dim-ffn=32 transformer-preprocess=n "
    "transformer-postprocess-emb=nd transformer-postprocess=dar transformer-tied-layers=[1,1]"
)


def test_an_option_that_changes_translations_is_refused_by_name(models: Path) -> None:
    _, options = load(models / "opus" / "opus.npz")
    for text in CHANGED.split():
        name, _, value = text.partition("=")
        with pytest.raises(UserError, match=name):
            marian_npz.shape_of(Path("m.npz"), options | {name: yaml.safe_load(value)})


SAME = (
    "dim-rnn=7 skip=true char-stride=5 input-types=[sequence,weight] transformer-preprocess=d "
    "transformer-postprocess=an transformer-postprocess-emb= transformer-tied-layers=[1,2] "
    "transformer-train-position-embeddings=true transformer-decoder-ffn-depth=2 "
    "transformer-decoder-dim-ffn=24"
)


def test_options_without_effect_on_translations_change_nothing(copied: Path) -> None:
    expected = importing.read(copied).trained.settings
    option(SAME)(copied)
    assert importing.read(copied).trained.settings == expected


def test_one_vocabulary_may_stand_in_two_files(copied: Path) -> None:
    expected = importing.read(copied).trained
    shutil.copy(copied / "opus.yml", copied / "target.yml")
    decoder(vocabs=["opus.yml", "target.yml"])(copied)
    read = importing.read(copied).trained
    assert read.settings == expected.settings
    assert read.model.source_embedding.weight is read.model.output.weight
    other = yaml.safe_load((copied / "opus.yml").read_bytes())
    pieces = [piece for piece in other if piece not in ("</s>", "<unk>")]
    other |= {pieces[0]: other[pieces[1]], pieces[1]: other[pieces[0]]}
    (copied / "target.yml").write_text(yaml.safe_dump(other), encoding="utf-8")
    with pytest.raises(UserError, match=r"opus.yml and target.yml number pieces differently; name"):
        importing.read(copied)


def test_files_are_found_without_a_decoder_yml(copied: Path) -> None:
    expected = importing.read(copied).trained
    (copied / "decoder.yml").rename(copied / "model.npz.decoder.yml")
    assert importing.read(copied).trained.settings.decode.beam_size == 6
    (copied / "model.npz.decoder.yml").unlink()
    (copied / "opus.yml").rename(copied / "opus.vocab.yml")
    trained = importing.read(copied).trained
    assert (trained.settings.decode.beam_size, trained.settings.decode.alpha) == (12, 0.0)
    same = [t.model.state_dict().values() for t in (trained, expected)]
    assert all(torch.equal(*pair) for pair in zip(*same, strict=True))


def test_two_vocabularies_are_not_guessed_by_their_names(models: Path, tmp_path: Path) -> None:
    """de comes before en, whichever is the source."""
    directory = Path(shutil.copytree(models / "separate", tmp_path / "copied"))
    (directory / "decoder.yml").unlink()
    (directory / "opus.src.vocab.yml").rename(directory / "vocab.en.yml")
    (directory / "opus.trg.vocab.yml").rename(directory / "vocab.de.yml")
    with pytest.raises(UserError, match=r"vocab.de.yml, vocab.en.yml: .* the source first"):
        importing.read(directory)
    (directory / "decoder.yml").write_text("vocabs: [vocab.en.yml, vocab.de.yml]")
    read = importing.read(directory).trained
    expected = importing.read(models / "separate").trained
    assert read.source.vocabulary.to_json() == expected.source.vocabulary.to_json()


def test_what_decoder_yml_says_counts_and_what_is_left_out_is_said(
    copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"beam-size": 3, "normalize": 0.6, "allow-unk": True, "max-length-factor": 2.5}
    decoder(**values, **{"word-penalty": 0.2})(copied)
    trained = importing.read(copied).trained
    settings = trained.settings.decode
    assert (settings.beam_size, settings.alpha, settings.unknown) == (3, 0.6, "allow")
    assert (settings.length_penalty, settings.stop) == ("power", "shrinking")
    assert (settings.max_length_ratio, settings.max_length_offset) == (2.5, 3)
    assert "word-penalty=0.2" in caplog.text and "beam-size" not in caplog.text
    marian_directory.prepare(trained).write(tmp_path / "again", "float32")
    written = yaml.safe_load((tmp_path / "again/decoder.yml").read_bytes())
    assert values.items() <= written.items()
    for early, alpha in ((True, 1.0), (False, 0.0)):
        decoder(normalize=early)(copied)
        assert importing.read(copied).trained.settings.decode.alpha == alpha


def test_vocabularies_of_each_form_have_pieces_that_no_normalised_text_has(copied: Path) -> None:
    ids = yaml.safe_load((copied / "opus.yml").read_bytes())
    pieces = sorted(ids, key=ids.__getitem__)
    pieces[10:18] = ["\x85", "\x9b", "\u200e", "\u2028", "\u3000", "a  b", "\xa0", "\x1f"]
    bias(10, 18, 5.0)(copied)
    ids = {piece: number for number, piece in enumerate(pieces)}
    lines = "".join(f"{piece}\r\n" for piece in pieces).encode()
    forms = {
        "a.yml": marian_directory.dump_vocabulary(ids),
        "a.json": json.dumps(ids).encode(),
        "a": lines,
    }
    for name, data in forms.items():
        (copied / name).write_bytes(data)
        decoder(vocabs=[name])(copied)
        trained = importing.read(copied).trained
        assert Side.from_json(trained.target.to_json()).vocabulary.to_json() == pieces[2:]
    (text,) = Translator.of(trained, trained.settings.decode).texts(LINES[:1])
    assert text.splitlines() == [text]


def test_the_search_ends_where_marian_ends(tmp_path: Path) -> None:
    """Marian 1.12.42 gave these lengths of one letter; without stop=shrinking, most are longer."""
    bias(0, 1, 3.0)(make(tmp_path / "made", **KINDS["firefox"]))
    trained = importing.read(tmp_path / "made").trained
    for beam_size, lengths in ((1, (75, 14, 14, 66)), (6, (13, 14, 14, 8))):
        decode = replace(trained.settings.decode, beam_size=beam_size, alpha=1.0)
        read = Translator.of(trained, decode).texts([TEXT[i][0] for i in (0, 1, 3, 8)])
        assert read == ["H" * length for length in lengths]


OURS = ("encoding=absolute", "encoding.absolute.denominator=tensor2tensor", "model.norm=post")


def test_models_of_our_own_that_marian_cannot_compute_are_refused(tmp_path: Path) -> None:
    for words, message in (
        ([], "model.target_bos=true: cannot be exported to Marian"),
        (["model.target_bos=false", "encoding.absolute.denominator=paper"], "denominator=tensor2t"),
        (["model.target_bos=false", "model.activation=gelu"], "model.activation=gelu: that of Ma"),
    ):
        with pytest.raises(UserError, match=message) as error:
            exporting.export(made(*OURS, *words), tmp_path / "made", LINES, to="marian-npz")
        assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


def test_models_of_our_own_go_there(tmp_path: Path) -> None:
    trained = made(*OURS, "model.tie=none", "model.target_bos=false")
    with torch.no_grad():
        trained.model.output.bias[EOS] += 3.0
    certificate = exporting.export(trained, tmp_path / "made", LINES, to="marian-npz")
    assert 0 < certificate["log_probs"] < 1e-4 and certificate["beam_4"]["equal"] > 0
    back = importing.read(tmp_path / "made").trained
    assert back.source.ids(LINES[0]) == trained.source.ids(LINES[0])
