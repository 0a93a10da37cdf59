"""The bench's own workers, `python -m scripts.bench.workers JOB`: a function for each kind.

Each imports what it needs and no more, as imports count as its memory.
"""

import contextlib
import importlib.metadata
import io
import logging
import shutil
import time
import unicodedata
import zlib
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.bench.peers.protocol import Answer, read_job, serve

SQUARES = (512, 1024, 2048)  # tried, since the best one differs between machines
ON_A_GPU = (4096, 8192)
LEAST = 0.08  # seconds for each size


def measure_matmul(job: dict[str, Any]) -> None:
    """Answer with the matmul peak of this machine, of which other figures are a share."""
    tried = SQUARES if job["device"] == "cpu" else ON_A_GPU
    squares = tried[:1] if job["quick"] else tried

    def play() -> Answer:
        answers = [multiply(n, job["precision"], job["device"]) for n in squares]
        return max(answers, key=lambda answer: answer["units"] / answer["seconds"])

    serve(play)


def multiply(n: int, precision: str, device: str) -> Answer:
    """Multiply square matrices as nmt does, by the faster of torch's libraries."""
    import torch

    from nmt.system.products import product

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize(device)

    dtype = getattr(torch, precision)
    a, b = (torch.rand(n, n, device=device).to(dtype) for _ in range(2))
    product(a, b)
    wait()
    count, began, used = 0, time.perf_counter(), time.process_time()
    while count < 2 or time.perf_counter() - began < LEAST:
        product(a, b)
        count += 1
        if count % 8 == 0:
            wait()
    wait()
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {"units": 2.0 * n**3 * count, "seconds": seconds, "cpu_seconds": cpu, "square": n}


def translate(job: dict[str, Any]) -> None:
    from nmt import modeldir
    from nmt.config.settings import thaw
    from nmt.exchange import engines
    from nmt.exchange.ctranslate2_engine import CTranslate2Engine
    from nmt.system.resources import keep_memory

    keep_memory()
    trained = modeldir.load(job["model"], job["device"])
    decode, engine = thaw(job["settings"]).decode, job["engine"]
    translator = engines.translator([trained], decode, job["workers"], engine)  # None: as by itself
    if engine == "auto" and not isinstance(translator.engine, CTranslate2Engine):
        raise RuntimeError("--engine auto does not take CTranslate2 here")
    lines = Path(job["lines"]).read_text(encoding="utf-8").split("\n")[:-1]

    def play() -> Answer:
        began = time.perf_counter()
        texts = translator.texts(lines)
        seconds = time.perf_counter() - began
        tokens = sum(len(text.split()) for text in texts)
        return {"units": tokens, "seconds": seconds, "digests": digest(texts)}

    serve(play)


def digest(texts: list[str]) -> list[int]:
    """A number for each translation, made of its ids, to compare with those of others."""
    from scripts.bench import corpus

    rows = (" ".join(str(corpus.id_of(piece)) for piece in text.split()) for text in texts)
    return [zlib.crc32(row.encode()) for row in rows]


def prepare(job: dict[str, Any]) -> None:
    from nmt.config.settings import thaw
    from nmt.corpus import prepare

    logging.getLogger("nmt").setLevel(logging.ERROR)
    settings = thaw(job["settings"])

    def play() -> Answer:
        shutil.rmtree(settings.data.cache, ignore_errors=True)
        began = time.perf_counter()
        prepared = prepare.prepare(settings.data, settings.segmenter)
        seconds, pairs = time.perf_counter() - began, prepared.facts["train_pairs"]
        return {"units": 2 * pairs, "seconds": seconds, "path": str(prepared.path)}

    serve(play)


def prepare_plainly(job: dict[str, Any]) -> None:
    """Use sacremoses and subword-nmt: one core, line by line, text to text."""
    for module in ("sacremoses", "subword_nmt.apply_bpe", "subword_nmt.learn_bpe"):
        import_module(module)  # before a clock runs
    names = ("sacremoses", "subword-nmt")
    versions = {name: importlib.metadata.version(name) for name in names}
    serve(lambda: normalise_and_segment(job), versions=versions)


def normalise_and_segment(job: dict[str, Any]) -> Answer:
    """Normalise, tokenise, learn merges on both sides, segment, write; seconds of each part."""
    from sacremoses import MosesTokenizer
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    began = time.perf_counter()
    texts: list[list[str]] = []
    counts: Counter[str] = Counter()
    for path, language in zip(job["texts"], job["languages"], strict=True):
        tokenizer = MosesTokenizer(lang=language)
        texts.append([])
        for line in Path(path).read_text(encoding="utf-8").split("\n")[:-1]:
            normal = unicodedata.normalize("NFC", line)
            texts[-1].append(tokenizer.tokenize(normal, return_str=True, escape=False))
            counts.update(texts[-1][-1].split())
    tokenised = time.perf_counter()
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # it draws a progress bar
        dictionary = (f"{word} {count}" for word, count in counts.items())
        learn_bpe(dictionary, codes, job["merges"], job["min_frequency"], is_dict=True)
    learned = time.perf_counter()
    codes.seek(0)
    bpe = BPE(codes)
    for path, text in zip(job["outputs"], texts, strict=True):
        with Path(path).open("w", encoding="utf-8") as file:
            for words in text:
                file.write(f"{bpe.process_line(words)}\n")
    ended = time.perf_counter()
    seconds = [tokenised - began, learned - tokenised, ended - learned]
    return {
        "units": sum(map(len, texts)),
        "seconds": ended - began,
        "parts": dict(zip(("tokenise", "learn", "segment"), seconds, strict=True)),
    }


def train(job: dict[str, Any]) -> None:
    from scripts.bench import held_trainer

    held_trainer.train(job)


WORKERS = {
    "matmul": measure_matmul,
    "translate": translate,
    "prepare": prepare,
    "prepare plainly": prepare_plainly,
    "train": train,
}

if __name__ == "__main__":
    job = read_job()
    WORKERS[job["kind"]](job)
