"""A model as an M2M100 or NLLB directory of Hugging Face: the way back of `transformers_read`.

That family knows one form of model: norms before the sublayers, one matrix for all embeddings
without a bias, fairseq's sinusoids from position 2 on, and pieces for languages.
"""

from pathlib import Path

import safetensors.torch
import torch

from nmt.data.vocab import BOS, EOS
from nmt.encodings.positions import Index
from nmt.errors import UserError
from nmt.exchange import (
    card_code,
    m2m100_tokens,
    marian_weights,
    transformers_config,
    unshared,
)
from nmt.exchange.adapter import TRANSFORMERS, Adapter
from nmt.exchange.transformers_config import M2M100Config, to_m2m100_config
from nmt.exchange.transformers_scorer import M2M100Scorer
from nmt.modeldir import Trained
from nmt.storage import manifest

NEAREST = "export --to ctranslate2"


class M2M100Adapter(Adapter):
    """Models of the form that `transformers_read.m2m100` reads."""

    library = TRANSFORMERS
    title = "Hugging Face transformers (M2M100, NLLB)"
    on_hub = "transformers"
    has_languages = True

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        shape, decode = trained.settings.model, trained.settings.decode
        output = trained.model.output
        both = decode.source_language, decode.target_language
        layout, denominator, start = M2M100Config.SINUSOIDS
        fairseqs = (Index(start=start), denominator, layout)
        bias = output.bias.clone()
        bias[BOS] = 0
        for wrong, what, why in (
            *(
                (
                    unshared.sinusoids_of(trained.model.sites[site]) != fairseqs,
                    f"encoding of the {site}",
                    f"positions are the sinusoids of fairseq, from {start} on",
                )
                for site in ("encoder", "decoder")
            ),
            (shape.norm != "pre", f"model.norm={shape.norm}", "norms come before sublayers"),
            (shape.tie != "all", f"model.tie={shape.tie}", "all embeddings are one matrix"),
            (not shape.source_eos, "model.source_eos=false", "the end of a source is read"),
            (None in both, "decode.source_language and target_language", "they are never null"),
            (bias.any(), "output.bias", "there is none (trainer.freeze=[output.bias] leaves it)"),
            (
                not torch.equal(output.weight[BOS], output.weight[EOS]),
                "the embedding of bos",
                "it is that of eos (trainer.freeze=[embeddings] leaves it)",
            ),
        ):
            if wrong:
                raise UserError(f"{what}: cannot be exported to M2M100, where {why}; {NEAREST}")
        unshared.refuse(trained.settings, trained.model, "M2M100")
        segmenter = unshared.plain_sentencepiece(
            trained.source.segmenter, "M2M100", "knows pieces of SentencePiece alone"
        )
        self.ids = m2m100_tokens.ids_of(trained.source.vocabulary)
        self.files = m2m100_tokens.to_files(segmenter, self.ids.vocabulary, [str(n) for n in both])
        self.tokenizer = m2m100_tokens.kind_of(self.files)

    def written(self, directory: Path, precision: str) -> M2M100Scorer:
        """Make the directory; the precision is float32."""
        settings = self.trained.settings
        generation = transformers_config.to_generation(settings.decode, self.ids, positions=1024)
        files = self.files | {
            "config.json": manifest.dump(to_m2m100_config(settings.model, self.ids)),
            "generation_config.json": manifest.dump(generation),
        }
        directory.mkdir()
        for name, data in files.items():
            (directory / name).write_bytes(data)
        order = torch.arange(settings.model.dim)
        tensors = marian_weights.to_theirs(
            self.trained.model, settings.model, order, self.ids, self.ids
        )
        safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
        return M2M100Scorer(directory, settings.decode, self.ids, self.tokenizer)

    def code(self, place: str) -> str:
        """Lines for the tokenizer and M2M100ForConditionalGeneration."""
        classes = ("M2M100ForConditionalGeneration", self.tokenizer)
        return card_code.program(self.trained, "transformers", place, None, classes)
