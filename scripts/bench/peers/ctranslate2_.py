"""CTranslate2 in beam search, with the very weights of nmt's model.

The weights come in a file of arrays under the names of nmt's parameters; the first start converts
them, and later ones load what was converted.
"""

import time
import zlib
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2 import specs
from protocol import read_job, serve

SPECIALS = ["<blank>", "<s>", "</s>", "<unk>"]

Arrays = dict[str, Any]


def convert(job: dict[str, Any], directory: Path) -> None:
    """Write the model as CTranslate2 reads it, in the precision that is asked for."""
    size = job["model"]
    with np.load(job["weights"]) as file:
        arrays = dict(file.items())
    spec = specs.TransformerSpec.from_config(
        (size["encoder_layers"], size["decoder_layers"]), size["heads"], pre_norm=True
    )
    spec.encoder.embeddings[0].weight = arrays["source_embedding.weight"]
    spec.decoder.embeddings.weight = arrays["target_embedding.weight"]
    linear(spec.decoder.projection, arrays, "output")
    for site, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        norm(stack.layer_norm, arrays, f"{site}.norm")
        stack.position_encodings.encodings = arrays[f"{site}.positions"]
        for number, layer in enumerate(stack.layer):
            name = f"{site}.layers.{number}"
            own, theirs = f"{name}.attention", layer.self_attention
            norm(theirs.layer_norm, arrays, f"{name}.around_attention.norm")
            linear(theirs.linear[0], arrays, *(f"{own}.{x}" for x in ("query", "key", "value")))
            linear(theirs.linear[1], arrays, f"{own}.out")
            norm(layer.ffn.layer_norm, arrays, f"{name}.around_feedforward.norm")
            linear(layer.ffn.linear_0, arrays, f"{name}.feedforward.inner")
            linear(layer.ffn.linear_1, arrays, f"{name}.feedforward.outer")
            if site == "decoder":
                cross = layer.attention
                norm(cross.layer_norm, arrays, f"{name}.around_cross.norm")
                linear(cross.linear[0], arrays, f"{name}.cross.query")
                linear(cross.linear[1], arrays, f"{name}.cross.key", f"{name}.cross.value")
                linear(cross.linear[2], arrays, f"{name}.cross.out")
    pieces = [*SPECIALS, *(f"w{i}" for i in range(len(SPECIALS), job["vocab"]))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.validate()
    spec.optimize(quantization=None if job["precision"] == "float32" else job["precision"])
    directory.mkdir(parents=True)
    spec.save(str(directory))


def linear(spec: Any, arrays: Arrays, *names: str) -> None:
    """Hand over a linear map, or several that share their input as one."""
    spec.weight = np.concatenate([arrays[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([arrays[f"{name}.bias"] for name in names])


def norm(spec: Any, arrays: Arrays, name: str) -> None:
    """Hand over a layer norm."""
    spec.gamma, spec.beta = arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def ids(tokens: list[str]) -> str:
    """The ids of some tokens, which are named by them."""
    return " ".join(str(SPECIALS.index(t) if t in SPECIALS else int(t[1:])) for t in tokens)


def main() -> None:
    """Answer rounds; or translate once and leave, if that is asked for."""
    job = read_job()
    options, directory = job["options"], Path(job["converted"])
    if not directory.exists():
        convert(job, directory)
    engine = ctranslate2.Translator(
        str(directory),
        device="cuda" if job["device"] != "cpu" else "cpu",
        compute_type=job["precision"],
        inter_threads=options["workers"],
        intra_threads=options["threads"],
    )
    rows = [[f"w{i}" for i in row[:-1]] + ["</s>"] for row in job["sources"]]

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
        digests = [zlib.crc32(ids(tokens).encode()) for tokens in best]
        return {"units": sum(map(len, best)), "seconds": seconds, "digests": digests}

    serve(play, job["once"], version=ctranslate2.__version__, threads=job["threads"])


if __name__ == "__main__":
    main()
