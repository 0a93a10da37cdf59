"""CTranslate2 in beam search, with the very weights of the product's model.

The weights come in a file of arrays with neutral names; the first start converts them, and later
ones load what was converted.
"""

import sys
import time
import zlib
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2 import specs
from protocol import Line, job

SPECIALS = ["<blank>", "<s>", "</s>", "<unk>"]

Arrays = dict[str, Any]


def convert(asked: dict[str, Any], directory: Path) -> None:
    """Write the model as CTranslate2 reads it, in the precision that is asked for."""
    size = asked["model"]
    with np.load(asked["weights"]) as file:
        arrays = {name: file[name] for name in file.files}
    spec = specs.TransformerSpec.from_config(
        (size["encoder_layers"], size["decoder_layers"]), size["heads"], pre_norm=True
    )
    spec.encoder.embeddings[0].weight = arrays["source"]
    spec.decoder.embeddings.weight = arrays["target"]
    linear(spec.decoder.projection, arrays, "output")
    for site, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        norm(stack.layer_norm, arrays, f"{site}.norm")
        stack.position_encodings.encodings = arrays[f"{site}.positions"]
        for number, layer in enumerate(stack.layer):
            name = f"{site}.{number}"
            norm(layer.self_attention.layer_norm, arrays, f"{name}.self.norm")
            linear(layer.self_attention.linear[0], arrays, f"{name}.self.query", "memory")
            linear(layer.self_attention.linear[1], arrays, f"{name}.self.out")
            norm(layer.ffn.layer_norm, arrays, f"{name}.feedforward.norm")
            linear(layer.ffn.linear_0, arrays, f"{name}.feedforward.inner")
            linear(layer.ffn.linear_1, arrays, f"{name}.feedforward.outer")
            if site == "decoder":
                norm(layer.attention.layer_norm, arrays, f"{name}.cross.norm")
                for place, what in enumerate(("query", "memory", "out")):
                    linear(layer.attention.linear[place], arrays, f"{name}.cross.{what}")
    words = [*SPECIALS, *(f"w{i}" for i in range(len(SPECIALS), asked["vocab"]))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize(quantization=None if asked["precision"] == "float32" else asked["precision"])
    directory.mkdir(parents=True)
    spec.save(str(directory))


def linear(spec: Any, arrays: Arrays, name: str, then: str | None = None) -> None:
    """Hand over a linear map, or two that share their input as one."""
    names = [name] if then is None else [name, f"{name.rpartition('.')[0]}.{then}"]
    spec.weight = np.concatenate([arrays[f"{each}.weight"] for each in names])
    spec.bias = np.concatenate([arrays[f"{each}.bias"] for each in names])


def norm(spec: Any, arrays: Arrays, name: str) -> None:
    """Hand over a layer norm."""
    spec.gamma, spec.beta = arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def translate(engine: Any, rows: list[list[str]], asked: dict[str, Any]) -> list[list[str]]:
    """The best hypothesis of each row."""
    found = engine.translate_batch(
        rows,
        beam_size=asked["beam"],
        max_batch_size=asked["options"]["tokens"],  # of sentences of like length
        batch_type="tokens",
        length_penalty=asked["alpha"],
        min_decoding_length=asked["steps"],
        max_decoding_length=asked["steps"],
    )
    return [each.hypotheses[0] for each in found]


def numbers(tokens: list[str]) -> str:
    """The ids of some tokens, which are named by them."""
    return " ".join(str(SPECIALS.index(t) if t in SPECIALS else int(t[1:])) for t in tokens)


def main() -> None:
    """Answer rounds; or translate once and leave, if that is asked for."""
    asked = job()
    directory = Path(asked["converted"])
    if not directory.exists():
        convert(asked, directory)
    engine = ctranslate2.Translator(
        str(directory),
        device="cuda" if asked["device"] != "cpu" else "cpu",
        compute_type=asked["precision"],
        inter_threads=asked["options"]["workers"],
        intra_threads=asked["options"]["threads"],
    )
    rows = [[f"w{i}" for i in row[:-1]] + ["</s>"] for row in asked["sources"]]
    if asked["once"]:
        found = translate(engine, rows, asked)
        sys.stdout.write("".join(f"{numbers(tokens)}\n" for tokens in found))
        sys.stdout.flush()
        return
    line = Line()
    line.ready(version=ctranslate2.__version__, threads=asked["threads"])
    while line.asked():
        began = time.perf_counter()
        found = translate(engine, rows, asked)
        seconds = time.perf_counter() - began
        line.answer(
            sum(map(len, found)),
            seconds,
            digests=[zlib.crc32(numbers(tokens).encode()) for tokens in found],
        )


if __name__ == "__main__":
    main()
