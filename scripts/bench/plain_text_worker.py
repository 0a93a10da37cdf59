"""The worker that uses sacremoses and subword-nmt plainly: one core, line by line, text to text."""

import contextlib
import importlib.metadata
import io
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from scripts.bench.peers.protocol import read_job, serve


def prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Normalise, tokenise, learn merges on both sides, segment, write; seconds of each part."""
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


if __name__ == "__main__":
    job = read_job()
    versions = {name: importlib.metadata.version(name) for name in ("sacremoses", "subword-nmt")}
    serve(lambda: prepare(job), versions=versions)
