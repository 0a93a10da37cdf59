"""A model as a directory of CTranslate2, which is kept where it is proven to compute the same."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt import manifest
from nmt.errors import Exit, UserError
from nmt.exchange import (
    card_code,
    certificate,
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
    besides. How many lines the Python on its card translates as nmt-translate does, is counted.
    `card`: what its README.md says besides; by default the name of the path. The path must
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
        most = found["right_for"]["target_pieces"]
        _write(kept, {**card_code.files(trained), NAME: manifest.dump(found)})
        code = card_code.ctranslate2(trained, str(kept), most)
        found["as_nmt_translate"] = card_code.compared(trained, code, [s.line for s in chosen])
        options = card or CardOptions(path.name)
        usage = card_code.markdown(card_code.ctranslate2(trained, path.name, most), trained)
        _write(kept, {
            "source.json": manifest.dump(trained.source.to_json()),
            "target.json": manifest.dump(trained.target.to_json()),
            "facts.json": manifest.dump(trained.facts),
            NAME: manifest.dump(found),
            SETTINGS_BESIDE: ctranslate2_engine.beside(trained.settings, precision),
            model_card.NAME: model_card.card(trained, "ctranslate2", found, options, usage),
        })  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest.write(path, ((file.name, file.read_bytes()) for file in sorted(kept.iterdir())))
    certificate.report(found)
    return found


def saved(exported: Exported, precision: str, path: Path) -> Path:
    """Write a specification as CTranslate2 does."""
    exported.spec.optimize(quantization=precision)
    path.mkdir()
    exported.spec.save(str(path))
    return path


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (directory / name).write_bytes(content)
