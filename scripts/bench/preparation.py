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
from scripts.bench.table import BenchPart, Columns, figure, figure_of, gigabytes, rates, rows_of

PAIRS, FEW = 40_000, 200  # enough that `data.workers` by default starts several processes
MERGES = 8000
LANGUAGES = ("de", "en")
PLAIN, SAME = "over plain", "equal lines"


def show_million(measured: Measurement, clock: str) -> str:
    return figure(middle([1e6 * r[clock] / r["units"] for r in measured.rounds]), "{:,.0f}")


COLUMNS: Columns = {
    "lines/s": rates,
    "/plain": figure_of(PLAIN, "{:.2f}"),
    "s/million": lambda m: show_million(m, "seconds"),
    "CPU s/million": lambda m: show_million(m, "cpu_seconds"),
    "GB": gigabytes,
    "same output": figure_of(SAME, "{:.2%}"),
}


def parts(session: Session) -> list[BenchPart]:
    """Measure whole preparations: as many processes as threads, one process, and the plain way."""
    root, out = write_text(session), session.new_directory("plain")
    settings, outputs = settings_of(session, root), [out / side for side in SIDES]
    counts = sorted({session.options.threads, 1}, reverse=True)
    plain = session.worker(
        "sacremoses + subword-nmt, 1 process",
        "prepare plainly",
        texts=[str(root / f"train.{language}") for language in LANGUAGES],
        languages=LANGUAGES,
        merges=merges_of(session),
        min_frequency=settings.segmenter.min_frequency,
        outputs=[str(path) for path in outputs],
        threads=1,
    )
    candidates = [make_nmt(session, settings, workers) for workers in counts]
    (measured,) = benchmark(min(session.options.rounds, 3), [*candidates, plain], warmup=0)
    return [report(measured, outputs)]


def merges_of(session: Session) -> int:
    return 100 if session.options.quick else MERGES


def write_text(session: Session) -> Path:
    root, pairs = session.new_directory("text"), FEW if session.options.quick else PAIRS
    for split, count in (("train", pairs), ("dev", 20)):
        for number, language in enumerate(LANGUAGES):
            text = news.text(count, 10 * number + len(split))
            corpus.write(root / f"{split}.{language}", text)
    return root


def settings_of(session: Session, root: Path) -> Settings:
    source, target = LANGUAGES
    return session.settings(
        *("data=files", "data.max_length=10000", "segmenter=bpe", f"data.root={root}"),
        *(f"data.source_language={source}", f"data.target_language={target}"),
        f"segmenter.merges={merges_of(session)}",
    )


def make_nmt(session: Session, settings: Settings, workers: int) -> Candidate:
    cache = str(session.new_directory("prepared"))
    settings = replace(settings, data=replace(settings.data, cache=cache, workers=workers))
    name = f"nmt, {workers} process{'es' if workers > 1 else ''}"
    return session.worker(name, "prepare", settings, threads=1)


def report(measured: list[Measurement], outputs: list[Path]) -> BenchPart:
    """The table; `outputs` are the files that the plain way, the last one, wrote."""
    *_, plain = measured
    for m in measured:
        path = m.last("path") if plain.rounds else None
        same = share_of_equal_lines(Path(path), outputs) if path else None
        m.figures = {PLAIN: ratio(m, plain), SAME: same}
        for answer in m.rounds:
            answer.pop("path", None)
    notes = ["whole preparation: normalise, tokenise (Moses), learn merges, segment, write"]
    if seconds := plain.last("parts"):
        shares = ", ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items())
        notes.append(f"the plain way, last round: {shares}")
    title, facts = "preparation: lines of both sides", {"entries": [m.to_json() for m in measured]}
    return BenchPart("preparation", title, list(COLUMNS), rows_of(COLUMNS, measured), notes, facts)


def share_of_equal_lines(path: Path, outputs: list[Path]) -> float:
    """The share of lines of a prepared corpus that are, in pieces, what the plain way wrote."""
    prepared = load(path)
    same = []
    for number, side in enumerate((prepared.source, prepared.target)):
        lines = outputs[number].read_text(encoding="utf-8").split("\n")[:-1]
        for i, line in enumerate(lines):
            ids = prepared.train.pair(i)[number].tolist()
            same.append(" ".join(side.vocabulary.pieces(ids)) == line)
    return sum(same) / len(same)
