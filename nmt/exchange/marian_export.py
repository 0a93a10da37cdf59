"""A model as a Marian directory of Hugging Face, kept where transformers computes the same."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt import manifest
from nmt.errors import Exit, UserError
from nmt.exchange import card_code, certificate, marian_files, model_card, samples
from nmt.exchange.model_card import CardOptions
from nmt.modeldir import Trained


def export(
    trained: Trained,
    path: Path,
    lines: Sequence[str] | None = None,
    card: CardOptions | None = None,
) -> dict[str, Any]:
    """Write a directory that MarianMTModel and MarianTokenizer read; returns its certificate.

    `lines`: of the source language, to compare on; by default made-up ones. Joined and made-up
    lines beyond the length of training are added, as far as the table of positions reaches. Logits
    must agree within 1e-4, and greedy and beam outputs piece by piece. Text is compared as nmt
    normalises it, which transformers does not. `card`: what its README.md says besides; by default
    the name of the path. The path must not exist; where anything fails, nothing is there
    afterwards. Raises UserError: 2 for what such a directory cannot hold, 69 where transformers is
    not installed, 65 where it computes something else.
    """
    if find_spec("transformers") is None:
        raise UserError(
            "--to marian: transformers is not installed; pip install 'nmt[oracles]'",
            Exit.UNAVAILABLE,
        )
    written = marian_files.specification(trained)
    words = trained.source.segmenter.tokenizer.words
    chosen = [s.line for s in samples.samples(trained, written.positions, lines)]
    with TemporaryDirectory() as place:
        for name, data in marian_files.files(written):
            (Path(place) / name).write_bytes(data)
        found = certificate.compare(written.model, Path(place), [words(line) for line in chosen])
        found["lines_normalised"] = sum(words(line) != line for line in chosen)
        found["longest_trained_source"] = trained.facts["longest_source"]
        most = written.positions - 1
        found["right_for"] = {"source_pieces": most, "target_pieces": most}
        path.parent.mkdir(parents=True, exist_ok=True)
        held = [(file.name, file.read_bytes()) for file in sorted(Path(place).iterdir())]
        options = card or CardOptions(path.name)
        code = card_code.transformers(trained, place, most - 1)
        found["as_nmt_translate"] = card_code.compared(trained, code, chosen)
        usage = card_code.markdown(card_code.transformers(trained, path.name, most - 1), trained)
        text = model_card.card(trained, "marian", found, options, usage)
        beside = [(certificate.NAME, manifest.dump(found)), (model_card.NAME, text)]
        manifest.write(path, [*held, *beside])
    certificate.report(found)
    return found
