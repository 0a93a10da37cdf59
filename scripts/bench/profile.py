"""The profile of a training step: the share of each kind of work."""

from statistics import median

from nmt import config
from scripts.bench.places import Setup
from scripts.bench.profiled import ORDER
from scripts.bench.rounds import race
from scripts.bench.table import Part, figure
from scripts.bench.training import course, label, ours, size


def part(chosen: dict[tuple[str, str], config.Settings], setup: Setup) -> Part:
    """Profile the training of each choice of settings, by name and precision."""
    first = next(iter(chosen.values()))
    on = course(first, setup)
    contestants = [
        ours(label(*name), each, on, setup, "scripts.bench.profiled")
        for name, each in chosen.items()
    ]
    entries = race(contestants, min(setup.rounds, 3))
    rows = []
    for kind in ORDER:
        shares = [[each["shares"][kind] for each in entry.rounds] for entry in entries]
        rows.append([kind, *(figure(median(s) if s else None, "{:.1%}") for s in shares), ""])
    return Part(
        "profile",
        f"profile of a training step: {size(first)}, vocabulary {on.vocab}",
        ["share of the time", *(entry.name for entry in entries), ""],
        rows,
        [
            "residuals, activations, copies and gradients' sums are `other`",
            *(f"{entry.name}: {entry.failed}" for entry in entries if entry.failed),
        ],
        {"entries": [entry.to_json() for entry in entries]},
    )
