"""sacremoses and subword-nmt as one writes them down: one core, line by line, text to text."""

import contextlib
import importlib.metadata
import io
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from protocol import job, serve
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe


def prepare(asked: dict[str, Any]) -> dict[str, Any]:
    """Normalise, tokenise, learn merges on both sides, segment, write; seconds of each part."""
    began = time.perf_counter()
    texts = []
    counts: Counter[str] = Counter()
    for path, language in zip(asked["texts"], asked["languages"], strict=True):
        tokenizer = MosesTokenizer(lang=language)
        text = []
        for line in Path(path).read_text(encoding="utf-8").split("\n")[:-1]:
            normal = unicodedata.normalize("NFC", line)
            words = tokenizer.tokenize(normal, return_str=True, escape=False)
            counts.update(words.split())
            text.append(words)
        texts.append(text)
    tokenised = time.perf_counter()
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # it draws a progress bar
        dictionary = (f"{word} {count}" for word, count in counts.items())
        learn_bpe(dictionary, codes, asked["merges"], asked["min_frequency"], is_dict=True)
    learnt = time.perf_counter()
    codes.seek(0)
    bpe = BPE(codes)
    lines = 0
    for path, text in zip(asked["outputs"], texts, strict=True):
        with Path(path).open("w", encoding="utf-8") as file:
            for words in text:
                file.write(f"{bpe.process_line(words)}\n")
        lines += len(text)
    ended = time.perf_counter()
    return {
        "units": lines,
        "seconds": ended - began,
        "parts": {
            "tokenise": tokenised - began,
            "learn": learnt - tokenised,
            "segment": ended - learnt,
        },
    }


def main() -> None:
    """Answer rounds."""
    asked = job()
    versions = {name: importlib.metadata.version(name) for name in ("sacremoses", "subword-nmt")}
    serve(lambda: prepare(asked), versions=versions)


if __name__ == "__main__":
    main()
