"""Decoding: beam search of a forced length through the product's Translator, and through peers."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from nmt import config
from scripts.bench import corpus, flops, setups, weights
from scripts.bench.places import SCRIPTS, Setup, own, peer, python_of
from scripts.bench.rounds import (
    Absent,
    Command,
    Contestant,
    Entry,
    Worker,
    race,
    write_job,
)
from scripts.bench.table import GIGA, Part, figure, ranged
from scripts.bench.training import VOCAB, fastest, giga, label, over, peak, size

PEERS = {"ctranslate2_": ("float32", "int8"), "sockeye_": ("float32", "int8"),
         "marian_hf": ("float32",)}  # fmt: skip
PYTORCH = ("sockeye_", "marian_hf")
SENTENCES, STEPS = 256, 32
WHOLE = 64  # sentences of a whole process
WORDS = ("decode.max_length_ratio=0", f"decode.max_length_offset={STEPS}")

Choice = config.Settings | str
"""Settings, or why there are none."""


class Task(NamedTuple):
    """What is translated, and by what."""

    model: Path
    weights: Path
    lines: dict[int, Path]  # sentences -> file of so many
    sources: dict[int, list[list[int]]]  # the same in ids, eos included
    settings: config.Settings
    vocab: int
    whole: int  # sentences of a whole process


def task(settings: config.Settings, setup: Setup) -> Task:
    """Write a model and the lines."""
    vocab = 200 if setup.quick else VOCAB
    many, few = (8, 4) if setup.quick else (SENTENCES, WHOLE)
    place = setup.directory / "decoding"
    place.mkdir()
    model, arrays = weights.make(place, settings, vocab)
    side, lines, sources = corpus.side(vocab), {}, {}
    every = corpus.text(many, vocab, settings.seed)
    for count in (many, few):
        lines[count] = place / f"lines-{count}"
        some = every[:count]
        lines[count].write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
        sources[count] = [side.ids(line) for line in some]
    return Task(model, arrays, lines, sources, settings, vocab, few)


def part(chosen: dict[tuple[str, str], Choice], setup: Setup) -> Part:
    """Measure each choice of decode settings, by name and precision; all share the model.

    Steady rounds first, then whole processes on a few sentences.
    """
    first = next(each for each in chosen.values() if not isinstance(each, str))
    on = task(first, setup)
    many = max(on.lines)
    steady: list[Contestant] = [
        _ours(label(*name), choice, many, on, setup) for name, choice in chosen.items()
    ]
    wholes: list[Contestant] = [
        _whole(label(*name), choice, on, setup) for name, choice in chosen.items()
    ]
    notes = []
    for name, precisions in PEERS.items() if setup.peers else ():
        options = setups.candidates(name, "decoding", setup.threads, setup.device)
        for precision in precisions:
            for field, make in ((steady, _peer), (wholes, _whole_peer)):
                build = partial(make, name, precision, options, on, setup)
                best = setups.fastest(build, options, setup.quick)
                field.append(build(best))
                kind = "steady" if field is steady else "whole"
                words = setups.described(best, options)
                notes.append(f"{label(name, precision)}, {kind}: {words}")
    entries = race([*steady, peak("float32", setup)], setup.rounds)
    *entries, top = entries
    return report(
        entries,
        top,
        race(wholes, min(setup.rounds, 3), warmup=0 if setup.quick else 1),
        len(chosen),
        on,
        notes,
    )


def _ours(name: str, choice: Choice, count: int, on: Task, setup: Setup) -> Contestant:
    if isinstance(choice, str):
        return Absent(name, choice)
    job = write_job(
        setup.directory / f"{name.replace(' ', '-')}.json",
        model=str(on.model),
        lines=str(on.lines[count]),
        settings=config.freeze(choice),
        threads=setup.threads,
        device=setup.device,
    )
    return Worker(name, own("scripts.bench.translating", job), setup.threads)


def _whole(name: str, choice: Choice, on: Task, setup: Setup) -> Contestant:
    """The command that a user types, on a few sentences."""
    if isinstance(choice, str):
        return Absent(name, choice)
    told = asdict(choice.decode)
    known = asdict(on.settings.decode)
    words = [f"decode.{key}={value}" for key, value in told.items() if value != known[key]]
    argv = [
        *(sys.executable, "-m", "nmt.cli.translate", str(on.model), str(on.lines[on.whole])),
        *("-o", str(setup.directory / "whole.txt"), "--device", setup.device),
        *("--threads", str(setup.threads), *words),
    ]
    return Command(name, argv, setup.threads, on.whole * STEPS)


def _job(
    name: str,
    precision: str,
    number: int,
    options: setups.Options,
    count: int,
    on: Task,
    setup: Setup,
) -> str:
    """The job of a peer in one of its set-ups, with a place of its own for the converted model."""
    stem = f"{name}-{precision}-{number}"
    return write_job(
        setup.directory / f"{stem}-{count}.json",
        part="decoding",
        weights=str(on.weights),
        converted=str(setup.directory / stem),
        model=asdict(on.settings.model),
        vocab=on.vocab,
        longest=corpus.LONGEST + 28,
        sources=on.sources[count],
        steps=STEPS,
        beam=on.settings.decode.beam_size,
        alpha=on.settings.decode.alpha,
        precision=precision,
        threads=setup.threads,
        device=setup.device,
        once=count == on.whole,
        options=options,
    )


def _peer(
    name: str,
    precision: str,
    candidates: Sequence[setups.Options],
    on: Task,
    setup: Setup,
    options: setups.Options,
) -> Contestant:
    job = _job(name, precision, candidates.index(options), options, max(on.lines), on, setup)
    return peer(name, label(name, precision), job, setup)


def _whole_peer(
    name: str,
    precision: str,
    candidates: Sequence[setups.Options],
    on: Task,
    setup: Setup,
    options: setups.Options,
) -> Contestant:
    python = None if setup.peers is None else python_of(name, setup.peers)
    if python is None:
        return Absent(label(name, precision), "not installed")
    job = _job(name, precision, candidates.index(options), options, on.whole, on, setup)
    argv = [str(python), str(SCRIPTS / f"{name}.py"), job]
    return Command(label(name, precision), argv, setup.threads, on.whole * STEPS)


def report(
    entries: list[Entry],
    top: Entry,
    wholes: list[Entry],
    count: int,
    on: Task,
    set_up: Sequence[str],
) -> Part:
    """The table; the first `count` entries are the product's. `set_up`: the peers, in words."""
    by_name = {entry.name: entry for entry in entries}
    ct2 = {p: by_name.get(label("ctranslate2_", p)) for p in ("float32", "int8")}
    torch_peers = [e for e in entries if e.name.split()[0] in PYTORCH and e.rounds]
    best = fastest(torch_peers)
    mine = flops.sizes(on.settings.model, on.vocab)
    work = flops.searching(
        mine, list(map(len, on.sources[max(on.lines)])), STEPS, on.settings.decode.beam_size
    )
    rows, found = [], []
    digests: dict[str, list[int] | None] = {}
    for entry, whole in zip(entries, wholes, strict=True):
        digests[entry.name] = entry.last("digests")
        for each in entry.rounds:
            each.pop("digests", None)
        ratios = {
            "over the best PyTorch peer": over(entry, best),
            "over CTranslate2 float32": over(entry, ct2["float32"]),
            "over CTranslate2 int8": over(entry, ct2["int8"]),
        }
        shares = [work / seconds / max(top.rates) for seconds in entry.seconds if top.rounds]
        share = median(shares) if shares else None
        spent = median(whole.seconds) if whole.rounds else None
        memory = entry.last("gpu_bytes") or entry.last("peak_bytes")
        found.append(
            entry.to_json()
            | ratios
            | {"share of the float32 peak": share, "whole": whole.to_json()}
        )
        rows.append(
            [
                entry.name,
                ranged(entry.rates),
                *(figure(value, "{:.2f}") for value in ratios.values()),
                figure(share, "{:.1%}"),
                figure(memory and memory / GIGA, "{:.2f}"),
                ranged(whole.seconds, "{:.2f}"),
                figure(spent and on.whole * STEPS / spent, "{:,.0f}"),
                entry.failed or whole.failed or "",
            ]
        )
    notes = [
        f"steady: {max(on.lines)} sentences of mean {corpus.MEAN} pieces in a process that runs; "
        f"whole: {on.whole} sentences, from the start of the process to its end",
        f"matmul peak in the same rounds: float32 {giga(top)} GFLOP/s",
        *_agreement([entry.name for entry in entries[:count]], digests),
        *set_up,
        *(f"{e.name}: {e.facts['differs']}" for e in entries if e.facts.get("differs")),
    ]
    return Part(
        "decoding",
        f"decoding: {size(on.settings)}, vocabulary {on.vocab}, beam "
        f"{on.settings.decode.beam_size}, {STEPS} target tokens forced",
        ["", "steady tokens/s", "/torch", "/ct2", "/ct2 int8", "of f32", "GB",
         f"whole {on.whole}, s", "tokens/s", ""],
        rows,
        notes,
        {"model": asdict(on.settings.model), "beam": on.settings.decode.beam_size,
         "sentences": max(on.lines), "entries": found, "peak": top.to_json(), "notes": notes},
    )  # fmt: skip


def _agreement(names: Sequence[str], digests: dict[str, list[int] | None]) -> list[str]:
    """How many translations are CTranslate2's, to the last token: the same work was done."""
    notes = []
    for name in names:
        mine = digests[name]
        theirs = digests.get(label("ctranslate2_", name.split()[-1]))
        if mine and theirs:
            same = sum(a == b for a, b in zip(mine, theirs, strict=True))
            notes.append(f"{name}: {same} of {len(mine)} translations equal CTranslate2's")
    return notes


def forced(steps: int) -> tuple[str, str]:
    """Words that make each translation so many tokens long."""
    return "decode.max_length_ratio=0", f"decode.max_length_offset={steps}"


def alone(name: str, settings: config.Settings, pieces: int, setup: Setup) -> Contestant:
    """The Translator on sentences of so many pieces, one by one."""
    vocab = 200 if setup.quick else VOCAB
    place = setup.directory / name.replace(" ", "-")
    place.mkdir()
    model, _ = weights.make(place, settings, vocab)
    line = " ".join(corpus.side(vocab).vocabulary.to_json()[:pieces])
    lines = place / "lines"
    lines.write_text(f"{line}\n" * 4, encoding="utf-8")
    single = replace(settings, decode=replace(settings.decode, window=1))
    on = Task(model, Path(), {4: lines}, {}, settings, vocab, 0)
    return _ours(name, single, 4, on, setup)
