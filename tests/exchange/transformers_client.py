"""Transformers of any version: run by the Python of an environment that has it, not by that of nmt.

Arguments: FROM TO FORM. Saves a directory anew in one of FORMS, translates the lines of stdin with
it, and writes {beam size: translations} as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

LONGEST = 60  # pieces of an output
BEAMS = (1, 4)
FORMS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "shards": {"max_shard_size": "20KB"},
    "slow tokenizer": {},
}


def load(directory: Path) -> tuple[Any, Any]:
    """The model in float32, and its tokenizer."""
    kind = json.loads((directory / "config.json").read_bytes())["model_type"]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory, torch_dtype=torch.float32)
    if kind == "marian":
        return model.eval(), transformers.MarianTokenizer.from_pretrained(directory)
    values = json.loads((directory / "tokenizer_config.json").read_bytes())
    slow = not (directory / "tokenizer.json").exists() or sys.argv[-1] == "slow tokenizer"
    name = str(values["tokenizer_class"]).removesuffix("Fast")
    fast = hasattr(transformers, f"{name}Fast") and not slow
    return model.eval(), getattr(transformers, f"{name}Fast" if fast else name).from_pretrained(
        directory
    )


def save(source: Path, target: Path, form: str) -> None:
    """Save a directory anew."""
    model, tokenizer = load(source)
    model.save_pretrained(target, **FORMS[form])
    tokenizer.save_pretrained(target)


def translate(directory: Path, lines: list[str]) -> dict[int, list[str]]:
    """By greedy search and a beam of 4, without a length penalty, one line at a time."""
    model, tokenizer = load(directory)
    more: dict[str, Any] = {"length_penalty": 0.0, "max_length": LONGEST}
    if language := getattr(tokenizer, "tgt_lang", None):
        piece = f"__{language}__" if type(tokenizer).__name__ == "M2M100Tokenizer" else language
        more["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(piece)
    outputs: dict[int, list[str]] = {}
    for beam in BEAMS:
        outputs[beam] = []
        for line in lines:
            with torch.inference_mode():
                ids = model.generate(**tokenizer(line, return_tensors="pt"), num_beams=beam, **more)
            begins = 2 if "forced_bos_token_id" in more else 1  # a language is not always special
            outputs[beam] += tokenizer.batch_decode(ids[:, begins:], skip_special_tokens=True)
    return outputs


def main() -> None:
    """Do what the arguments say."""
    source, target, form = sys.argv[1:]
    save(Path(source), Path(target), form)
    lines = sys.stdin.read().split("\n")
    sys.stdout.write(json.dumps(translate(Path(target), lines)))


if __name__ == "__main__":
    main()
