"""From text files to a prepared corpus: scan, clean, learn, number, store; once for all runs.

A prepared corpus lies in <cache>/<name>-<fingerprint>; the fingerprint covers the content of the
files and every setting that matters, so that a directory found there is the one to use.
"""

import importlib.metadata
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import nmt
from nmt import config
from nmt.data import cache, plain, stages
from nmt.data.clean import CleanedChunk, CleanTask, ColumnChunk, clean
from nmt.data.heldout import held_out
from nmt.data.learn import learn_bpe_sides, learn_unigram_sides
from nmt.data.number import NumberedChunk, NumberTask, number
from nmt.data.parallel import Pool, cores
from nmt.data.progress import shown
from nmt.data.report import KEPT, log_corpus, no_tally, split_report, summary
from nmt.data.scan import CHUNK, SPLITS, ScannedPair, scan, scan_files, unpacked
from nmt.data.side import Side
from nmt.data.store import SIDES, PairStore, Writer, id_type, write_json
from nmt.data.tokenizer import Tokenizer, warn_of_unknown
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)
FORMAT = 5  # raise it when the same input comes to give another prepared corpus
FACTS = "facts.json"
# settings that say where text lies or how fast it is prepared, not what it becomes
ELSEWHERE = (
    {"name", "root", "cache", "workers", "columns", "dev_lines"}
    | {"join", "join_share", "join_length", "join_within"}  # lines are joined in training
    | {"bpe_dropout", "subword_alpha", "subword_nbest"}  # and segmented at random
    | {f"{split}_{side}" for split in ("train", "dev", "test") for side in SIDES}
)
FEW_LINES = 30_000  # with fewer, starting processes takes longer than they save
LIBRARIES = ("numpy", "sacremoses", "sentencepiece", "subword-nmt")


Segmenter: TypeAlias = config.BpeLearning | config.UnigramLearning | config.ImportedSegmenter
Sides: TypeAlias = Sequence[Side]  # source and target


class Prepared(NamedTuple):
    """A corpus ready to train on."""

    path: Path
    train: PairStore
    dev: PairStore
    source: Side
    target: Side
    facts: dict[str, Any]


def prepare(data: config.Data, segmenter: Segmenter, sides: Sides | None = None) -> Prepared:
    """Prepare a corpus, or take the prepared one if there is one.

    With `sides`, those of a trained model, nothing is learned of the text: it gets their ids, and
    is normalised as they do it; `segmenter` only says what they are. Raises UserError: 66 if a file
    is missing, 65 if its content cannot be used, 73 or 74 if the cache cannot be written.
    """
    named, data = data, held_out(data)
    scanned = scan_files(data)
    digest = _fingerprint(data, segmenter, sides, scanned)
    final = Path(data.cache) / f"{data.name}-{digest[:12]}"
    if wrong := _damage(final, digest):
        with cache.locked(final, wrong):
            log_corpus(named)
            if wrong := _damage(final, digest):  # nobody made it while we waited
                if final.exists():
                    log.warning("%s; the corpus is prepared anew", wrong)
                with cache.fresh(final, _inputs(digest)) as directory:
                    _build(data, segmenter, sides, scanned, directory, digest)
    else:
        log_corpus(named)
    return load(final)


def _damage(path: Path, fingerprint: str) -> str | None:
    """Say what is wrong with a prepared corpus; None if it is just what was prepared."""
    if wrong := cache.damage(path):
        return wrong
    if plain.read_json(path / FACTS)["fingerprint"] != fingerprint:
        return f"{path}: holds another corpus"
    return None


def fingerprint(data: config.Data, segmenter: Segmenter, sides: Sides | None = None) -> str:
    """Tell which corpus this is, by the content of its files and each setting that matters.

    All text is read for it, prepared or not: nothing less shows that none of it has changed.
    Raises UserError: 66 if a file is missing, 65 if its content cannot be used.
    """
    data = held_out(data)
    return _fingerprint(data, segmenter, sides, scan_files(data))


def _inputs(fingerprint: str) -> str:
    """What parts of a preparation are made from: another program makes all of them anew."""
    return json.dumps([fingerprint, nmt.__version__, CHUNK, _versions()])


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def _fingerprint(
    data: config.Data, segmenter: Segmenter, sides: Sides | None, scanned: dict[str, ScannedPair]
) -> str:
    per = config.columns_of(data)
    given = {} if sides is None else {"sides": [side.to_json() for side in sides]}
    return cache.fingerprint(
        {
            "format": FORMAT,
            "data": {key: v for key, v in asdict(data).items() if key not in ELSEWHERE},
            "segmenter": asdict(segmenter),
            "toy": _toy_sample() if isinstance(data, config.Toy) else None,
            "files": {split: [p.source.sha256, p.target.sha256] for split, p in scanned.items()},
            "columns": {
                split: [[name, per[name], column.sha256] for name, column in p.columns.items()]
                for split, p in scanned.items()
            },
            **given,
        }
    )


def load(path: Path) -> Prepared:
    """Open a prepared corpus; UserError (65) if it is not as it was written."""
    if wrong := cache.damage(path):
        raise UserError(f"{wrong}; prepare the corpus again", Exit.DATA)
    source, target = (Side.from_json(plain.read_json(path / f"{side}.json")) for side in SIDES)
    facts = plain.read_json(path / FACTS)
    return Prepared(path, PairStore(path / "train"), PairStore(path / "dev"), source, target, facts)


def report(path: Path) -> dict[str, Any]:
    """Read the report of a prepared corpus; `nmt.data.report.describe` shows it as a table."""
    return plain.read_json(path / "report.json")


def _write_toy(data: config.Toy, directory: Path) -> tuple[dict[str, ScannedPair], dict[str, str]]:
    """Write the toy corpus below the directory; give its scans, and where its test text lies."""
    from nmt.data.toy import write_toy  # here, since other corpora do not need it

    text = directory / "text"
    text.mkdir()
    paths = write_toy(data, text)
    names = config.TOY_COLUMNS
    scans = {
        s: ScannedPair(
            scan(paths[f"{s}_source"]),
            scan(paths[f"{s}_target"]),
            {name: scan(paths[f"{s}_{name}"]) for name in names},
        )
        for s in SPLITS
    }
    tests = {
        f"test_{what}": paths[f"test_{what}"].relative_to(directory).as_posix()
        for what in (*SIDES, *names)
    }
    return scans, tests


def _toy_sample() -> str:
    """Some sentences of the grammar and their columns: another grammar is another corpus."""
    from nmt.data.toy import columns, pairs

    return repr([(pair, columns(pair[0])) for pair in pairs(40, 4, 30, seed=0)])


def _build(
    data: config.Data,
    choice: Segmenter,
    sides: Sides | None,
    scanned: dict[str, ScannedPair],
    directory: Path,
    fingerprint: str,
) -> None:
    """Fill the directory of a prepared corpus."""
    started = time.monotonic()
    facts: dict[str, Any] = {"fingerprint": fingerprint}
    if isinstance(data, config.Toy):
        scanned, tests = _write_toy(data, directory)
        facts |= tests
    tokenizers = _tokenizers(data, choice, sides)
    work = directory / stages.WORK
    workers = _workers(data.workers, scanned)
    several = f" with {workers} processes" if workers > 1 else ""
    log.info("preparing %s lines%s", f"{scanned['train'].source.lines:,}", several)
    columns = {split: _columns(data, scanned[split], work) for split in SPLITS}
    with Pool(workers) as pool, Pool(1) as here:  # of few lines, as dev has, each would learn anew
        pools = {"train": pool, "dev": here}
        count_words = sides is None and isinstance(choice, config.BpeLearning)
        cleaned, words = _clean_all(data, tokenizers, count_words, scanned, columns, work, pools)
        if sides is None:
            sides = _learned(choice, tokenizers, cleaned["train"], words, work)
        words.clear()  # this room is needed no more
        for name, side in zip(SIDES, sides, strict=True):
            write_json(directory / f"{name}.json", side.to_json())
        known = (work / "source.known", work / "target.known") if count_words else None
        counted: dict[str, Any] = {
            split: _number_all(
                split, data, cleaned[split], columns[split], sides, known, directory, pools[split]
            )
            for split in SPLITS
        }
    counted["vocabulary"] = {s: len(side.vocabulary) for s, side in zip(SIDES, sides, strict=True)}
    counted["versions"] = _versions()
    write_json(directory / "report.json", counted)
    write_json(directory / FACTS, facts | _facts(counted))
    log.info("prepared in %.0f s", time.monotonic() - started)


def _learned(
    choice: Segmenter,
    tokenizers: Sequence[Tokenizer],
    cleaned: Sequence[CleanedChunk],
    words: Sequence[Counter[str]],
    work: Path,
) -> Sides:
    """Learn both sides, unless a preparation that was stopped had done so."""
    paths, record = [work / f"{side}.json" for side in SIDES], work / f"learned{stages.DONE}"
    bpe = isinstance(choice, config.BpeLearning)
    known = [work / f"{side}.known" for side in SIDES] if bpe else []
    if stages.kept(record, [*paths, *known]) is None:
        if isinstance(choice, config.BpeLearning):
            sides = learn_bpe_sides(choice, tokenizers, words, known)
        else:
            assert isinstance(choice, config.UnigramLearning), "others come with sides"
            sides = learn_unigram_sides(choice, tokenizers, [chunk.out for chunk in cleaned])
        for path, side in zip(paths, sides, strict=True):
            write_json(path, side.to_json())
        stages.keep(record, True, [*paths, *known])
    return [Side.from_json(plain.read_json(path)) for path in paths]


def _tokenizers(data: config.Data, choice: Segmenter, sides: Sides | None) -> list[Tokenizer]:
    """Those of both sides; UserError where nothing is to be learned, and nothing is given."""
    if sides is not None:
        return [side.segmenter.tokenizer for side in sides]
    if isinstance(choice, config.ImportedSegmenter):
        raise UserError(
            "segmenter.kind=imported: comes with a model that was imported; give its directory as "
            "trainer.init_from"
        )
    languages = (data.source_language, data.target_language)
    warn_of_unknown(choice.tokenizer, *languages)
    return [Tokenizer(data.normalize, choice.tokenizer, code) for code in languages]


def _columns(data: config.Data, pair: ScannedPair, work: Path) -> tuple[ColumnChunk, ...]:
    """Say where the columns of a split are read, from their first line on."""
    per = config.columns_of(data)
    return tuple(
        ColumnChunk(name, per[name], unpacked(column, work), str(column.path), start=0)
        for name, column in pair.columns.items()
    )


def _clean_all(
    data: config.Data,
    tokenizers: Sequence[Tokenizer],
    count_words: bool,
    scanned: dict[str, ScannedPair],
    columns: dict[str, tuple[ColumnChunk, ...]],
    work: Path,
    pools: dict[str, Pool],
) -> tuple[dict[str, list[CleanedChunk]], list[Counter[str]]]:
    """Clean both splits; give their chunks without words, and the words of train per side."""
    words: list[Counter[str]] = [Counter(), Counter()]
    cleaned: dict[str, list[CleanedChunk]] = {}
    for split in SPLITS:
        counted = count_words and split == "train"
        tasks = _clean_tasks(split, data, tokenizers, counted, scanned[split], columns[split], work)
        cleaned[split] = []
        chunks = pools[split].in_order(clean, tasks)
        lines = scanned[split].source.lines
        sizes = [min(CHUNK, lines - start) for start in range(0, lines, CHUNK)]
        for chunk in shown(chunks, f"tokenising {split}", sizes):
            for total, counts in zip(words, chunk.words, strict=True):
                total.update(counts)
            cleaned[split].append(chunk._replace(words=(Counter(), Counter())))
    return cleaned, words


def _clean_tasks(
    split: str,
    data: config.Data,
    tokenizers: Sequence[Tokenizer],
    count_words: bool,
    pair: ScannedPair,
    columns: tuple[ColumnChunk, ...],
    work: Path,
) -> Iterator[CleanTask]:
    of_source, of_target = ((t.normalize, t.kind, t.language) for t in tokenizers)
    source, target = unpacked(pair.source, work), unpacked(pair.target, work)
    for k, starts in enumerate(zip(pair.source.starts[:-1], pair.target.starts[:-1], strict=True)):
        yield CleanTask(
            paths=(source, target),
            names=(str(pair.source.path), str(pair.target.path)),
            starts=starts,
            line=k * CHUNK + 1,
            lines=min(CHUNK, pair.source.lines - k * CHUNK),
            tokenizers=(of_source, of_target),
            drop_invalid=data.invalid_utf8 == "drop",
            max_bytes=data.max_line_bytes,
            count_words=count_words,
            out=work / f"{split}-{k:06d}",
            columns=tuple(c._replace(start=pair.columns[c.name].starts[k]) for c in columns),
        )


def _number_all(
    split: str,
    data: config.Data,
    cleaned: Sequence[CleanedChunk],
    columns: tuple[ColumnChunk, ...],
    sides: Sequence[Side],
    known: tuple[Path, Path] | None,
    directory: Path,
    pool: Pool,
) -> dict[str, Any]:
    """Write the store of one split; give its report."""
    train = split == "train"
    tally, unknown = no_tally(), np.zeros(len(SIDES), np.int64)
    changes: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    for chunk in cleaned:
        tally += chunk.tally
        for side, counts in zip(SIDES, chunk.changes, strict=True):
            changes[side].update(counts)
    paths = (directory / "source.json", directory / "target.json")
    most = data.max_length if train else None
    dtype = id_type(*(len(side.vocabulary) for side in sides))
    tasks = (NumberTask(chunk.out, paths, dtype, most, columns, known) for chunk in cleaned)
    longest, hashes = [0, 0], []
    with Writer(directory / split, dtype, config.columns_of(data)) as writer:
        parts = pool.in_order(number, tasks)
        for part in shown(parts, f"segmenting {split}", [chunk.pairs for chunk in cleaned]):
            _store(part, writer)
            tally += part.tally
            unknown += part.unknown
            hashes.append(part.hashes)
            longest = [
                max(a, int(b.max(initial=1)) - 1)
                for a, b in zip(longest, part.lengths, strict=True)
            ]
    if not tally[:, KEPT, 0].sum():
        raise UserError(
            f"data.name={data.name}: no pair of the {split} text is left; "
            f"see data.max_length and the files",
            Exit.DATA,
        )
    counted = split_report(tally, changes, unknown)
    counted["longest"] = dict(zip(SIDES, longest, strict=True))
    pairs = np.concatenate(hashes)
    counted["duplicates"] = len(pairs) - len(np.unique(pairs))
    return counted


def _store(part: NumberedChunk, writer: Writer) -> None:
    for side, ids, lengths in zip(SIDES, part.ids, part.lengths, strict=True):
        writer.add(side, ids, lengths)
    for name, values in part.columns.items():
        writer.add_column(name, np.array(values))
    writer.add_lines(part.lines)


def _facts(counted: dict[str, Any]) -> dict[str, Any]:
    """Give the numbers that other rooms ask for."""
    train, dev = counted["train"], counted["dev"]
    facts = {f"train_{measure}": count for measure, count in train["kept"].items()}
    facts |= {f"longest_{side}": train["longest"][side] for side in SIDES}
    facts |= {f"{side}_vocabulary": counted["vocabulary"][side] for side in SIDES}
    return facts | {"dev_pairs": dev["kept"]["pairs"], "corpus": summary(counted)}


def _workers(given: int | None, scanned: dict[str, ScannedPair]) -> int:
    """Give the number of processes worth starting."""
    if given is not None:
        return given
    lines = scanned["train"].source.lines
    if lines < FEW_LINES:
        return 1
    return min(cores(), -(-lines // CHUNK))
