"""Every encoding's training step over that of one to compare with: time and memory."""

from statistics import median
from typing import Any

from nmt import build, config
from scripts.bench import machine
from scripts.bench.places import Setup
from scripts.bench.rounds import Entry, race, ratio
from scripts.bench.table import GIGA, Part, figure
from scripts.bench.training import course, ours, size

EACH = 2.5 * GIGA  # bytes that a contestant takes at most; the small model, 100 tokens
MOST = 9  # contestants beside the one they are compared with: more would wait long
LENGTHS: dict[str, dict[str, Any]] = {
    "mean 26": {},
    "100 tokens": {"mean": 99, "equal": True},  # and eos
}
PAIRS = 4000


def part(
    baseline: tuple[str, config.Settings], chosen: dict[str, config.Settings | str], setup: Setup
) -> Part:
    """Measure each choice against the baseline, at two lengths of sentences.

    A choice that cannot be is a string that says why.
    """
    name, plain = baseline
    room = at_once(machine.memory())
    found: dict[str, dict[str, Entry]] = {}
    beside: dict[str, dict[str, Entry]] = {}
    for length, kind in LENGTHS.items():
        pairs = {} if setup.quick else {"pairs": PAIRS}
        for start in range(0, len(chosen), room):
            group = list(chosen.items())[start : start + room]
            columns = frozenset[str]().union(*(columns_of(each) for _, each in group))
            on = course(plain, setup, updates=1, columns=frozenset(), **pairs, **kind)
            own = course(plain, setup, updates=1, columns=columns, **pairs, **kind)
            contestants = [ours(name, plain, on, setup)]
            contestants += [ours(label, each, own, setup) for label, each in group]
            first, *entries = race(contestants, setup.rounds)
            for entry in entries:
                found.setdefault(entry.name, {})[length] = entry
                beside.setdefault(entry.name, {})[length] = first
    return report(name, plain, found, beside)


def at_once(memory: int) -> int:
    """How many choices wait for their turns beside the baseline, with so many bytes of memory."""
    return max(1, min(MOST, int(memory / EACH) - 1))


def columns_of(settings: config.Settings | str) -> frozenset[str]:
    """The columns beside the source that a model with these settings reads."""
    if isinstance(settings, str):
        return frozenset()
    return frozenset(build.outline(settings, 8, 8).columns)


def report(
    name: str,
    plain: config.Settings,
    found: dict[str, dict[str, Entry]],
    beside: dict[str, dict[str, Entry]],
) -> Part:
    """The table: time and memory over the baseline of the same race."""
    rows, told = [], []
    for label, entries in found.items():
        row, failed = [label], ""
        each: dict[str, Any] = {"name": label}
        for length, entry in entries.items():
            first = beside[label][length]
            speed = ratio(first, entry) if entry.rounds and first.rounds else None
            seconds = median(entry.seconds) if entry.rounds else None
            bytes_ = entry.last("gpu_bytes") or entry.last("peak_bytes")
            base = first.last("gpu_bytes") or first.last("peak_bytes")
            more = bytes_ / base if bytes_ and base else None
            row += [figure(speed, "{:.2f}"), figure(seconds, "{:.3f}"),
                    figure(more, "{:.2f}"), figure(bytes_ and bytes_ / GIGA, "{:.2f}")]  # fmt: skip
            failed = failed or entry.failed or first.failed or ""
            each[length] = entry.to_json() | {"time over": speed, "memory over": more}
        rows.append([*row, failed])
        told.append(each)
    head = [f"{what}, {length}" for length in LENGTHS for what in ("time", "s", "memory", "GB")]
    return Part(
        "encodings",
        f"a training step of each encoding over one of {name}: {size(plain)}, "
        f"{plain.trainer.batch_tokens} tokens a batch",
        ["", *head, ""],
        rows,
        ["time and memory: over those of the same rounds with " + name],
        {"baseline": name, "entries": told},
    )
