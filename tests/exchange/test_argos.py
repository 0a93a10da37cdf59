"""Packages of Argos Translate hold what it reads, and it translates as nmt does, or are refused."""

import json
import os
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from sentencepiece import SentencePieceProcessor

from nmt import modeldir
from nmt.cli import export_model, translate
from nmt.cli.train import main as train
from nmt.errors import Exit, UserError
from nmt.exchange import exporting
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.vocab import BOS, PAD, UNK, Vocabulary
from nmt.toy import pairs
from tests.composing import settings_of
from tests.conftest import TINY, moved
from tests.exchange.test_ctranslate2_export import made as of_bpe
from tests.exchange.test_marian_export import LINES, made

FEW = {"BEYOND": 30, "LONG": 2, "LONGEST": 128}
PYTHON = os.environ.get("NMT_ARGOS")  # of an environment that has argostranslate
export = partial(exporting.export, to="argos")
HOW = "NMT_ARGOS names no Python that has argostranslate (pip install argostranslate==1.11.0)"


def shared(*words: str, **options: Any) -> Trained:
    return made("encoding=relative", *words, shared=True, **options)


def test_the_command_writes_a_package_that_the_client_reads(tmp_path: Path) -> None:
    trained = shared()
    modeldir.save(trained, tmp_path / "model")
    (tmp_path / "in.txt").write_text(f"{LINES[0]}\n", encoding="utf-8")
    model, package, to = str(tmp_path / "model"), tmp_path / "a" / "x.argosmodel", ["--to", "argos"]
    more = ["--samples", str(tmp_path / "in.txt"), "--precision", "int8"]
    more += ["--names", "German,English"]
    assert export_model.main([model, str(package), *to, *more]) == Exit.OK
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    (directory,) = tmp_path.glob("translate-*")
    assert directory.name == "translate-de_en-1_0"
    assert json.loads((directory / "metadata.json").read_bytes()) == {
        "package_version": "1.0", "argos_version": "1.0",
        "from_code": "de", "from_name": "German", "to_code": "en", "to_name": "English",
    }  # fmt: skip
    assert json.loads((directory / "certificate.json").read_bytes())["log_probs"] < 2e-5
    processor = SentencePieceProcessor(model_file=str(directory / "sentencepiece.model"))
    assert processor.encode(LINES[0], out_type=str) == trained.source.segmenter.encode(LINES[0])
    assert "argostranslate.package.install_from_path" in (directory / "README.md").read_text()
    reader = ctranslate2.Translator(str(directory / "model"))
    (result,) = reader.translate_batch([processor.encode(LINES[0], out_type=str)], beam_size=4)
    assert result.hypotheses[0]
    for wrong in ([str(package), *to], [str(tmp_path / "y"), *to],
                  [str(tmp_path / "y.argosmodel"), *to, "--names", "A"]):  # fmt: skip
        assert export_model.main([model, *wrong]) != Exit.OK
    assert not list(tmp_path.glob("y*"))


def test_its_preset_composes_a_model_that_a_package_can_hold(tmp_path: Path) -> None:
    settings = settings_of("experiment=argos", "data.root=corpus", *TINY)
    segmenter, decode = settings.segmenter, settings.decode
    assert (segmenter.kind, segmenter.tokenizer, segmenter.shared_vocabulary) == (
        "unigram", "none", True,
    )  # fmt: skip
    assert settings.data.join > 1
    searches = (decode.beam_size, decode.alpha, decode.length_penalty)
    assert searches == (4, 0.2, "power")  # of the client
    plain = shared()
    model = moved(settings, 0, len(plain.source.vocabulary))
    trained = plain._replace(settings=settings, model=model, target=plain.source)
    certificate = export(trained, tmp_path / "x.argosmodel", LINES)
    assert certificate["greedy"]["compared"] > 0
    assert certificate["right_for"]["target_pieces"] is None  # its tables do not end


def test_no_special_piece_is_ever_chosen(tmp_path: Path) -> None:
    trained = shared("decode.unknown=forbid")
    with torch.no_grad():
        for number in (PAD, BOS, UNK):
            trained.model.output.bias[number] += 3
    export(trained, tmp_path / "x.argosmodel", LINES)
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        archive.extractall(tmp_path)
    reader = ctranslate2.Translator(str(tmp_path / "translate-de_en-1_0" / "model"))
    for line in LINES:
        (result,) = reader.translate_batch([trained.source.segmenter.encode(line)], beam_size=4,
                                           num_hypotheses=4, min_decoding_length=20)  # fmt: skip
        pieces = {piece for hypothesis in result.hypotheses for piece in hypothesis}
        assert pieces <= set(trained.target.vocabulary.to_json())


def having(side: str, piece: str) -> Trained:
    """A model whose vocabulary of one side has a piece that its segmenter does not know."""
    trained = shared()
    changed: Side = getattr(trained, side)
    pieces = [piece, *changed.vocabulary.to_json()[1:]]
    replaced: dict[str, Any] = {side: Side(changed.segmenter, Vocabulary(pieces))}
    return trained._replace(**replaced)


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        (lambda: of_bpe("encoding=none"), "segmenter.kind=bpe: .*XML.* segmenter=unigram segmente"),
        (lambda: shared("data.target_language=../x"), "data.target_language=../x: Argos"),
        (
            lambda: having("target", "<unk>"),
            "the piece '<unk>' of the target: .* segmenter.shared_vocabulary=true",
        ),
        (lambda: having("source", ">>fr<<"), ">>fr<< in a line: cannot be exported"),
    ],
)
def test_what_the_client_would_cut_or_join_otherwise_is_refused(
    trained: Callable[[], Trained], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as error:
        export(trained(), tmp_path / "x.argosmodel", LINES)
    assert error.value.code == Exit.USAGE and not list(tmp_path.iterdir())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address at which the files of a directory can be had."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason=HOW)
def test_it_is_installed_and_translates_five_hundred_lines_alike(
    tmp_path: Path, served: str
) -> None:
    assert PYTHON is not None
    assert train([
        *("segmenter=unigram", "segmenter.shared_vocabulary=true", "segmenter.vocabulary_size=300"),
        *("encoding=relative", "model.dim=64", "model.feedforward_dim=128", "model.heads=4"),
        *("model.encoder_layers=2", "model.decoder_layers=1", "optim=adam_inverse_sqrt"),
        *("optim.lr=5e-3", "optim.warmup=100", "trainer.max_steps=300", "trainer.device=cpu"),
        *("trainer.batch_tokens=1600", "trainer.tensorboard=false", "data.train_pairs=4000"),
        *(f"runs={tmp_path}", f"data.cache={tmp_path / 'cache'}", "name=run"),
    ]) == 0  # fmt: skip
    lines = [source for source, _ in pairs(500, 4, 40, "five hundred")]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [str(tmp_path / "run"), str(tmp_path / "x.argosmodel"), "--to", "argos"]
    assert export_model.main([*command, "--samples", str(tmp_path / "in.txt")]) == Exit.OK

    home = tmp_path / "home"
    index = home / "argos-translate" / "index.json"
    index.parent.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        metadata = json.loads(archive.read("translate-de_en-1_0/metadata.json"))
    index.write_text(json.dumps([{**metadata, "links": [f"{served}/x.argosmodel"]}]))
    environment = {**os.environ, "HOME": str(home), "no_proxy": "127.0.0.1"}
    environment |= {name: str(home) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    environment |= {"XDG_CACHE_HOME": str(home / "cache"), "OMP_NUM_THREADS": "1"}
    environment["ARGOS_COMPUTE_TYPE"] = "float32"  # by default the fastest: int8 on most CPUs
    environment.pop("PYTHONPATH", None)

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    argospm = str(Path(PYTHON).parent / "argospm")
    run(argospm, "install", "translate-de_en")
    assert run(argospm, "list").strip() == "translate-de_en"
    client = str(Path(__file__).with_name("argos_client.py"))
    by_client = json.loads(run(PYTHON, client, "de", "en", given="\n".join(lines)))
    settings = ["decode.beam_size=4", "decode.alpha=0.2", "decode.length_penalty=power"]
    output = tmp_path / "out.txt"
    files = [str(tmp_path / "run"), str(tmp_path / "in.txt"), "-o", str(output)]
    assert translate.main([*files, *settings, "decode.max_length_offset=256"]) == Exit.OK
    by_nmt = output.read_text(encoding="utf-8").split("\n")[:-1]
    assert len(by_client) == 500 and len(set(by_client)) > 400
    alike = sum(a == b for a, b in zip(by_nmt, by_client, strict=True))
    assert alike > 450, "its search goes on where CTranslate2 ends: few outputs differ"
