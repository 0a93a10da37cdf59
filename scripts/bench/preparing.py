"""The worker that prepares a corpus of text files, anew in each round."""

import logging
import shutil
import time
from pathlib import Path
from typing import Any

from scripts.bench.peers.protocol import job, serve


def main() -> None:
    """Answer rounds."""
    from nmt import config  # here, as in the commands: each process of `prepare` reads this file
    from nmt.data.prepare import prepare

    asked = job()
    logging.getLogger("nmt").setLevel(logging.ERROR)
    settings = config.thaw(asked["settings"])
    cache = Path(settings.data.cache)

    def play() -> dict[str, Any]:
        shutil.rmtree(cache, ignore_errors=True)
        began = time.perf_counter()
        found = prepare(settings.data, settings.segmenter)
        seconds = time.perf_counter() - began
        pairs = found.facts["train_pairs"]
        return {"units": 2 * pairs, "seconds": seconds, "path": str(found.path)}

    serve(play)


if __name__ == "__main__":
    main()
