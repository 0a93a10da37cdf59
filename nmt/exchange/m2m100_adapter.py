"""A model as an M2M100 or NLLB directory of Hugging Face: the way back of `transformers_read`.

Such a model is one of Marian's with norms before the sublayers, one matrix for all embeddings
without a bias, fairseq's sinusoids from position 2 on, and pieces for languages.
"""

from collections.abc import Iterator, Mapping

import torch

from nmt.errors import UserError
from nmt.exchange import card_code, m2m100_tokens, transformers_config
from nmt.exchange.marian_adapter import MarianAdapter
from nmt.exchange.transformers_config import M2M100Config
from nmt.exchange.transformers_scorer import M2M100Scorer
from nmt.modeldir import Trained
from nmt.text.vocab import BOS, EOS


class M2M100Adapter(MarianAdapter):
    """Models of the form that `transformers_read.m2m100` reads."""

    title = "Hugging Face transformers (M2M100, NLLB)"
    engine = "M2M100"
    has_languages = True
    has_bias = False
    required: Mapping[str, object] = {**MarianAdapter.required, "norm": "pre", "tie": "all"}
    SINUSOIDS, table = M2M100Config.SINUSOIDS, 1024
    scorer_class = M2M100Scorer
    numberings = staticmethod(m2m100_tokens.numberings)
    config = staticmethod(transformers_config.to_m2m100_config)

    def __init__(self, trained: Trained) -> None:
        """Raises UserError for a model that such a directory cannot hold."""
        super().__init__(trained)
        output, decode = trained.model.output, trained.settings.decode
        languages = decode.source_language, decode.target_language
        bias = output.bias.clone()
        bias[BOS] = 0
        for wrong, what, why in (
            (
                None in languages,
                "decode.source_language and target_language",
                "they are never null",
            ),
            (bias.any(), "output.bias", "there is none (trainer.freeze=[output.bias] leaves it)"),
            (
                not torch.equal(output.weight[BOS], output.weight[EOS]),
                "the embedding of bos",
                "it is that of eos (trainer.freeze=[embeddings] leaves it)",
            ),
        ):
            if wrong:
                raise UserError(
                    f"{what}: cannot be exported to M2M100, where {why}; export --to ctranslate2"
                )
        vocabulary, names = self.ids[0].vocabulary, [str(name) for name in languages]
        self.tokenizer = m2m100_tokens.to_files(self.segmenters[0], vocabulary, names)

    def tokenizer_files(self) -> Iterator[tuple[str, bytes]]:
        """Those of the tokenizer."""
        yield from self.tokenizer.items()

    def code(self, place: str) -> str:
        """Lines for the tokenizer and M2M100ForConditionalGeneration."""
        classes = m2m100_tokens.classes(self.tokenizer)
        return card_code.program(self.trained, place, None, classes)
