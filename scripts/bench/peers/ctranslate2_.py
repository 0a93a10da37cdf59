"""CTranslate2 in beam search, with nmt's model as nmt-export writes it."""

import time
from typing import Any

import ctranslate2
from protocol import read_job, serve


def main() -> None:
    job = read_job()
    options, pieces = job["options"], job["pieces"]
    engine = ctranslate2.Translator(
        job["exported"],
        device="cuda" if job["device"] != "cpu" else "cpu",
        compute_type=job["precision"],
        inter_threads=options["workers"],
        intra_threads=options["threads"],
    )
    rows = [[pieces[i] for i in row[:-1]] for row in job["sources"]]  # it adds eos itself

    def play() -> dict[str, Any]:
        began = time.perf_counter()
        translations = engine.translate_batch(
            rows,
            beam_size=job["beam"],
            max_batch_size=options["tokens"],  # of sentences of like length
            batch_type="tokens",
            length_penalty=job["alpha"],
            min_decoding_length=job["steps"],
            max_decoding_length=job["steps"],
        )
        seconds = time.perf_counter() - began
        best = [translation.hypotheses[0] for translation in translations]
        return {"units": sum(map(len, best)), "seconds": seconds}

    serve(play, version=ctranslate2.__version__, threads=job["threads"])


if __name__ == "__main__":
    main()
