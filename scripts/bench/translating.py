"""The worker that translates: the product's own Translator on lines of text."""

import time
import zlib
from pathlib import Path
from typing import Any

import torch

from nmt import config, modeldir
from nmt.data.vocab import SPECIALS
from nmt.decode.translator import Translator
from nmt.memory import keep_memory
from scripts.bench import corpus
from scripts.bench.peers.protocol import Line, job


def digests(texts: list[str]) -> list[int]:
    """A number for each translation, made of its ids, to compare with those of others."""
    rows = ([ord(piece) - corpus.FIRST + SPECIALS for piece in text.split()] for text in texts)
    return [zlib.crc32(" ".join(map(str, row)).encode()) for row in rows]


def main() -> None:
    """Answer rounds."""
    line, asked = Line(), job()
    torch.set_num_threads(asked["threads"])
    keep_memory()
    trained = modeldir.load(asked["model"], asked["device"])
    translator = Translator(trained, config.thaw(asked["settings"]).decode)
    lines = Path(asked["lines"]).read_text(encoding="utf-8").split("\n")[:-1]
    gpu = asked["device"] != "cpu"
    line.ready(torch=torch.__version__, threads=torch.get_num_threads())
    while line.asked():
        began = time.perf_counter()
        found = translator.texts(lines)
        seconds = time.perf_counter() - began
        tokens = sum(len(text.split()) for text in found)
        more: dict[str, Any] = {"gpu_bytes": torch.cuda.max_memory_allocated()} if gpu else {}
        line.answer(tokens, seconds, digests=digests(found), **more)


if __name__ == "__main__":
    main()
