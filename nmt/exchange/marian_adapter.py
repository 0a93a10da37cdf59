"""Models as directories of Hugging Face (Marian, M2M100, NLLB): `transformers_read` reads these.

Marian knows one form of model: norms after the sublayers and none above the stacks,
embeddings times the root of the width, sinusoids as halves of sines and cosines, SentencePiece.
Where sines and cosines alternate, the same numbers stand in another order: so do then the
components of all vectors that the layers pass on, and the model computes the same. M2M100 and NLLB
have norms before the sublayers, one matrix for all embeddings without a bias, fairseq's sinusoids
from position 2 on, and pieces for languages.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Index
from nmt.errors import Exit, UserError
from nmt.exchange import card_code, m2m100_tokens, marian_ids, marian_weights, unshared
from nmt.exchange import transformers_config as configs
from nmt.exchange import transformers_files as files
from nmt.exchange.adapter import TRANSFORMERS, Adapter, EngineScorer
from nmt.exchange.marian_weights import BIAS, HUGGING_FACE, OUTPUT
from nmt.exchange.settings import UNNAMED, sinusoids
from nmt.exchange.transformers_config import M2M100_SINUSOIDS, MARIAN_SINUSOIDS
from nmt.exchange.transformers_files import M2M100, MARIAN, NLLB, PIECES, TOKENIZER
from nmt.exchange.transformers_scorer import TransformersScorer
from nmt.modeldir import Trained
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS

POSITIONS = 1024  # of the table, as in the largest models; imported ones keep theirs


class MarianAdapter(Adapter):
    """Models with norms after the sublayers, sinusoids and SentencePiece."""

    library = TRANSFORMERS
    title = "Hugging Face transformers (Marian)"
    engine = "Marian"
    on_hub: str | None = "transformers"
    required: Mapping[str, object] = {
        "norm": "post",
        "norm_epsilon": 1e-5,
        "source_eos": True,
        "target_bos": True,
    }
    model_class = MARIAN[0]
    SINUSOIDS = MARIAN_SINUSOIDS
    numberings = staticmethod(marian_ids.numberings)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        for key, value in self.required.items():
            if (own := getattr(trained.settings.model, key)) != value:
                advice = f"train with model.{key}={str(value).lower()}"
                if key == "target_bos":
                    advice = f"export --to {'marian' if own else 'marian-npz'}"
                what = f"model.{key}={str(own).lower()}: cannot be exported to {self.title}"
                raise UserError(f"{what}; {advice}, or export --to ctranslate2")
        self.order = self._order(trained)
        unshared.refuse(trained.settings, trained.model, self.engine)
        why = "knows pieces of SentencePiece alone; train with segmenter=unigram"
        sides = trained.source, trained.target
        self.segmenters = [
            unshared.plain_sentencepiece(side.segmenter, self.engine, why) for side in sides
        ]
        for side in sides:
            if special := marian_ids.SPECIAL & set(side.vocabulary.to_json()):
                what = f"the vocabulary holds {min(special)}"
                raise UserError(f"{what}, which has a meaning of its own in {self.engine}")
        positions, longest = (trained.facts.get(key) for key in ("positions", "longest_source"))
        self.positions = max(positions or POSITIONS, (longest or 0) + 1)
        self.ids = self.numberings(*(side.vocabulary for side in sides))

    def written(self, directory: Path, precision: str) -> EngineScorer:
        """Make the directory; the precision is float32."""
        directory.mkdir()
        for name, data in self.files():
            (directory / name).write_bytes(data)
        self.write_weights(directory)
        return self.scorer(directory)

    def scorer(self, directory: Path) -> EngineScorer:
        """Open the directory."""
        return TransformersScorer(directory, self.trained)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files (name, bytes) of the tokenizer."""
        data, (source, target) = self.trained.settings.data, self.ids
        languages = {"source_lang": data.source_language, "target_lang": data.target_language}
        separate = source.vocabulary.to_json() != target.vocabulary.to_json()
        yield files.TOKENIZER_CONFIG, manifest.dump({
            **{key: language for key, language in languages.items() if language != UNNAMED},
            "model_max_length": self.positions,
            "separate_vocabs": separate,
            "tokenizer_class": "MarianTokenizer",
        })  # fmt: skip
        yield PIECES, manifest.dump(source.to_json())
        if separate:
            yield "target_vocab.json", manifest.dump(target.to_json())
        for name, segmenter in zip(("source", "target"), self.segmenters, strict=True):
            yield f"{name}.spm", segmenter.model

    def write_weights(self, directory: Path) -> None:
        """Let transformers write weights, config.json and generation_config.json."""
        settings = self.trained.settings
        source, target = self.ids
        config = configs.to_config(settings.model, source, target, self.positions)
        search = configs.to_generation(settings.decode, target, self.positions)
        tensors = marian_weights.to_theirs(self.trained, self.order, self.ids, HUGGING_FACE)
        bias = tensors.pop(BIAS)[None]
        tensors = {n if n == OUTPUT else f"model.{n}": t for n, t in tensors.items()}
        tensors |= {BIAS: bias} if self.model_class == MARIAN[0] else {}
        with files.in_transformers(directory) as transformers:
            kind = getattr(transformers, self.model_class)
            keys = {key: v for key, v in config.items() if hasattr(kind.config_class, key)}
            config = kind.config_class(**keys)
            model = kind.from_pretrained(None, config=config, state_dict=tensors)
            model.generation_config = transformers.GenerationConfig(**search)
        try:
            model.save_pretrained(directory)
        except SafetensorError as error:  # of a full disk, too
            raise UserError(f"{directory}: {error}", Exit.IO) from None

    def code(self, place: str) -> str | None:
        """Lines for MarianTokenizer and MarianMTModel."""
        return card_code.program(self.trained, place, self.positions - 2, MARIAN)

    def _order(self, trained: Trained) -> Tensor:
        """Which of our components each of theirs is; UserError unless positions are theirs."""
        layout, denominator, start = self.SINUSOIDS
        for name in ("encoder", "decoder"):
            entries = list(trained.model.sites[name])
            e = entries[0] if len(entries) == 1 else None
            if not (
                isinstance(e, Absolute)
                and (e.positions, e.denominator) == (Index(start), denominator)
            ):
                what = f"encoding.{'+'.join(e.name for e in entries)}: cannot be exported to"
                why = f"adds sinusoids to the embeddings of the {name} and knows no other positions"
                nearest = " ".join(sinusoids(*self.SINUSOIDS))
                raise UserError(f"{what} {self.engine}, which {why}; the nearest is {nearest}")
            layout = e.layout
        components = torch.arange(trained.settings.model.dim)
        if layout == "halves":
            return components
        return torch.cat([components[0::2], components[1::2]])


class M2M100Adapter(MarianAdapter):
    """Models of the form that `transformers_read.m2m100` reads."""

    title = "Hugging Face transformers (M2M100, NLLB)"
    engine = "M2M100"
    model_class = M2M100[0]
    has_languages = True
    required: Mapping[str, object] = {**MarianAdapter.required, "norm": "pre", "tie": "all"}
    SINUSOIDS = M2M100_SINUSOIDS
    numberings = staticmethod(m2m100_tokens.numberings)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        output, decode = trained.model.output, trained.settings.decode
        names = decode.source_language, decode.target_language
        bias = output.bias.clone()
        bias[BOS] = 0
        differs = not torch.equal(output.weight[BOS], output.weight[EOS])
        for wrong, what, why in (
            (None in names, "decode.source_language and target_language", "never null there"),
            (bias.any(), "output.bias", "trainer.freeze=[output.bias] leaves it at zero"),
            (differs, "the embedding of bos", "trainer.freeze=[embeddings] leaves it that of eos"),
        ):
            if wrong:
                where = f"{what}: cannot be exported to M2M100"
                raise UserError(f"{where} ({why}); export --to ctranslate2")
        self.tokenizer = m2m100_tokens.to_files(
            self.segmenters[0], self.ids[0].vocabulary, [str(name) for name in names]
        )

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files (name, bytes) of the tokenizer."""
        yield from self.tokenizer.items()

    def write_weights(self, directory: Path) -> None:
        """Write weights and configs, and tokenizer.json of NLLB, which transformers makes."""
        super().write_weights(directory)
        if PIECES not in self.tokenizer:
            tokenizer = files.open_tokenizer(directory)
            tokenizer.backend_tokenizer.save(str(directory / TOKENIZER))

    def code(self, place: str) -> str:
        """Lines for the tokenizer and M2M100ForConditionalGeneration."""
        classes = M2M100 if PIECES in self.tokenizer else NLLB
        return card_code.program(self.trained, place, None, classes)
