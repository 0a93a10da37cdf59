"""What a Marian model computes here beside what transformers computes: measured, not believed."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.progress import shown
from nmt.data.unigram import SPACE
from nmt.data.vocab import BOS, EOS, PAD
from nmt.decode.torch_engine import FORBIDDEN
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange.marian import MarianModel
from nmt.modeldir import Trained

LOGITS = 1e-4  # largest difference of two logits in float32 that passes
KINDS = {"logits": "logits", "log_probs": "log-probabilities"}
TIE = 1e-4  # difference of two log-probabilities that rounding may turn around
IMPOSSIBLE = -1e9  # the logit of an id whose probability is 0
BEAM = 4
RATIO = 1.5  # pieces of an output, for each of the source, and ROOM besides
ROOM = 20
WHY = (
    "The others differ because that engine takes pieces that are never chosen, such as the sign "
    "for unknown ones, out before it computes probabilities, or chooses otherwise among "
    "translations that do not end, or computes in another precision."
)
WINDOW = 8  # lines that are searched together: so far apart are two signs of progress
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
    """Compare an imported model with transformers, extra `oracles`, on lines of its source.

    Where transformers is not installed, that is said, and nothing compared. Else does what
    `compare` does.
    """
    if find_spec("transformers") is None:
        log.warning("not compared with the original: transformers is not installed (nmt[oracles])")
        return {"compared_with": None}
    found = compare(imported, directory, lines)
    report(found)
    return found


def compare(model: MarianModel, directory: Path, lines: Sequence[str]) -> dict[str, Any]:
    """Compare a model with what transformers computes of a directory, on lines of its source.

    Returns what was found, as plain values: how many lines became the same ids, the largest
    difference of two logits, and how many translations, greedy and by beam search without a length
    penalty, are the same piece by piece, or tie. A translation that does not end within the limit
    counts in greedy search alone. Raises UserError (65) where anything differs.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    reference = _reference(directory)
    kept = [line for line in lines if _fits(model, line, reference)]
    if not kept:
        raise UserError(f"no sample is short enough for {reference.positions} positions of "
                        "source and translation; give others", Exit.DATA)  # fmt: skip
    log.info("comparing on %s lines", len(kept))
    _same_ids(model, reference, kept)
    found: dict[str, Any] = {
        "compared_with": f"transformers {transformers.__version__}",
        "lines": len(kept),
        "lines_left_out": len(lines) - len(kept),  # empty, or too long for the reference
        "longest_source": max(len(model.trained.source.ids(line)) - 1 for line in kept),
    }
    greedy, beam = ([*_outputs(model, reference, kept, size)] for size in (1, BEAM))
    found["logits"] = max(
        _difference(model, reference, line, output)
        for line, output in zip(kept, greedy, strict=True)
    )
    if not found["logits"] <= LOGITS:
        raise UserError(
            f"logits differ from those of transformers by {found['logits']:.2g}: it computes "
            "something else, so that nothing is written",
            Exit.DATA,
        )
    found["greedy"] = _same_outputs(model, kept, greedy, 1)
    found[f"beam_{BEAM}"] = _same_outputs(model, kept, beam, BEAM)
    return found


def report(found: Mapping[str, Any]) -> None:
    """Log a certificate, sentence by sentence."""
    for sentence in sentences(found):
        log.info("%s", sentence)


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """The findings of a certificate in words, most important first."""
    if found["compared_with"] is None:
        return
    kind = "log_probs" if "log_probs" in found else "logits"
    yield (
        f"Compared with {found['compared_with']} on {found['lines']} lines of up to "
        f"{found['longest_source']:,} pieces: in float32 {KINDS[kind]} differ by at most "
        f"{found[kind]:.1e}."
    )
    yield from _searches(found, "")
    for precision, measured in found.items():
        if isinstance(measured, dict) and "computed_in" in measured:
            yield (
                f"In {precision}, computed in {measured['computed_in']}, {KINDS[kind]} differ by "
                f"at most {measured[kind]:.1e}."
            )
            yield from _searches(measured, f"in {precision} ")
    if counts := found.get("as_nmt_translate"):
        yield (
            f"The Python on the card translates {counts['equal']} of {counts['compared']} lines "
            f"as nmt-translate does; {counts['finished']} of its translations end in time."
        )
        if counts["equal"] < counts["compared"]:
            yield WHY
    if counts := found.get("as_argos_asks"):
        yield (
            "Searching as Argos Translate does, CTranslate2 and nmt-translate give the same "
            f"pieces for {counts['equal']} of {counts['compared']} lines."
        )
    if (longest := found.get("longest_trained_source", 0)) != 0:
        yield (
            "How long the sources of its training were is unknown."
            if longest is None
            else f"Sources in training had up to {longest:,} pieces."
        )
    for side, what in (("source", "sources"), ("target", "translations")):
        if most := found.get("right_for", {}).get(f"{side}_pieces"):
            yield f"It is right for {what} of up to {most:,} pieces."


def _searches(found: Mapping[str, Any], how: str) -> Iterator[str]:
    for key, what in ((f"beam_{BEAM}", f"a beam of {BEAM}"), ("greedy", "greedy search")):
        counts = found[key]
        among = counts.get("compared", counts["equal"] + counts["ties"])
        ties = f", and equally good ones for {counts['ties']}" if counts["ties"] else ""
        sentence = f"{how}{what} finds the same translations for {counts['equal']} of {among} lines"
        yield f"{sentence[0].upper()}{sentence[1:]}{ties}."


def made_up(imported: MarianModel, seed: int = 1) -> list[str]:
    """Lines of pieces drawn at random, for models whose language nobody has a text of."""
    draw = Random(seed)
    side = imported.trained.source
    pieces = range(EOS + 2, len(side.vocabulary))
    longest = imported.trained.facts["longest_source"]
    most = LONGEST_MADE_UP if longest is None else max(1, min(LONGEST_MADE_UP, longest // 2))
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
    return int(RATIO * pieces) + ROOM


def _same_ids(imported: MarianModel, reference: Reference, lines: Sequence[str]) -> None:
    for line in lines:
        theirs = imported.source.ours(reference.tokenizer(line)["input_ids"])
        if theirs != imported.trained.source.ids(line):
            raise UserError(f"{line!r}: transformers makes other pieces of it", Exit.DATA)


def _outputs(
    model: MarianModel, reference: Reference, lines: Sequence[str], beam: int
) -> Iterator[list[int]]:
    """Our ids of their translations; see `_output`."""
    found = (_output(model, reference, line, beam) for line in lines)
    return shown(found, f"a beam of {beam}, by transformers", [1] * len(lines))


@torch.inference_mode()
def _output(model: MarianModel, reference: Reference, line: str, beam: int) -> list[int]:
    """Our ids of their translation, eos included where it ends in time, without BOS."""
    target = model.target
    forbidden = FORBIDDEN[model.trained.settings.decode.unknown]
    ids = reference.tokenizer(line, return_tensors="pt")
    (row,) = reference.model.generate(
        **ids,
        num_beams=beam,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=False,
        forced_eos_token_id=None,
        bad_words_ids=[[target.theirs[i - BOS]] for i in forbidden if i != PAD],
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
    model: MarianModel, lines: Sequence[str], theirs: Sequence[list[int]], beam: int
) -> dict[str, int]:
    """Compare translations; raises UserError (65) for the first that differs."""
    decode = replace(
        model.trained.settings.decode.by_beam(),
        beam_size=beam,
        alpha=0.0,
        max_length_ratio=RATIO,
        max_length_offset=ROOM,
        precision="float32",
        window=WINDOW,
    )
    judge = without(model.trained, [PAD])  # which is no id of theirs
    counts = {"equal": 0, "finished": 0, "ties": 0}
    with quiet():
        found = Translator.of(judge, decode).translate(lines)
        translations = [*shown(found, f"a beam of {beam}, by nmt", [1] * len(lines))]
    for line, (ours, *_), reference in zip(lines, translations, theirs, strict=True):
        source = model.trained.source.ids(line)[:-1]
        ends = reference[-1] == EOS
        ids, other = list(ours.ids), reference[:-1]  # theirs have one id more than the limit
        if beam > 1 and not (ends and ours.finished and len(other) < _room(len(source))):
            continue  # at a limit the two engines choose otherwise among what is not finished
        counts["finished"] += ends
        if (ours.finished, ids) == (ends, other):
            counts["equal"] += 1
        elif tied(judge.model, source, (ids, ours.finished),
                  (other, ends), beam):  # fmt: skip
            counts["ties"] += 1
        else:
            raise UserError(
                f"{line!r}: transformers translates it otherwise with a beam of {beam}; nothing is "
                "written",
                Exit.DATA,
            )
    return counts


def without(trained: Trained, ids: Sequence[int]) -> Trained:
    """A model that never gives some ids any probability: a copy."""
    judge = deepcopy(trained.model)
    with torch.no_grad():
        judge.output.bias[list(ids)] = IMPOSSIBLE
    return trained._replace(model=judge)


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings about lines that are longer than in training: some are meant to be."""
    notes = logging.getLogger("nmt.decode")
    level = notes.level
    notes.setLevel(logging.ERROR)
    try:
        yield
    finally:
        notes.setLevel(level)


@torch.inference_mode()
def tied(
    model: Any,
    source: Sequence[int],
    output: tuple[list[int], bool],
    other: tuple[list[int], bool],
    beam: int,
) -> bool:
    """Whether two outputs are equally good to a model, within TIE: where they part, or as a whole.

    `source`: its ids, without eos; of an output its ids without eos, and whether it ends in eos.
    """
    device = next(model.parameters()).device
    read = torch.tensor([[*source, EOS]], device=device)

    def log_probs(ids: list[int]) -> Any:
        states = model(read, torch.tensor([[BOS, *ids]], device=device))
        return states[0].float().log_softmax(-1)  # [ids + 1, vocab]

    if beam == 1:
        mine, theirs = [*output[0], EOS], [*other[0], EOS]
        places = enumerate(zip(mine, theirs, strict=False))
        at = next((i for i, (a, b) in places if a != b), None)
        if at is None:
            return False
        row = log_probs(output[0][:at])[-1]
        return bool(abs(row[mine[at]] - row[theirs[at]]) <= TIE)
    totals = []
    for ids, ends in (output, other):
        given = [*ids, EOS] if ends else ids
        totals.append(log_probs(ids)[range(len(given)), given].sum())
    return bool(abs(totals[0] - totals[1]) <= TIE)
