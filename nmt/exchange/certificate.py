"""What an imported model computes beside what its own engine computes: measured, not believed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.unigram import SPACE
from nmt.data.vocab import BOS, EOS
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange.marian import MarianModel
from nmt.exchange.marian_weights import Numbering

LOGITS = 1e-4  # largest difference of two logits in float32 that passes
BEAM = 4
ROOM = 20  # pieces that a translation may have beyond twice those of its source
MADE_UP = 40  # lines, where none are given
LONGEST_MADE_UP = 60  # pieces of such a line
NAME = "certificate.json"  # beside the files of a model directory

log = logging.getLogger(__name__)


class Reference(NamedTuple):
    """The model as transformers reads it."""

    model: Any
    tokenizer: Any
    positions: int  # tokens of the longest sequence that it takes


def certify(imported: MarianModel, directory: Path, lines: Sequence[str]) -> dict[str, Any]:
    """Compare the model with transformers, extra `oracles`, on lines of its source.

    Returns what was found, as plain values: how many lines became the same ids, the largest
    difference of two logits, and how many translations, greedy and by beam search without a length
    penalty, are the same piece by piece. A translation that does not end within the limit counts in
    greedy search alone. Raises UserError (65) where anything differs.
    """
    if find_spec("transformers") is None:
        log.warning("not compared with the original: transformers is not installed (nmt[oracles])")
        return {"compared_with": None}
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    reference = _reference(directory)
    kept = [line for line in lines if _fits(imported, line, reference)]
    if not kept:
        raise UserError(f"no sample is shorter than the {reference.positions} positions of "
                        f"{directory}; give others", Exit.DATA)  # fmt: skip
    _same_ids(imported, reference, kept)
    found: dict[str, Any] = {
        "compared_with": f"transformers {transformers.__version__}",
        "lines": len(kept),
        "lines_left_out": len(lines) - len(kept),  # empty, or too long for the reference
        "longest_source": max(len(imported.trained.source.ids(line)) - 1 for line in kept),
    }
    greedy = [_outputs(imported.target, reference, line, 1) for line in kept]
    found["logits"] = max(
        _difference(imported, reference, line, output)
        for line, output in zip(kept, greedy, strict=True)
    )
    if not found["logits"] <= LOGITS:
        raise UserError(
            f"{directory}: logits differ from those of transformers by {found['logits']:.2g}; this "
            "model computes something that nmt does not know",
            Exit.DATA,
        )
    beam = [_outputs(imported.target, reference, line, BEAM) for line in kept]
    found["greedy"] = _same_outputs(imported, kept, greedy, 1)
    found[f"beam_{BEAM}"] = _same_outputs(imported, kept, beam, BEAM)
    log.info("as transformers computes it: %s", found)
    return found


def made_up(imported: MarianModel, seed: int = 1) -> list[str]:
    """Lines of pieces drawn at random, for models whose language nobody has a text of."""
    draw = Random(seed)
    side = imported.trained.source
    pieces = range(EOS + 2, len(side.vocabulary))
    most = min(LONGEST_MADE_UP, int(imported.trained.facts["longest_source"]) // 2)
    lines = (side.text(draw.choices(pieces, k=draw.randint(1, most))) for _ in range(MADE_UP))
    return [" ".join(line.replace(SPACE, " ").split()) for line in lines]


def _reference(directory: Path) -> Reference:
    from transformers import MarianMTModel, MarianTokenizer

    model: Any = MarianMTModel.from_pretrained(directory, local_files_only=True)
    tokenizer = MarianTokenizer.from_pretrained(directory, local_files_only=True)
    return Reference(model.float().eval(), tokenizer, model.config.max_position_embeddings)


def _fits(imported: MarianModel, line: str, reference: Reference) -> bool:
    ids = imported.trained.source.ids(line)
    return len(ids) > 1 and _room(len(ids) - 1) + 2 <= reference.positions


def _room(pieces: int) -> int:
    """Pieces that a translation of so many may have."""
    return 2 * pieces + ROOM


def _same_ids(imported: MarianModel, reference: Reference, lines: Sequence[str]) -> None:
    for line in lines:
        theirs = imported.source.ours(reference.tokenizer(line)["input_ids"])
        if theirs != imported.trained.source.ids(line):
            raise UserError(f"{line!r}: transformers makes other pieces of it", Exit.DATA)


@torch.inference_mode()
def _outputs(target: Numbering, reference: Reference, line: str, beam: int) -> list[int]:
    """Our ids of their translation, eos included where it ends in time, without BOS."""
    ids = reference.tokenizer(line, return_tensors="pt")
    (row,) = reference.model.generate(
        **ids,
        num_beams=beam,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=False,
        forced_eos_token_id=None,
        bad_words_ids=[[target.pad]],
        max_new_tokens=_room(ids["input_ids"].shape[1] - 1) + 1,
    )
    return target.ours(row.tolist())[1:]


@torch.inference_mode()
def _difference(imported: MarianModel, reference: Reference, line: str, output: list[int]) -> float:
    """The largest difference of the logits before each piece of an output."""
    target, trained = imported.target, imported.trained
    before = [BOS, *output[:-1]]
    theirs: Tensor = reference.model(
        **reference.tokenizer(line, return_tensors="pt"),
        decoder_input_ids=torch.tensor([[target.theirs[i - BOS] for i in before]]),
    ).logits
    ours = trained.model(torch.tensor([trained.source.ids(line)]), torch.tensor([before]))
    return float((ours[..., BOS:] - theirs[..., target.theirs]).abs().max())


def _same_outputs(
    imported: MarianModel, lines: Sequence[str], theirs: Sequence[list[int]], beam: int
) -> dict[str, int]:
    """Compare translations; raises UserError (65) for the first that differs."""
    decode = replace(
        imported.trained.settings.decode,
        beam_size=beam,
        alpha=0.0,
        max_length_ratio=2.0,
        max_length_offset=ROOM,
    )
    finished = 0
    translations = Translator.of(imported.trained, decode).translate(lines)
    for line, (ours, *_), reference in zip(lines, translations, theirs, strict=True):
        ends = reference[-1] == EOS
        if not ends and beam > 1:
            continue  # at a limit the two engines choose otherwise among what is not finished
        if (ours.finished, list(ours.ids)) != (ends, reference[:-1]):
            raise UserError(
                f"{line!r}: transformers translates it otherwise with a beam of {beam}", Exit.DATA
            )
        finished += ends
    return {"equal": len(lines) if beam == 1 else finished, "finished": finished}
