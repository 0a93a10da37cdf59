"""Directories that another version of transformers saves and loads translate there as in nmt.

NMT_TRANSFORMERS names a Python that has it (`pip install transformers==4.57.1 sentencepiece
sacremoses torch`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import import_model, translate
from nmt.toy import pairs
from tests.exchange import m2m100_models, marian_models

OTHER = os.environ.get("NMT_TRANSFORMERS")
HOW = "NMT_TRANSFORMERS names no Python that has another version of transformers"
CLIENT = Path(__file__).with_name("transformers_client.py")
LINES = [source for source, _ in pairs(60, 3, 12, "versions")]
LIMIT = ("decode.max_length_ratio=0", "decode.max_length_offset=58")  # 60 with start and end
marian = {
    name: partial(marian_models.make, **options, updates=90)
    for name, options in marian_models.KINDS.items()
}
nllb, m2m100 = (
    partial(m2m100_models.make, kind=kind, updates=90, max_position_embeddings=300)
    for kind in ("nllb", "m2m100")
)
KINDS: dict[str, tuple[Callable[[Path], Any], str]] = {  # how one is made, how it is saved
    "marian, multilingual": (marian["multilingual gelu"], "as it is"),
    "marian, shards": (marian["separate relu"], "shards"),
    "m2m100": (m2m100, "as it is"),
    "nllb": (nllb, "as it is"),
    "nllb, slow tokenizer": (nllb, "slow tokenizer"),
}


@pytest.mark.slow
@pytest.mark.skipif(not OTHER, reason=HOW)
@pytest.mark.parametrize("kind", KINDS)
def test_nmt_translates_as_the_version_that_saved_a_directory(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, form = KINDS[kind]
    made, saved, model = (tmp_path / name for name in ("made", "saved", "model"))
    make(made)
    lines = [f">>de<< {line}" if "multilingual" in kind else line for line in LINES]
    command = [str(OTHER), str(CLIENT), str(made), str(saved), form]
    text = subprocess.check_output(command, input="\n".join(lines), text=True)
    import_model.main([str(saved), str(model)])
    source = tmp_path / "source.txt"
    source.write_text("\n".join([*lines, ""]))
    equal: dict[str, int] = {}
    for beam, expected in json.loads(text).items():
        capsys.readouterr()
        search = [f"decode.beam_size={beam}", "decode.alpha=0", *LIMIT]
        translate.main([str(model), str(source), *search])
        outputs = capsys.readouterr().out.splitlines()
        equal[beam] = sum(a == b for a, b in zip(outputs, expected, strict=True))
    sys.stderr.write(f"{kind}, of {len(lines)} lines by beam size: {equal}\n")
    assert equal["1"] == len(lines) and equal["4"] >= 50
