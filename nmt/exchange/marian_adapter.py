"""A model as a Marian directory of Hugging Face: the way back of `transformers_read.marian`.

That family knows one form of model: norms after the sublayers and none above the stacks,
embeddings times the root of the width, sinusoids as halves of sines and cosines, SentencePiece.
Where sines and cosines alternate, the same numbers stand in another order: so do then the
components of all vectors that the layers pass on, and the model computes the same.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Index
from nmt.errors import UserError
from nmt.exchange import card_code, marian_ids, marian_weights, transformers_config, unshared
from nmt.exchange.adapter import TRANSFORMERS, Adapter, EngineScorer
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT
from nmt.exchange.settings import UNNAMED, sinusoids
from nmt.exchange.transformers_config import MarianConfig
from nmt.exchange.transformers_scorer import MarianScorer
from nmt.modeldir import Trained
from nmt.system import manifest


class MarianAdapter(Adapter):
    """Models with norms after the sublayers, sinusoids and SentencePiece."""

    library = TRANSFORMERS
    title = "Hugging Face transformers (Marian)"
    engine = "Marian"
    on_hub: str | None = "transformers"
    required: Mapping[str, object] = {"norm": "post", "source_eos": True, "target_bos": True}
    SINUSOIDS = MarianConfig.SINUSOIDS
    table = 512  # positions, as those of OPUS-MT; more where training had more
    has_bias = True  # of the output
    scorer_class = MarianScorer
    numberings = staticmethod(marian_ids.numberings)
    config = staticmethod(transformers_config.to_config)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        for key, value in self.required.items():
            if (own := getattr(trained.settings.model, key)) != value:
                advice = f"train with model.{key}={str(value).lower()}"
                if key == "target_bos":
                    advice = f"export --to {'marian' if own else 'marian-npz'}"
                raise UserError(
                    f"model.{key}={str(own).lower()}: cannot be exported to {self.title}; "
                    f"{advice}, or export --to ctranslate2"
                )
        self.order = self._order(trained)
        unshared.refuse(trained.settings, trained.model, self.engine)
        sides = {"source": trained.source, "target": trained.target}
        self.segmenters = [
            unshared.plain_sentencepiece(side.segmenter, self.engine, "knows pieces of "
                                         "SentencePiece alone; train with segmenter=unigram")
            for side in sides.values()
        ]  # fmt: skip
        for name, side in sides.items():
            if special := marian_ids.SPECIAL & set(side.vocabulary.to_json()):
                raise UserError(
                    f"the {name} vocabulary holds {min(special)}, which has a meaning of its own "
                    f"in {self.engine}"
                )
        self.positions = max(self.table, (trained.facts["longest_source"] or 0) + 1)
        self.ids = self.numberings(*(side.vocabulary for side in sides.values()))

    def written(self, directory: Path, precision: str) -> EngineScorer:
        """Make the directory; the precision is float32."""
        directory.mkdir()
        for name, data in self.files():
            (directory / name).write_bytes(data)
        self.write_weights(directory)
        return self.scorer(directory)

    def scorer(self, directory: Path) -> EngineScorer:
        """Open the directory."""
        return self.scorer_class(directory, self.trained.settings.decode, *self.ids)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files (name, bytes) of the directory, but for the weights."""
        settings, (source, target) = self.trained.settings, self.ids
        config = self.config(settings.model, source, target, self.positions)
        yield "config.json", manifest.dump(config)
        generation = transformers_config.to_generation(settings.decode, target, self.positions)
        yield "generation_config.json", manifest.dump(generation)
        yield from self.tokenizer_files()

    def tokenizer_files(self) -> Iterator[tuple[str, bytes]]:
        """Those of the tokenizer."""
        data, (source, target) = self.trained.settings.data, self.ids
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

    def write_weights(self, directory: Path) -> None:
        """Make their file."""
        tensors = marian_weights.to_theirs(self.trained, self.order, self.ids, HUGGING_FACE)
        bias = tensors.pop(BIAS)
        tensors = {n if n == OUTPUT else f"model.{n}": t for n, t in tensors.items()}
        if self.has_bias:
            tensors[BIAS] = bias[None]
        content = manifest.dump_tensors(tensors, {"format": "pt"})
        (directory / "model.safetensors").write_bytes(content)

    def code(self, place: str) -> str | None:
        """Lines for MarianTokenizer and MarianMTModel."""
        return card_code.program(self.trained, place, self.positions - 2, MarianScorer.classes)

    def _order(self, trained: Trained) -> Tensor:
        """Which of our components each of theirs is; UserError unless positions are theirs.

        The proof rejects a model whose encoder and decoder differ in the layout of sinusoids.
        """
        _, denominator, start = self.SINUSOIDS
        usual, layout = (Index(start), denominator), ""
        for name in ("encoder", "decoder"):
            entries = list(trained.model.sites[name])
            e = entries[0] if len(entries) == 1 else None
            if not isinstance(e, Absolute) or (e.positions, e.denominator) != usual:
                names = "+".join(e.name for e in entries)
                raise UserError(
                    f"encoding.{names}: cannot be exported to {self.engine}, which adds "
                    f"sinusoids to the embeddings of the {name} and knows no other positions; the "
                    f"nearest is {' '.join(sinusoids(*self.SINUSOIDS))}"
                )
            layout = e.layout
        components = torch.arange(trained.settings.model.dim)
        if layout == "halves":
            return components
        return torch.cat([components[0::2], components[1::2]])
