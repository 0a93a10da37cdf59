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
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.bench.peers.protocol import Answer, read_job, serve


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
        return {"units": tokens, "seconds": seconds}

    serve(play)


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
        return {"units": 2 * pairs, "seconds": seconds}

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
    """Let nmt's own trainer make updates; validation and checkpoints are not measured."""
    import torch

    from nmt.config.settings import thaw
    from nmt.training.directory import open_run
    from nmt.training.reports import MetricsLog
    from nmt.training.trainer import Trainer
    from scripts.bench import corpus

    settings, tokens, updates = thaw(job["settings"]), job["tokens"], job["updates"]
    prepared = corpus.prepared(Path(job["store"]), job["vocab"])
    with open_run(Path(job["run"]), settings) as run:
        trainer = Trainer(prepared, run)
        trainer.start()

        def play() -> Answer:
            first = trainer.step
            for _ in range(updates):
                trainer.update()
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
            made = range(first, trainer.step)  # the epoch of a long bench begins again
            return {"units": sum(tokens[step % len(tokens)] for step in made)}

        with MetricsLog(run.path, 0, updates, settings.trainer, silent=True) as trainer.progress:
            serve(play, parameters=sum(p.numel() for p in trainer.parameters))


WORKERS = {
    "translate": translate,
    "prepare": prepare,
    "prepare plainly": prepare_plainly,
    "train": train,
}

if __name__ == "__main__":
    job = read_job()
    WORKERS[job["kind"]](job)
