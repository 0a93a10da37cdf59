"""A model as a Marian directory of Hugging Face: the way back of `transformers_read.marian`.

That family knows one form of model: norms after the sublayers and none above the stacks,
embeddings times the root of the width, sinusoids as halves of sines and cosines, SentencePiece.
Where sines and cosines alternate, the same numbers stand in another order: so do then the
components of all vectors that the layers pass on, and the model computes the same.
"""

from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from nmt.encodings.positions import Index
from nmt.errors import UserError
from nmt.exchange import (
    card_code,
    marian_ids,
    marian_weights,
    transformers_config,
    unshared,
)
from nmt.exchange.adapter import TRANSFORMERS, Adapter, EngineScorer
from nmt.exchange.settings import UNNAMED
from nmt.exchange.transformers_scorer import MarianScorer
from nmt.modeldir import Trained
from nmt.storage import manifest

TABLE = 512  # positions, as those of OPUS-MT; more where training had more
ENGINE = "Marian"


class MarianAdapter(Adapter):
    """Models with norms after the sublayers, sinusoids and SentencePiece."""

    library = TRANSFORMERS
    title = "Hugging Face transformers (Marian)"
    on_hub: str | None = "transformers"
    denominator = "paper"  # of its sinusoids
    target_bos = True  # the decoder starts from an embedding
    numberings = staticmethod(marian_ids.numberings)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        shape, sides = trained.settings.model, (trained.source, trained.target)
        if shape.norm != "post":
            raise UserError(
                "model.norm=pre: cannot be exported to Marian, whose norms come after the "
                "sublayers; train with model.norm=post, or export --to ctranslate2"
            )
        if not shape.source_eos:
            raise UserError(
                "model.source_eos=false: cannot be exported to Marian, whose models read the sign "
                "that ends a source; export --to ctranslate2"
            )
        if shape.target_bos != self.target_bos:
            other = "marian" if shape.target_bos else "marian-npz"
            raise UserError(
                f"model.target_bos={str(shape.target_bos).lower()}: cannot be exported to "
                f"{self.title}; export --to {other}, or --to ctranslate2"
            )
        unshared.refuse(trained.settings, trained.model, ENGINE)
        why = "knows pieces of SentencePiece alone; train with segmenter=unigram"
        self.segmenters = [unshared.plain_sentencepiece(s.segmenter, ENGINE, why) for s in sides]
        for name, side in zip(("source", "target"), sides, strict=True):
            if special := marian_ids.SPECIAL & set(side.vocabulary.to_json()):
                raise UserError(
                    f"the {name} vocabulary holds {min(special)}, which has a meaning of its own "
                    "in Marian"
                )
        self.positions = max(TABLE, (trained.facts["longest_source"] or 0) + 1)
        self.order = _order(trained, self.denominator)
        self.source, self.target = self.numberings(*(side.vocabulary for side in sides))

    def written(self, directory: Path, precision: str) -> EngineScorer:
        """Make the directory; the precision is float32."""
        directory.mkdir()
        for name, data in self.files():
            (directory / name).write_bytes(data)
        return self.scorer(directory)

    def scorer(self, directory: Path) -> EngineScorer:
        """Open the directory."""
        return MarianScorer(directory, self.trained.settings.decode, self.source, self.target)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files (name, bytes) of the directory."""
        settings, source, target = self.trained.settings, self.source, self.target
        config = transformers_config.to_config(settings.model, source, target, self.positions)
        yield "config.json", manifest.dump(config)
        generation = transformers_config.to_generation(settings.decode, target, self.positions)
        yield "generation_config.json", manifest.dump(generation)
        data = settings.data
        languages = {"source_lang": data.source_language, "target_lang": data.target_language}
        separate = source.vocabulary.to_json() != target.vocabulary.to_json()
        yield "tokenizer_config.json", manifest.dump({
            **{key: language for key, language in languages.items() if language != UNNAMED},
            "model_max_length": self.positions,
            "separate_vocabs": separate,
            "tokenizer_class": "MarianTokenizer",
        })  # fmt: skip
        yield "vocab.json", manifest.dump(source.to_json())
        if separate:
            yield "target_vocab.json", manifest.dump(target.to_json())
        for name, segmenter in zip(("source", "target"), self.segmenters, strict=True):
            yield f"{name}.spm", segmenter.model
        model, shape = self.trained.model, settings.model
        tensors = marian_weights.to_theirs(model, shape, self.order, source, target)
        yield "model.safetensors", safetensors.torch.save(tensors, {"format": "pt"})

    def code(self, place: str) -> str | None:
        """Lines for MarianTokenizer and MarianMTModel."""
        return card_code.program(self.trained, "transformers", place, self.positions - 2)


def _order(trained: Trained, denominator: str) -> Tensor:
    """Which of our components each of theirs is; UserError unless positions are sinusoids."""
    layouts = []
    for name in ("encoder", "decoder"):
        positions = unshared.sinusoids_of(trained.model.sites[name])
        if positions is None or positions[:2] != (Index(), denominator):
            entries = "+".join(e.name for e in trained.model.sites[name])
            raise UserError(
                f"encoding.{entries}: cannot be exported to Marian, which adds sinusoids to the "
                f"embeddings of the {name} and knows no other positions; the nearest is "
                f"encoding=absolute encoding.absolute.denominator={denominator}"
            )
        layouts.append(positions[2])
    if len(set(layouts)) > 1:
        raise UserError(
            f"encoding.layout: cannot be exported to Marian, because encoder and decoder differ "
            f"({', '.join(layouts)}); train both with encoding.absolute.layout=halves"
        )
    components = torch.arange(trained.settings.model.dim)
    if layouts[0] == "halves":
        return components
    return torch.cat([components[0::2], components[1::2]])
