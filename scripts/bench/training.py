"""Training: the product's own updates beside those of other libraries, on the same batches."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, NamedTuple

from nmt import config
from scripts.bench import corpus, setups
from scripts.bench.corpus import Corpus
from scripts.bench.places import Setup, own, peer
from scripts.bench.rounds import Absent, Contestant, Entry, Worker, race, ratio, write_job
from scripts.bench.table import GIGA, Part, figure, ranged

PEERS = ("xtransformers", "marian_hf")
VOCAB = 8000
UPDATES = 3  # of a round
WARMUP = 1  # rounds
WHY = ""  # the column that says why a contestant did not run
COLUMNS = [
    *("", "target tokens/s", "/f32 peer", "/peer", "MFU", "by CPU s", "of f32", "s/update", "GB"),
    WHY,
]
MEANING = (
    "MFU: model operations over the matmul peak (greatest of the rounds) in the same "
    "number format, by wall clock and by CPU seconds; of f32: over the float32 peak",
    "/f32 peer, /peer: over the fastest peer in float32, and in the race's precision; "
    "medians over the same rounds",
)
_numbers = itertools.count()


class Course(NamedTuple):
    """One corpus, on which contestants are trained."""

    corpus: Corpus
    vocab: int
    updates: int  # of a round


def course(
    settings: config.Settings,
    setup: Setup,
    *,
    vocab: int | None = None,
    updates: int | None = None,
    **kind: Any,
) -> Course:
    """Make the corpus for as many rounds as there will be; `kind` as `corpus.make` has it."""
    quick = setup.quick
    vocab = vocab or (200 if quick else VOCAB)
    updates = updates or (1 if quick else UPDATES)
    made = corpus.make(
        setup.directory / f"corpus-{next(_numbers)}",
        settings,
        vocab,
        (setup.rounds + WARMUP) * updates,
        **({"pairs": 400} if quick else {}) | kind,
    )
    return Course(made, vocab, updates)


def ours(
    name: str,
    settings: config.Settings | str,
    on: Course,
    setup: Setup,
    module: str = "scripts.bench.trainee",
) -> Contestant:
    """The product's trainer with these settings; one that is absent where they say why."""
    if isinstance(settings, str):
        return Absent(name, settings)
    place = setup.directory / f"ours-{next(_numbers)}"
    job = write_job(
        place / "job.json",
        settings=config.freeze(settings),
        store=str(on.corpus.store),
        vocab=on.vocab,
        tokens=on.corpus.tokens,
        updates=on.updates,
        run=str(place / "run"),
    )
    return Worker(name, own(module, job), setup.threads)


def other(
    settings: config.Settings,
    name: str,
    precision: str,
    options: setups.Options,
    on: Course,
    setup: Setup,
) -> Contestant:
    """Another library, set up in one way, with a model of the same size."""
    job = write_job(
        setup.directory / f"{name}-{next(_numbers)}.json",
        part="training",
        batches=str(on.corpus.batches),
        model=asdict(settings.model),
        vocab=on.vocab,
        longest=corpus.LONGEST + 28,
        precision=precision,
        device=setup.device,
        threads=setup.threads,
        updates=on.updates,
        label_smoothing=settings.optim.label_smoothing,
        options=options,
    )
    return peer(name, label(name, precision), job, setup)


def best_of(
    settings: config.Settings, name: str, precision: str, on: Course, setup: Setup
) -> setups.Options:
    """The set-up in which another library trains fastest here."""
    return setups.fastest(
        lambda options: other(settings, name, precision, options, on, setup),
        _all(name, setup),
        setup.quick,
    )


def label(name: str, precision: str) -> str:
    """The name of a contestant in the table."""
    return f"{name} {precision}"


def peak(precision: str, setup: Setup) -> Contestant:
    """The matmul peak, measured in the same rounds as those that it is compared with."""
    job = write_job(
        setup.directory / f"peak-{precision}.json",
        precision=precision,
        threads=setup.threads,
        device=setup.device,
        quick=setup.quick,
    )
    return Worker(label("matmul", precision), own("scripts.bench.peak", job), setup.threads)


def part(chosen: dict[tuple[str, str], config.Settings], setup: Setup) -> Part:
    """Measure the training of each choice of settings, by name and precision, and of the peers.

    All have the same model size and batches. Each precision is a race of its own, so that few
    processes fill the memory at once; the best peer in float32 takes part in all of them.
    """
    settings = next(iter(chosen.values()))
    on = course(settings, setup)
    heats: list[Heat] = []
    plain: tuple[str, setups.Options] | None = None  # the best peer in float32
    for precision in sorted({name[1] for name in chosen}, reverse=True):
        mine = [
            ours(label(*name), each, on, setup)
            for name, each in chosen.items()
            if name[1] == precision
        ]
        chosen_setups = {
            name: best_of(settings, name, precision, on, setup)
            for name in (PEERS if setup.peers else ())
        }
        beside = [
            other(settings, name, precision, options, on, setup)
            for name, options in chosen_setups.items()
        ]
        again = [] if plain is None else [other(settings, plain[0], "float32", plain[1], on, setup)]
        shares = dict.fromkeys(["float32", precision])
        field = [*mine, *beside, *again, *(peak(each, setup) for each in shares)]
        entries = race(field, setup.rounds, WARMUP)
        cut = len(field) - len(shares)
        found = entries[len(mine) : cut - len(again)]
        best = fastest(found)
        reference = entries[cut - 1] if again else best if precision == "float32" else None
        tops = dict(zip(shares, entries[cut:], strict=True))
        heats.append(Heat(precision, entries[:cut], best, reference, tops, chosen_setups))
        if precision == "float32" and best is not None:
            plain = (name := best.name.split()[0]), chosen_setups[name]
    return report(heats, settings, on, setup)


class Heat(NamedTuple):
    """The race of one precision."""

    precision: str
    entries: list[Entry]
    best: Entry | None  # the fastest peer in this precision
    plain: Entry | None  # the fastest peer in float32, as it ran in this race
    tops: dict[str, Entry]  # matmul peaks by precision
    setups: dict[str, setups.Options]  # of the peers


def report(heats: list[Heat], settings: config.Settings, on: Course, setup: Setup) -> Part:
    """The table of all races."""
    rows, found, notes = [], [], list[str]()
    for heat in heats:
        for entry in heat.entries:
            row, facts = told(entry, heat, on)
            rows.append(row)
            found.append(facts)
            if (differs := entry.facts.get("differs")) and heat is heats[0]:
                notes.append(f"{entry.name.split()[0]}: {differs}")
        notes += [
            f"{label(name, heat.precision)}: {setups.described(options, _all(name, setup))}"
            for name, options in heat.setups.items()
        ]
        shown = (f"{name} {giga(top)} GFLOP/s" for name, top in heat.tops.items())
        notes.append(f"matmul peak in the race of {heat.precision}: {', '.join(shown)}")
    tokens, real = on.corpus.tokens, on.corpus.real
    shares = (
        f"share of real tokens: target {real[1]:.3f}, source {real[0]:.3f}; "
        f"{sum(tokens) / len(tokens):.0f} real target tokens an update"
    )
    return Part(
        "training",
        f"training: {size(settings)}, vocabulary {on.vocab}, "
        f"{settings.trainer.batch_tokens} tokens a batch ({settings.trainer.batch_count})",
        COLUMNS,
        rows,
        [*MEANING, shares, *notes],
        {
            "model": asdict(settings.model),
            "batch_tokens": settings.trainer.batch_tokens,
            "vocabulary": on.vocab,
            "updates of a round": on.updates,
            "share of real tokens": {"source": real[0], "target": real[1]},
            "entries": found,
            "setups": {h.precision: h.setups for h in heats},
            "peaks": {h.precision: {n: t.to_json() for n, t in h.tops.items()} for h in heats},
            "notes": notes,
        },
    )


def _all(name: str, setup: Setup) -> list[setups.Options]:
    return setups.candidates(name, "training", setup.threads, setup.device)


def told(entry: Entry, heat: Heat, on: Course) -> tuple[list[str], dict[str, Any]]:
    """What one contestant has reached: its row below COLUMNS, and all figures by name."""
    shares = {name: utilisation(entry, top, on) for name, top in heat.tops.items()}
    cpu = {name: utilisation(entry, top, on, "cpu_seconds") for name, top in heat.tops.items()}
    beside, same = over(entry, heat.plain), over(entry, heat.best)
    memory = entry.last("gpu_bytes") or entry.last("peak_bytes")
    each = median(entry.seconds) / on.updates if entry.rounds else None
    precision = entry.name.split()[-1]
    row = [
        entry.name,
        ranged(entry.rates),
        figure(beside, "{:.2f}"),
        figure(same, "{:.2f}"),
        figure(shares[precision], "{:.1%}"),
        figure(cpu[precision], "{:.1%}"),
        figure(shares["float32"], "{:.1%}"),
        figure(each, "{:.3f}"),
        figure(memory and memory / GIGA, "{:.2f}"),
        entry.failed or "",
    ]
    return row, entry.to_json() | {
        "race": heat.precision,
        "share of the peak": shares,
        "share of the peak, by CPU seconds": cpu,
        "seconds of an update": each,
        "over the best float32 peer": beside,
        "over the best peer of the race's precision": same,
    }


def size(settings: config.Settings) -> str:
    """A model's size in a few words."""
    m = settings.model
    return (
        f"{m.encoder_layers}+{m.decoder_layers} layers, dim {m.dim}, ff {m.feedforward_dim}, "
        f"{m.heads} heads"
    )


def utilisation(entry: Entry, top: Entry, on: Course, clock: str = "seconds") -> float | None:
    """Model operations per second over the greatest peak of all rounds; the median of rounds.

    With clock="cpu_seconds" both are per second of a core, which other processes disturb less.
    """
    work, n = on.corpus.flops, on.updates
    peaks = [each["units"] / each[clock] for each in top.rounds if each[clock] > 0]
    shares = []
    for number, each in enumerate(entry.rounds, WARMUP):
        done = sum(work[i % len(work)] for i in range(number * n, (number + 1) * n))
        if each[clock] > 0 and peaks:
            shares.append(done / each[clock] / max(peaks))
    return median(shares) if shares else None


def fastest(entries: Sequence[Entry]) -> Entry | None:
    """The entry of the highest median rate; None if none ran."""
    ran = [entry for entry in entries if entry.rounds]
    return max(ran, key=lambda entry: median(entry.rates), default=None)


def over(entry: Entry, other: Entry | None) -> float | None:
    """The ratio of two entries' rates; None where one of them did not run."""
    return None if other is None else ratio(entry, other)


def giga(entry: Entry) -> str:
    """The median rate in billions per second."""
    return figure(median(entry.rates) / GIGA if entry.rounds else None, "{:,.0f}")
