"""Marian itself translates and scores like models that come from it and go to it.

NMT_PYMARIAN names a Python that has its wheel: `pip install --no-deps pymarian`.
"""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from nmt.config.settings import Decode
from nmt.decode.translator import Translator
from nmt.exchange import exporting, importing, proof
from nmt.modeldir import Trained
from nmt.text.vocab import BOS, EOS, PAD
from tests.exchange.npz_models import KINDS, TEXT, make
from tests.exchange.test_marian_export import made

PYTHON = os.environ.get("NMT_PYMARIAN")
CALL = "import _pymarian, sys; sys.exit(_pymarian.main(sys.argv[1:]))"
LINES = [source for source, _ in TEXT[:60]]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="NMT_PYMARIAN names no Python that has pymarian"),
]


def by_marian(place: Path, trained: Trained, decode: Decode) -> Iterator[tuple[list[str], Any]]:
    """The pieces of each translation, and the log-probability of each and of the end."""
    values = yaml.safe_load((place / "decoder.yml").read_bytes())
    model, *vocabularies = (
        str(place / Path(n).name) for k in ("models", "vocabs") for n in values[k]
    )
    files = ["-m", model, "-v", *vocabularies]
    reads_text = vocabularies[0].endswith(".spm")
    lines = LINES if reads_text else [" ".join(trained.source.segmenter.encode(x)) for x in LINES]
    done = subprocess.run(
        [
            *(str(PYTHON), "-c", CALL, "decode", "--cpu-threads", "1", "--log-level", "critical"),
            *(["-c", str(place / "decoder.yml")] if "relative-paths" in values else files),
            *("-b", str(decode.beam_size), "-n", str(decode.alpha)),
            *("--n-best", "--word-scores", "--no-spm-decode"),
        ],
        input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
    best: dict[str, tuple[list[str], list[float]]] = {}
    for line in done.stdout.splitlines():
        number, text, scores, *_ = line.split(" ||| ")
        best.setdefault(number, (text.split(), [float(x) for x in scores.split()[1:]]))
    return iter(best.values())


def imported(kind: str, place: Path) -> Trained:
    return importing.read(make(place, **KINDS[kind])).trained


def exported(kind: str, place: Path) -> Trained:
    trained = made(
        *("encoding=absolute", "encoding.absolute.denominator=tensor2tensor", f"model.tie={kind}"),
        *("model.target_bos=false", "model.activation=swish"), shared=kind == "all",
    )  # fmt: skip
    with torch.no_grad():
        trained.model.output.bias[EOS] += 2.5
    exporting.export(trained, place, LINES[:2], to="marian-npz")
    return trained


@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.0), (6, 1.0)])
@pytest.mark.parametrize(
    ("direction", "kind"),
    [*((imported, kind) for kind in KINDS), (exported, "none"), (exported, "all")],
)
def test_marian_translates_and_scores_as_we_do(
    direction: object, kind: str, beam_size: int, alpha: float, tmp_path: Path
) -> None:
    trained = direction(kind, place := tmp_path / "model")  # type: ignore[operator]
    decode = replace(
        trained.settings.decode, beam_size=beam_size, alpha=alpha, stop="shrinking",
        max_length_ratio=3.0, max_length_offset=3,
    )  # fmt: skip
    ours = Translator.of(trained, decode).texts(LINES)
    scored = proof.without_ids(trained, (PAD, BOS))  # ids that Marian does not have
    theirs, largest = [], 0.0
    for line, (pieces, scores) in zip(LINES, by_marian(place, trained, decode), strict=True):
        source, target = trained.source.ids(line)[:-1], trained.target.vocabulary.ids(pieces)
        target = target[: len(scores)]  # without the end, where the limit came first
        rows = proof.log_probs(scored.model, source, target[: len(scores) - 1])
        difference = rows[range(len(scores)), target] - torch.tensor(scores)
        largest = max(largest, float(difference.abs().max()))
        theirs.append(trained.target.segmenter.decode(pieces))
    equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
    assert (equal, largest) == (len(LINES), pytest.approx(0, abs=1e-4))
