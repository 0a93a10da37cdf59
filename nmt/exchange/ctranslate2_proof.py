"""What a directory of CTranslate2 computes beside the model that it was written from: measured."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from nmt.config import Decode
from nmt.data.progress import shown
from nmt.data.vocab import BOS, PAD, UNK
from nmt.decode import forced
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.exchange.certificate import BEAM, RATIO, ROOM, WINDOW, quiet, tied, without
from nmt.exchange.ctranslate2_spec import Exported
from nmt.exchange.samples import MOST, SampleLine, least, made_up
from nmt.modeldir import Trained

LOG_PROBS = 1e-4  # largest difference of two log-probabilities in float32 that passes
# A search with a length penalty ends with so many times beam_size finished hypotheses. nmt goes on
# while an open one is better than all of them: of 200 lines of the embedded corpus that changed 8
# with 1, and none with 1.5 to 4.
PATIENCE = 2
SEARCHES = {"greedy": 1, f"beam_{BEAM}": BEAM}  # name in the certificate -> beam
log = logging.getLogger(__name__)


class SampleOutput(NamedTuple):
    """What our model makes of a sample."""

    ids: list[int]  # without eos
    text: str
    finished: bool
    limit: int  # pieces that it might have had


class Ours(NamedTuple):
    """What our model makes of all samples."""

    samples: list[SampleLine]
    searches: dict[str, list[SampleOutput]]  # by name of the search
    judge: Any  # the model that searched: no forbidden piece has any probability


class CTranslate2Translator(NamedTuple):
    """A model in CTranslate2, with the names that it knows our ids by."""

    translator: Any  # ctranslate2.Translator
    exported: Exported
    options: dict[str, Any]  # of translate_batch: what may be chosen

    def outputs(
        self, samples: Sequence[SampleLine], limits: Sequence[int], beam: int
    ) -> Iterator[list[int]]:
        """Our ids of each output, without eos, of at most so many pieces."""
        ids = {name: number for number, name in enumerate(self.exported.target)}
        for sample, limit in zip(samples, limits, strict=True):
            (result,) = self.translator.translate_batch(
                [self._named(sample)],
                **self.options,
                beam_size=beam,
                length_penalty=0,
                max_decoding_length=limit,
            )
            yield [ids[piece] for piece in result.hypotheses[0]]

    def log_probs(
        self, samples: Sequence[SampleLine], targets: Sequence[list[int]]
    ) -> list[list[float]]:
        """Of each target's ids and eos, in batches that mix lengths."""
        scored = self.translator.score_batch(
            [self._named(sample) for sample in samples],
            [[self.exported.target[i] for i in ids] for ids in targets],
            max_batch_size=8,
            max_input_length=0,
        )
        return [list(each.log_probs) for each in scored]

    def _named(self, sample: SampleLine) -> list[str]:
        return [self.exported.source[i] for i in sample.ids]


def choices(exported: Exported, unknown: str) -> dict[str, Any]:
    """What `translate_batch` must be told to choose among the same outputs as nmt does."""
    return {
        "suppress_sequences": [[exported.target[i]] for i in (PAD, BOS)],
        "disable_unk": unknown != "allow",
        "min_decoding_length": 0,  # by default 1: no output is empty
        "max_input_length": 0,  # all of it: by default what is beyond 1,024 is not read
    }


def search(decode: Decode) -> dict[str, Any]:
    """How `translate_batch` must search to find what nmt finds, but for the limit of its length.

    With a length penalty that CTranslate2 does not have, it is to give all hypotheses and their
    scores, so that they can be ranked anew.
    """
    beam = decode.beam_size
    penalised = beam > 1 and decode.alpha > 0
    patience = PATIENCE if penalised else 1
    anew = is_ranked_anew(decode)
    return {
        "beam_size": beam,
        "patience": patience,
        "length_penalty": decode.alpha if penalised else 0,
        "num_hypotheses": beam * patience if anew else 1,
        "return_scores": anew,
    }


def _options(trained: Trained, exported: Exported) -> dict[str, Any]:
    """All arguments of `translate_batch` for the settings of the model.

    `max_decoding_length` is that of the longest source that the tables are right for, or of MOST
    pieces where they have no end: no translation that ends is cut.
    """
    decode = trained.settings.decode.by_beam()
    longest = MOST if exported.longest_source is None else exported.longest_source - 1
    limit = int(decode.max_length_ratio * longest) + decode.max_length_offset
    if exported.longest_target is not None:
        limit = min(limit, exported.longest_target - 1)
    return {
        **search(decode),
        **choices(exported, decode.unknown),
        "max_decoding_length": limit,
    }


def is_ranked_anew(decode: Decode) -> bool:
    """Whether hypotheses are scored by a length penalty that CTranslate2 does not have."""
    return decode.beam_size > 1 and decode.alpha > 0 and decode.length_penalty == "wu"


def engine(
    trained: Trained, exported: Exported, directory: Path, precision: str
) -> CTranslate2Translator:
    """Read a directory, for the CPU and one thread."""
    from ctranslate2 import Translator as Reader

    reader = Reader(str(directory), compute_type=precision, inter_threads=1, intra_threads=1)
    return CTranslate2Translator(
        reader, exported, choices(exported, trained.settings.decode.unknown)
    )


def certify(trained: Trained, ours: Ours, exported: Exported, directory: Path) -> dict[str, Any]:
    """Compare a directory in float32 with the model; raises UserError (65) where they differ.

    Returns what was found, as plain values. Two outputs that part where our model finds both pieces
    equally likely, within LOG_PROBS, count as ties.
    """
    import ctranslate2

    made = engine(trained, exported, directory, "float32")
    difference, pieces = _difference(trained, ours, made)
    if not difference <= LOG_PROBS:
        raise UserError(
            f"log-probabilities in CTranslate2 differ by {difference:.2g}; it computes something "
            "else, so that nothing is written",
            Exit.DATA,
        )
    found: dict[str, Any] = {
        "compared_with": f"ctranslate2 {ctranslate2.__version__}",
        "lines": len(ours.samples),
        "longest_trained_source": trained.facts["longest_source"],
        "longest_source": max(len(sample.ids) for sample in ours.samples),
        "log_probs": difference,
        "pieces": pieces,
    }
    for name in SEARCHES:
        found[name], differing = _compared(ours, made, name)
        if differing:
            raise UserError(
                f"{differing[0]!r}: CTranslate2 translates it otherwise by {name}; nothing is "
                "written",
                Exit.DATA,
            )
    if not found[f"beam_{BEAM}"]["compared"]:
        log.warning("beam search was compared on no line: no translation of the samples ends; "
                    "give --samples of the source language")  # fmt: skip
    found["right_for"] = {
        "source_pieces": exported.longest_source and exported.longest_source - 1,  # null: any
        "target_pieces": exported.longest_target and exported.longest_target - 1,
    }
    found["options"] = _options(trained, exported)
    return found


def measure(trained: Trained, ours: Ours, exported: Exported, directory: Path) -> dict[str, Any]:
    """How far a directory in another precision is from the model; nothing is refused."""
    made = engine(trained, exported, directory, "default")
    difference, _ = _difference(trained, ours, made)
    found: dict[str, Any] = {"computed_in": made.translator.compute_type, "log_probs": difference}
    return found | {name: _compared(ours, made, name)[0] for name in SEARCHES}


def outputs(trained: Trained, chosen: list[SampleLine]) -> Ours:
    """Translate all samples.

    CTranslate2 takes forbidden pieces out before it computes probabilities, nmt thereafter. So
    that the searches see the same numbers, ours is given a model that never has these pieces.
    """
    longest = max(len(sample.ids) for sample in chosen)
    log.info("comparing on %s lines of up to %s pieces", len(chosen), f"{longest:,}")
    forbidden = [PAD, BOS] + [UNK] * (trained.settings.decode.unknown != "allow")
    judging = without(trained, forbidden)
    searches = {name: _search(judging, chosen, name) for name in SEARCHES}
    return Ours(chosen, searches, judging.model)


def _search(trained: Trained, chosen: Sequence[SampleLine], name: str) -> list[SampleOutput]:
    decode = replace(
        trained.settings.decode.by_beam(),
        beam_size=SEARCHES[name],
        alpha=0.0,
        max_length_ratio=RATIO,
        max_length_offset=ROOM,
        precision="float32",
        window=WINDOW,
    )
    table = trained.model.limits(training=False).target
    lines = [sample.line for sample in chosen]
    with quiet():
        found = Translator.of(trained, decode).translate(lines)
        best = [one for one, *_ in shown(found, f"{name}, by nmt", [1] * len(lines))]
    made = []
    for sample, translation in zip(chosen, best, strict=True):
        limit = int(RATIO * len(sample.ids)) + ROOM
        limit = limit if table is None else min(limit, table - 1)
        made.append(
            SampleOutput(list(translation.ids), translation.text, translation.finished, limit)
        )
    return made


def _difference(trained: Trained, ours: Ours, made: CTranslate2Translator) -> tuple[float, int]:
    """The largest difference of log-probabilities, and of how many pieces.

    Of our greedy outputs, and of made-up targets that are about as long as the sources.
    """
    most = least(trained.model.limits(training=False).target, made.exported.longest_target)
    draw = Random(2)
    drawn = [made_up(trained.target, draw, len(sample.ids)) for sample in ours.samples]
    texts = [output.text for output in ours.searches["greedy"]] + drawn
    pairs = [
        (sample, text, ids)
        for sample, text in zip([*ours.samples, *ours.samples], texts, strict=True)
        if len(ids := trained.target.ids(text)[:-1]) < (most or len(ids) + 1)
    ]
    if not pairs:
        raise UserError("no translation of the samples fits into the encoding; give others")
    given = forced.score(trained, [sample.line for sample, _, _ in pairs], [t for _, t, _ in pairs])
    theirs = made.log_probs([sample for sample, _, _ in pairs], [ids for _, _, ids in pairs])
    differences = [
        abs(a - b)
        for one, other in zip(given, theirs, strict=True)
        for a, b in zip(one.log_probs, other, strict=True)
    ]
    return max(differences), len(differences)


def _compared(
    ours: Ours, made: CTranslate2Translator, name: str
) -> tuple[dict[str, int], list[str]]:
    """How many outputs are compared, and equal piece by piece; and the lines of the others.

    At a limit the engines choose otherwise among beams that have not ended: those do not count.
    """
    beam, all_of = SEARCHES[name], ours.searches[name]
    limits = [output.limit for output in all_of]
    found = made.outputs(ours.samples, limits, beam)
    theirs = shown(found, f"{name}, by CTranslate2", [1] * len(limits))
    counts = {"finished": 0, "compared": 0, "equal": 0, "ties": 0}
    differing = []
    for sample, output, other in zip(ours.samples, all_of, theirs, strict=True):
        counts["finished"] += output.finished
        if beam > 1 and not (output.finished and len(output.ids) < output.limit):
            continue
        counts["compared"] += 1
        if output.ids == other:
            counts["equal"] += 1
        elif tied(
            ours.judge, sample.ids, (output.ids, output.finished),
            (other, len(other) < output.limit), beam,
        ):  # fmt: skip
            counts["ties"] += 1
        else:
            differing.append(sample.line)
    return counts, differing
