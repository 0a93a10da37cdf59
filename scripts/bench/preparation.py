"""Preparation: text files to a store of ids, beside sacremoses and subword-nmt used plainly."""

from dataclasses import replace
from pathlib import Path

from nmt.config.settings import Settings
from nmt.corpus.pairs import SIDES
from nmt.corpus.prepare import load
from scripts.bench import corpus, news
from scripts.bench.candidates import Candidate
from scripts.bench.rounds import Measurement, benchmark, middle, ratio
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, rates

PAIRS, FEW = 40_000, 200  # enough that `data.workers` by default starts several processes
MERGES = 8000
MILLION = 1e6
LANGUAGES = ("de", "en")
PLAIN, SAME = "over plain", "equal lines"
COLUMNS: Columns = {
    "lines/s": rates,
    "/plain": figure_of(PLAIN, "{:.2f}"),
    "s/million": lambda m: figure(_a_million(m, "seconds"), "{:,.0f}"),
    "CPU s/million": lambda m: figure(_a_million(m, "cpu_seconds"), "{:,.0f}"),
    "GB": gigabytes,
    "same output": figure_of(SAME, "{:.2%}"),
}


def parts(session: Session) -> list[BenchPart]:
    """Measure whole preparations: as many processes as threads, one process, and the plain way."""
    root, out = text_files(session, FEW if session.quick else PAIRS), session.place("plain")
    outputs = [out / side for side in SIDES]
    counts = sorted({session.threads, 1}, reverse=True)
    beside = session.worker(
        "sacremoses + subword-nmt, 1 process",
        "plain_text_worker",
        texts=[str(root / f"train.{language}") for language in LANGUAGES],
        languages=LANGUAGES,
        merges=_merges(session),
        min_frequency=settings_of(session, root).segmenter.min_frequency,
        outputs=[str(path) for path in outputs],
        threads=1,
    )
    candidates = [preparation(session, root, workers) for workers in counts]
    ours, plain = benchmark(min(session.rounds, 3), candidates, [beside], warmup=0)
    return [report(ours, plain, outputs)]


def text_files(session: Session, pairs: int) -> Path:
    """Write a corpus of text files; returns its directory."""
    root = session.place("text")
    for split, count in (("train", pairs), ("dev", 20)):
        for number, language in enumerate(LANGUAGES):
            text = news.text(count, 10 * number + len(split))
            corpus.write(root / f"{split}.{language}", text)
    return root


def settings_of(session: Session, root: Path) -> Settings:
    """The settings of nmt-prepare for the text below a directory."""
    source, target = LANGUAGES
    return session.settings(
        *("data=files", "data.max_length=10000", "segmenter=bpe", f"data.root={root}"),
        *(f"data.source_language={source}", f"data.target_language={target}"),
        f"segmenter.merges={_merges(session)}",
    )


def preparation(session: Session, root: Path, workers: int) -> Candidate:
    """nmt's preparation of the text below a directory, by `workers` processes."""
    settings = settings_of(session, root)
    cache = str(session.place("prepared"))
    settings = replace(settings, data=replace(settings.data, cache=cache, workers=workers))
    name = f"nmt, {workers} process{'es' if workers > 1 else ''}"
    return session.worker(name, "prepare_worker", settings, threads=1)


def report(ours: list[Measurement], plain: list[Measurement], outputs: list[Path]) -> BenchPart:
    """The table; `outputs` are the files that the plain way wrote."""
    measured, baseline = [*ours, *plain], plain[0]
    for m in measured:
        same = agreement(m, outputs) if m is not baseline and baseline.rounds else None
        m.figures = {PLAIN: ratio(m, baseline), SAME: same}
        for answer in m.rounds:
            answer.pop("path", None)
    notes = ["whole preparation: normalise, tokenise (Moses), learn merges, segment, write"]
    if seconds := baseline.last("parts"):
        shares = ", ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items())
        notes.append(f"the plain way, last round: {shares}")
    title = "preparation: lines of both sides"
    return BenchPart.of("preparation", title, COLUMNS, measured, notes)


def agreement(measured: Measurement, outputs: list[Path]) -> float | None:
    """The share of lines that are, in pieces, what the plain way wrote."""
    if (where := measured.last("path")) is None:
        return None
    prepared = load(Path(where))
    same = []
    for number, side in enumerate((prepared.source, prepared.target)):
        lines = outputs[number].read_text(encoding="utf-8").split("\n")[:-1]
        for i, line in enumerate(lines):
            ids = prepared.train.pair(i)[number].tolist()
            same.append(" ".join(side.vocabulary.pieces(ids)) == line)
    return sum(same) / len(same)


def _merges(session: Session) -> int:
    return 100 if session.quick else MERGES


def _a_million(measured: Measurement, clock: str) -> float | None:
    """Seconds for a million lines; the median of the rounds."""
    return middle([r[clock] / r["units"] * MILLION for r in measured.rounds])
