"""The worker that prepares a corpus of text files, anew in each round."""

import logging
import shutil
import time
from typing import Any

from scripts.bench.peers.protocol import read_job, serve


def main() -> None:
    """Answer rounds."""
    job = read_job()
    from nmt.config.settings import thaw
    from nmt.corpus.prepare import prepare

    logging.getLogger("nmt").setLevel(logging.ERROR)
    settings = thaw(job["settings"])

    def play() -> dict[str, Any]:
        shutil.rmtree(settings.data.cache, ignore_errors=True)
        began = time.perf_counter()
        prepared = prepare(settings.data, settings.segmenter)
        seconds, pairs = time.perf_counter() - began, prepared.facts["train_pairs"]
        return {"units": 2 * pairs, "seconds": seconds, "path": str(prepared.path)}

    serve(play)


if __name__ == "__main__":
    main()
