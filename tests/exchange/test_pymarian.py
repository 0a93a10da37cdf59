"""Marian itself translates and scores like models that it trained and models that go to it.

NMT_PYMARIAN names a Python that has its wheel: `pip install --no-deps pymarian`.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

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
THEIRS = (  # a tiny model of Marian
    "train --type transformer --dim-emb 16 --transformer-dim-ffn 24 --transformer-heads 2 --seed 1 "
    "--enc-depth 2 --dec-depth 1 --after 300u --learn-rate 0.005 --mini-batch 32 --maxi-batch 1 "
)
OURS = (  # an own model that has Marian's form
    "data=toy segmenter=unigram encoding=absolute encoding.absolute.denominator=tensor2tensor "
    "model.norm=post model.target_bos=false model.activation=swish model=tiny model.dim=32 "
    "segmenter.vocabulary_size=150 data.train_pairs=300 data.dev_pairs=20 data.test_pairs=20 "
    "trainer.max_steps=200 trainer.batch_tokens=800 trainer.checkpoint_every=100 optim.lr=0.002 "
    "trainer.device=cpu trainer.tensorboard=false name=own"
)
LINES = [source for source, _ in TEXT[:100]]


def run(words: str, lines: list[str]) -> list[str]:
    """The lines that a command of Marian writes."""
    command = [str(PYTHON), "-c", CALL, *words.split(), "--cpu-threads", "1", "--quiet"]
    text = "\n".join([*lines, ""])
    return subprocess.check_output(command, input=text, text=True).splitlines()


def files_of(directory: Path) -> str:
    """The model and the vocabularies of a directory, as options."""
    names = yaml.safe_load((directory / "decoder.yml").read_bytes())
    model, *others = (str(directory / Path(n).name) for n in [*names["models"], *names["vocabs"]])
    return f"-m {model} -v {' '.join(others)}"


def as_read(side: Side, lines: Sequence[str], files: str) -> list[str]:
    """Text, or pieces where the vocabulary is a list."""
    return [x if files.endswith(".spm") else " ".join(side.segmenter.encode(x)) for x in lines]


def models(root: Path) -> Iterator[tuple[Trained, str, str]]:
    """Models, their files, and Marian's options: two that Marian trained, then two exports."""
    (root / "lines").write_text("\n".join(LINES[:9]), encoding="utf-8")
    given = ["--samples", str(root / "lines")]
    for kind, tie in (("separate", ""), ("firefox", "-all")):
        directory = make(root / kind, **KINDS[kind])
        files, one = files_of(directory), importing.read(directory).trained
        for side, lines in zip((one.source, one.target), zip(*TEXT, strict=True), strict=True):
            text = "\n".join([*as_read(side, lines, files), ""])
            (root / ("t" if side is one.target else "s")).write_text(text, encoding="utf-8")
        (directory / "opus.npz").unlink()
        run(f"{THEIRS} --tied-embeddings{tie} {files} -t {root}/s {root}/t -w 200", [])
        assert import_model.main([str(directory), f"{directory}-in", *given]) == 0
        yield modeldir.load(Path(f"{directory}-in")), files, files
    assert train([*OURS.split(), f"data.cache={root}/cache", f"runs={root}"]) == 0
    for name in ("own", "firefox-in"):
        out = root / f"{name}-out"
        assert export_model.main([f"{root}/{name}", str(out), "--to", "marian-npz", *given]) == 0
        yield modeldir.load(root / name), files_of(out), f"-c {out}/decoder.yml"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="NMT_PYMARIAN names no Python that has pymarian")
def test_marian_translates_and_scores_as_we_do(tmp_path: Path) -> None:
    for (trained, files, config), beam_size in product(models(tmp_path), (1, 6)):
        options = f"-b {beam_size} -n 1 --n-best --word-scores --no-spm-decode"
        output, best = run(f"decode {config} {options}", as_read(trained.source, LINES, files)), {}
        for line in reversed(output):
            number, words, values, *_ = line.split(" ||| ")
            best[int(number)] = words.split(), torch.tensor([*map(float, values.split()[1:])])
        marian: dict[str, Any] = {
            "stop": "shrinking",
            "length_penalty": "power",
            "max_length_ratio": 3.0,
        }
        marian |= {"beam_size": beam_size, "alpha": 1.0, "max_length_offset": 3}
        decode = replace(trained.settings.decode, **marian)
        by_nmt = Translator.of(trained, decode).texts(LINES)
        model = proof.bar_ids(trained, (PAD, BOS)).model  # ids that Marian does not have
        equal, largest = 0, 0.0
        for index, (line, text) in enumerate(zip(LINES, by_nmt, strict=True)):
            pieces, scores = best[index]
            target = trained.target.vocabulary.ids(pieces)[: len(scores)]  # no end at the limit
            rows = proof.log_probs(model, trained.source.ids(line)[:-1], target[: len(scores) - 1])
            largest = max(largest, float((rows[range(len(scores)), target] - scores).abs().max()))
            equal += text == trained.target.segmenter.decode(pieces)
        assert len({*by_nmt}) > 10 and largest < 1e-4
        assert equal >= len(LINES) - 1  # rounding may decide between two beams
