"""The bench on a GPU, within minutes: sizes, lengths up to 4096, decoding."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nmt import config
from scripts.bench import decoding
from scripts.bench.places import Setup
from scripts.bench.rounds import Contestant, Entry, race
from scripts.bench.table import GIGA, Part, figure, ranged
from scripts.bench.training import course, label, ours, over, peak, utilisation

MINUTES = 8.0
VOCAB = 32_000
LENGTHS = (25, 64, 128, 256, 512, 1024, 2048, 4096)
SIZES = ("base", "big")
Attempt = Callable[..., config.Settings | str]


class Heat(NamedTuple):
    """Choices that are compared with the first of them."""

    title: str
    choices: dict[str, config.Settings | str]
    kind: dict[str, Any]  # of corpus


def heats(attempt: Attempt, quick: bool) -> Iterator[Heat]:
    """What is measured, the most important first; `attempt(words)` makes settings."""
    tokens = 400 if quick else 25_000
    for size in SIZES:
        own = () if quick else (f"model={size}", f"trainer.batch_tokens={tokens}")
        lower = (*own, "trainer.precision=bfloat16")
        yield Heat(
            f"training, {'tiny' if quick else size}, {tokens} tokens",
            {
                "bfloat16": attempt(*lower),
                "bfloat16 relative": attempt(*lower, "encoding=relative"),
                "float32": attempt(*own, "trainer.precision=float32"),
            },
            {},
        )
    for length in LENGTHS[:2] if quick else LENGTHS:
        many = (2 if quick else max(1, 16_384 // length)) * (length + 1)
        sized = () if quick else ("model=base",)
        words = (*sized, f"trainer.batch_tokens={many}", "trainer.precision=bfloat16")
        yield Heat(
            f"length {length}, {'tiny' if quick else 'base'}",
            {
                "bfloat16": attempt(*words),
                "bfloat16 relative": attempt(*words, "encoding=relative"),
            },
            {"mean": length, "equal": True, "pairs": 64 if quick else 4096},
        )


def part(attempt: Attempt, setup: Setup, minutes: float = MINUTES) -> list[Part]:
    """Run heat after heat while there is time; what was left out stands in the notes."""
    ends = time.monotonic() + 60 * minutes
    rows, found, notes = [], [], []
    for heat in heats(attempt, setup.quick):
        if time.monotonic() > ends:
            notes.append(f"{heat.title}: left out, as the {minutes:g} minutes were over")
            continue
        more_rows, more = _run(heat, setup)
        rows += more_rows
        found.append(more)
    table = Part(
        "gpu training",
        f"training on {setup.device}",
        ["", "target tokens/s", "/first", "MFU", "s/update", "GB", ""],
        rows,
        ["MFU: model operations over the matmul peak in the same number format and rounds", *notes],
        {"heats": found, "notes": notes},
    )
    if time.monotonic() > ends:
        return [table]
    words = () if setup.quick else ("model=base",)
    chosen = {
        ("nmt", precision): attempt(*words, *decoding.WORDS, f"decode.precision={precision}")
        for precision in ("float32", "bfloat16")
    }
    return [table, decoding.part(chosen, setup)]


def _run(heat: Heat, setup: Setup) -> tuple[list[list[str]], dict[str, Any]]:
    """The rows of one heat, and its figures."""
    able = [each for each in heat.choices.values() if not isinstance(each, str)]
    if not able:
        why = "; ".join(dict.fromkeys(str(each) for each in heat.choices.values()))
        return [[heat.title, "-", "-", "-", "-", "-", why]], {"title": heat.title, "failed": why}
    on = course(able[0], setup, vocab=200 if setup.quick else VOCAB, updates=2, **heat.kind)
    contestants: list[Contestant] = [
        ours(name, each, on, setup) for name, each in heat.choices.items()
    ]
    precisions = dict.fromkeys(name.split()[0] for name in heat.choices)
    contestants += [peak(precision, setup) for precision in precisions]
    entries = race(contestants, setup.rounds)
    cut = len(heat.choices)
    tops = dict(zip(precisions, entries[cut:], strict=True))
    rows: list[list[str]] = []
    told: list[dict[str, Any]] = []
    for entry in entries[:cut]:
        share = utilisation(entry, tops[entry.name.split()[0]], on)
        beside = over(entry, entries[0])
        rows.append(_row(heat, entry, beside, share, on.updates))
        told.append(entry.to_json() | {"over the first": beside, "share of the peak": share})
    peaks = {name: top.to_json() for name, top in tops.items()}
    return rows, {"title": heat.title, "entries": told, "peaks": peaks}


def _row(
    heat: Heat, entry: Entry, beside: float | None, share: float | None, updates: int
) -> list[str]:
    seconds = sorted(entry.seconds)[len(entry.rounds) // 2] / updates if entry.rounds else None
    memory = entry.last("gpu_bytes") or entry.last("peak_bytes")
    return [
        label(heat.title + ":", entry.name),
        ranged(entry.rates),
        figure(beside, "{:.2f}"),
        figure(share, "{:.1%}"),
        figure(seconds, "{:.4f}"),
        figure(memory and memory / GIGA, "{:.2f}"),
        entry.failed or "",
    ]
