"""The worker that translates: Translator on lines of text, by the engine that is asked for."""

import time
import zlib
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (read_job gives it its threads)

from nmt import modeldir
from nmt.config.settings import thaw
from nmt.exchange import engines
from nmt.exchange.ctranslate2_engine import CTranslate2Engine
from nmt.system.resources import keep_memory
from nmt.text.vocab import SPECIALS
from scripts.bench import corpus
from scripts.bench.peers.protocol import read_job, serve


def digests(texts: list[str]) -> list[int]:
    """A number for each translation, made of its ids, to compare with those of others."""
    rows = ([ord(piece) - corpus.FIRST + SPECIALS for piece in text.split()] for text in texts)
    return [zlib.crc32(" ".join(map(str, row)).encode()) for row in rows]


def main() -> None:
    """Answer rounds."""
    job = read_job()
    keep_memory()
    trained = modeldir.load(job["model"], job["device"])
    decode = thaw(job["settings"]).decode
    engine = job["engine"]
    translator = engines.translator([trained], decode, job["workers"], engine)  # None: as by itself
    if engine == "auto" and not isinstance(translator.engine, CTranslate2Engine):
        raise RuntimeError("--engine auto does not take CTranslate2 here")
    lines = Path(job["lines"]).read_text(encoding="utf-8").split("\n")[:-1]

    def play() -> dict[str, Any]:
        began = time.perf_counter()
        texts = translator.texts(lines)
        seconds = time.perf_counter() - began
        tokens = sum(len(text.split()) for text in texts)
        return {"units": tokens, "seconds": seconds, "digests": digests(texts)}

    serve(play)


if __name__ == "__main__":
    main()
