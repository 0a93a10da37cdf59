"""Marian itself translates and scores like models that it trained and models that go to it.

NMT_PYMARIAN names a Python that has its wheel: `pip install --no-deps pymarian`.
"""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from nmt import modeldir
from nmt.cli import export_model, import_model
from nmt.cli.train import main as train
from nmt.decode.translator import Translator
from nmt.exchange import importing, proof
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.vocab import BOS, PAD
from tests.exchange.npz_models import KINDS, TEXT, make

PYTHON = os.environ.get("NMT_PYMARIAN")
CALL = "import _pymarian, sys; sys.exit(_pymarian.main(sys.argv[1:]))"
LINES = [source for source, _ in TEXT[:100]]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="NMT_PYMARIAN names no Python that has pymarian"),
]


def run(words: str, text: str = "") -> str:
    """The output of a command of Marian."""
    command = [str(PYTHON), "-c", CALL, *words.split(), "--cpu-threads", "1", "--quiet"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def files_of(place: Path) -> tuple[str, str]:
    """The model and the vocabularies of a directory."""
    names = yaml.safe_load((place / "decoder.yml").read_bytes())
    model, *others = (str(place / Path(n).name) for n in [*names["models"], *names["vocabs"]])
    return model, " ".join(others)


def as_read(side: Side, line: str, vocabularies: str) -> str:
    """A line as Marian reads it: text, or pieces where the vocabulary is a list."""
    return line if vocabularies.endswith(".spm") else " ".join(side.segmenter.encode(line))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Trained]]:
    """Directories for Marian, and the models that are compared with it."""
    root, found = tmp_path_factory.mktemp("marian"), dict[str, tuple[Path, Trained]]()
    (root / "lines").write_text("".join(f"{line}\n" for line in LINES[:9]), encoding="utf-8")
    given = ["--samples", str(root / "lines")]
    for kind, options in (("separate", "--tied-embeddings --transformer-ffn-activation relu"),
                          ("firefox", "--tied-embeddings-all")):  # fmt: skip
        model, vocabularies = files_of(place := make(root / kind, **KINDS[kind]))
        sides = importing.read(place).trained
        for name, side, lines in zip("st", (sides.source, sides.target), zip(*TEXT, strict=True),
                                     strict=True):  # fmt: skip
            text = "".join(f"{as_read(side, line, vocabularies)}\n" for line in lines)
            (root / name).write_text(text, encoding="utf-8")
        Path(model).unlink()
        run(f"train --type transformer {options} -m {model} -v {vocabularies} "
            f"-t {root}/s {root}/t --dim-emb 16 --transformer-dim-ffn 24 --transformer-heads 2 "
            "--enc-depth 2 --dec-depth 1 --after 300u --learn-rate 0.005 --mini-batch 32 "
            "--maxi-batch 1 -w 200 --seed 1")  # fmt: skip
        assert import_model.main([str(place), f"{place}-in", *given]) == 0
        found[f"imported, {kind}"] = place, modeldir.load(Path(f"{place}-in"))
    assert train([
        *("data=toy", f"data.cache={root}/cache", f"runs={root}", "name=own", "segmenter=unigram"),
        *("encoding=absolute", "encoding.absolute.denominator=tensor2tensor", "model.norm=post"),
        *("model.target_bos=false", "model.activation=swish", "segmenter.vocabulary_size=150"),
        *("model=tiny", "model.dim=32", "model.encoder_layers=1", "model.decoder_layers=1"),
        *("data.train_pairs=300", "data.dev_pairs=20", "data.test_pairs=20", "optim.lr=0.005"),
        *("trainer.max_steps=200", "trainer.batch_tokens=800", "trainer.checkpoint_every=100"),
        *("trainer.device=cpu", "trainer.tensorboard=false"),
    ]) == 0  # fmt: skip
    for name in ("own", "firefox-in"):
        out = root / f"{name}-out"
        assert export_model.main([f"{root}/{name}", str(out), "--to", "marian-npz", *given]) == 0
        found[f"exported, {name}"] = out, modeldir.load(root / name)
    return found


@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.0), (6, 1.0)])
@pytest.mark.parametrize(
    "name",
    ["imported, separate", "imported, firefox", "exported, own", "exported, firefox-in"],
)
def test_marian_translates_and_scores_as_we_do(
    name: str, beam_size: int, alpha: float, models: dict[str, tuple[Path, Trained]]
) -> None:
    place, trained = models[name]
    decode = replace(
        trained.settings.decode, beam_size=beam_size, alpha=alpha, stop="shrinking",
        length_penalty="power", max_length_ratio=3.0, max_length_offset=3,
    )  # fmt: skip
    model, vocabularies = files_of(place)
    files = f"-c {place}/decoder.yml" if "exported" in name else f"-m {model} -v {vocabularies}"
    output = run(
        f"decode {files} -b {beam_size} -n {alpha} --n-best --word-scores --no-spm-decode",
        "".join(f"{as_read(trained.source, line, vocabularies)}\n" for line in LINES),
    )
    best = {}
    for number, text, scores, *_ in (line.split(" ||| ") for line in reversed(output.splitlines())):
        best[int(number)] = text.split(), torch.tensor([float(x) for x in scores.split()[1:]])
    ours = Translator.of(trained, decode).texts(LINES)
    scored = proof.without_ids(trained, (PAD, BOS))  # ids that Marian does not have
    equal, largest = 0, 0.0
    for line, text, (pieces, scores) in zip(
        LINES, ours, map(best.__getitem__, range(100)), strict=True
    ):
        source, target = trained.source.ids(line)[:-1], trained.target.vocabulary.ids(pieces)
        target = target[: len(scores)]  # without the end, where the limit came first
        rows = proof.log_probs(scored.model, source, target[: len(scores) - 1])
        largest = max(largest, float((rows[range(len(scores)), target] - scores).abs().max()))
        equal += text == trained.target.segmenter.decode(pieces)
    assert len(set(ours)) > 10
    assert (equal, largest) == (len(LINES), pytest.approx(0, abs=1e-4))
