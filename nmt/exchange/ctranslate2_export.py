"""A model as a directory of CTranslate2, which is kept where it is proven to compute the same."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt import manifest
from nmt.data.unigram import Unigram
from nmt.errors import Exit, UserError
from nmt.exchange import (
    ctranslate2_engine,
    ctranslate2_proof,
    ctranslate2_spec,
    model_card,
    samples,
)
from nmt.exchange.certificate import NAME
from nmt.exchange.ctranslate2_spec import Exported
from nmt.exchange.model_card import CardOptions
from nmt.modeldir import SETTINGS_BESIDE, Trained

LONGEST = 2048  # tokens that tables of positions are written for, where the encoding has no end

log = logging.getLogger(__name__)


USAGE = """
```python
import json
from pathlib import Path

import ctranslate2
from nmt.data.side import Side

place = Path("{name}")  # this directory
source, target = (
    Side.from_json(json.loads((place / f"{{side}}.json").read_bytes()))
    for side in ("source", "target")
)
options = json.loads((place / "certificate.json").read_bytes())["options"]
translator = ctranslate2.Translator(str(place))
(result,) = translator.translate_batch([source.segmenter.encode("a line")], **options)
print(target.segmenter.decode(result.hypotheses[0]))
```

`source.json` and `target.json` hold the segmenters. {limits}
"""

WITHOUT_NMT = """
```python
import json
from pathlib import Path

import ctranslate2
from sentencepiece import SentencePieceProcessor

place = Path("{name}")  # this directory
read, written = (
    SentencePieceProcessor(model_file=str(place / f"{{side}}.spm")) for side in ("source", "target")
)
options = json.loads((place / "certificate.json").read_bytes())["options"]
translator = ctranslate2.Translator(str(place))
(result,) = translator.translate_batch([read.encode("a line", out_type=str)], **options)
print(written.decode(result.hypotheses[0]))
```

nmt besides normalises lines (data.normalize); its segmenters are `source.json` and `target.json`.
{limits}
"""

LIMITS = """
Without `max_input_length=0`, which is among the options, CTranslate2 reads the first 1,024 pieces
of a line alone; it stops after 256 pieces of output unless `max_decoding_length` says otherwise.
""".strip()


def export(
    trained: Trained,
    path: Path,
    lines: Sequence[str] | None = None,
    precision: str = "float32",
    card: CardOptions | None = None,
) -> dict[str, Any]:
    """Write a directory of CTranslate2 that computes what the model does; returns its certificate.

    `lines`: of the source language, to compare on; by default made-up ones. Joined and made-up
    lines beyond the length of training are added. Log-probabilities of outputs in float32 must
    agree within 1e-4, and greedy and beam outputs piece by piece; another precision is measured
    besides. `card`: what its README.md says besides; by default the name of the path. The path must
    not exist; where anything fails, nothing is there afterwards. Raises UserError: 2 for what
    CTranslate2 cannot express, 69 where it is not installed, 65 where it computes something else.
    """
    if find_spec("ctranslate2") is None:
        raise UserError(
            "--to ctranslate2: ctranslate2 is not installed; pip install 'nmt[ct2]'",
            Exit.UNAVAILABLE,
        )
    exported = ctranslate2_spec.specification(trained, LONGEST)
    chosen = samples.samples(trained, exported.longest_source, lines)
    ours = ctranslate2_proof.outputs(trained, chosen)
    with TemporaryDirectory() as place:
        kept = saved(exported, "float32", Path(place) / "float32")
        found = ctranslate2_proof.certify(trained, ours, exported, kept)
        if precision != "float32":  # what is saved cannot be made of another precision again
            exported = ctranslate2_spec.specification(trained, LONGEST)
            kept = saved(exported, precision, Path(place) / precision)
            found[precision] = ctranslate2_proof.measure(trained, ours, exported, kept)
        path.parent.mkdir(parents=True, exist_ok=True)
        options = card or CardOptions(path.name)
        usage = WITHOUT_NMT if set(_sentencepiece(trained)) == {"source", "target"} else USAGE
        usage = usage.format(name=path.name, limits=LIMITS).strip()
        text = model_card.card(trained, "ctranslate2", found, options, usage)
        settings = (SETTINGS_BESIDE, ctranslate2_engine.beside(trained.settings, precision))
        files = [*_files(kept, trained, found), settings, (model_card.NAME, text)]
        manifest.write(path, files)
    log.info("CTranslate2 computes the same: %s", found)
    return found


def saved(exported: Exported, precision: str, path: Path) -> Path:
    """Write a specification as CTranslate2 does."""
    exported.spec.optimize(quantization=precision)
    path.mkdir()
    exported.spec.save(str(path))
    return path


def _files(
    directory: Path, trained: Trained, found: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    for file in sorted(directory.iterdir()):
        yield file.name, file.read_bytes()
    yield "source.json", manifest.dump(trained.source.to_json())
    yield "target.json", manifest.dump(trained.target.to_json())
    for name, model in _sentencepiece(trained).items():
        yield f"{name}.spm", model
    yield "facts.json", manifest.dump(trained.facts)
    yield NAME, manifest.dump(found)


def _sentencepiece(trained: Trained) -> dict[str, bytes]:
    """The SentencePiece models that cut plain text into the pieces of a side, by its name."""
    sides = {"source": trained.source.segmenter, "target": trained.target.segmenter}
    return {
        name: segmenter.model
        for name, segmenter in sides.items()
        if isinstance(segmenter, Unigram) and segmenter.tokenizer.kind == "none"
    }
