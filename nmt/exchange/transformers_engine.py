"""Open directories of Hugging Face transformers by its classes; their errors become one line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.errors import UserError, is_out_of_memory, visible
from nmt.exchange.interface import TRANSFORMERS, EngineScorer, Output, invalid
from nmt.exchange.marian_weights import ABSENT, EngineIds
from nmt.exchange.proof import IMPOSSIBLE
from nmt.modeldir import CONFIG, Trained
from nmt.system import manifest
from nmt.text.vocab import BOS, EOS, Vocabulary

GENERATION, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"
PIECES = "vocab.json"
JSON = "*config.json", "*vocab.json", "tokenizer.json", "special_tokens_map.json", "added_*.json"
MARIAN = "MarianMTModel", "MarianTokenizer"  # classes of transformers
M2M100 = "M2M100ForConditionalGeneration", "M2M100Tokenizer"
NLLB = M2M100[0], "NllbTokenizer"
# with which M2M100 and NLLB are stored; None: not stated
TOKENIZERS = M2M100[1], NLLB[1], f"{NLLB[1]}Fast", "TokenizersBackend", None


def find_classes(directory: Path) -> tuple[str, str]:
    """The classes of transformers for the model and the tokenizer of a directory.

    UserError (65) for other classes, which may compute something else or add other pieces, and for
    adapters, which transformers leaves out where their package is missing.
    """
    if (directory / "adapter_config.json").exists():
        raise invalid(directory, "weights of an adapter; give the whole model")
    if (kind := manifest.read(directory / CONFIG, None).get("model_type")) == "marian":
        return MARIAN
    path = directory / TOKENIZER_CONFIG
    tokenizer = manifest.read(path, None).get("tokenizer_class") if path.exists() else None
    for key, value, readable in (
        ("model_type", kind, ("m2m_100",)),
        ("tokenizer_class", tokenizer, TOKENIZERS),
    ):
        if value not in readable:
            names = ", ".join(map(str, readable))
            raise invalid(directory, f"{key}={visible(value, 40)}: can only be {names}")
    return M2M100 if (directory / PIECES).exists() else NLLB


@contextmanager
def in_transformers(directory: Path) -> Iterator[Any]:
    """Yield the package, without its log; its errors become a UserError (65) in one line."""
    TRANSFORMERS.require(str(directory))
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield transformers
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"  # of tokenizers, which is no Exception
        foreign = is_panic or (isinstance(error, Exception) and not isinstance(error, UserError))
        if not foreign or is_out_of_memory(error):
            raise
        sentence = " ".join(str(error).split()).split(". ")[0]
        what = f"{type(error).__name__}: {visible(sentence, 300)}"
        raise invalid(directory, f"transformers cannot read it ({what})") from None


def open_tokenizer(directory: Path, **options: Any) -> Any:
    """The tokenizer of a directory; UserError (65) for a file of damaged JSON."""
    for path in (file for pattern in JSON for file in sorted(directory.glob(pattern))):
        manifest.read(path, None)  # transformers passes over some that it refuses
    with in_transformers(directory) as transformers:
        kind = getattr(transformers, find_classes(directory)[1])
        return kind.from_pretrained(directory, local_files_only=True, **options)


def open_model(directory: Path) -> Any:
    """The model of a directory in float32; UserError (65) for missing or superfluous weights.

    transformers itself draws missing weights at random.
    """
    with in_transformers(directory) as transformers:
        kind = getattr(transformers, find_classes(directory)[0])
        model, report = kind.from_pretrained(
            directory,
            local_files_only=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report names them
        )
    for what in ("missing", "mismatched", "unexpected"):
        keys = sorted(map(str, report[f"{what}_keys"]))
        # positions that transformers computes; M2M100 had them stored
        if names := [key for key in keys if not key.endswith("embed_positions.weights")]:
            raise invalid(directory, f"{what} weights, by {CONFIG}: {', '.join(names[:3])}")
    return model


def pieces_of(tokenizer: Any) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The ids of the pieces of source and target; one object if both share a vocabulary."""
    if hasattr(tokenizer, "lang_token_to_id"):  # M2M100
        ids = {**tokenizer.encoder, **tokenizer.lang_token_to_id}
    elif hasattr(tokenizer, "encoder"):  # Marian
        ids = tokenizer.encoder
        return ids, tokenizer.target_encoder if tokenizer.separate_vocabs else ids
    else:  # NLLB
        ids = tokenizer.get_vocab()
    return ids, ids


def language_id(ids: Mapping[str, int], name: str) -> int | None:
    """The id of a language by its code, such as de of `__de__`, or by its piece."""
    return ids.get(f"__{name}__", ids.get(name))


class TransformersScorer(EngineScorer):
    """A directory opened by a model class and a tokenizer of transformers.

    From nmt's model it takes only the pieces, whose ids the tokenizer says, and the languages.
    """

    library = TRANSFORMERS

    def __init__(self, directory: Path, trained: Trained) -> None:
        """Raises UserError (65) for a directory that transformers cannot read."""
        decode = trained.settings.decode
        languages = decode.source_language, decode.target_language
        options = {"src_lang": languages[0].strip("_")} if languages[0] else {}
        self.tokenizer = open_tokenizer(directory, **options)
        if backend := getattr(self.tokenizer, "backend_tokenizer", None):
            backend.encode_special_tokens = True  # what looks like such a piece is text
        self.model = open_model(directory)
        for module in self.model.modules():
            if hasattr(module, "create_weight"):  # Marian's sinusoids: stored ones may be rounded
                module.weight.data = module.create_weight()
                self.longest_source = self.longest_target = len(module.weight)
        config, unk = self.model.generation_config, self.tokenizer.unk_token_id
        start, eos = config.decoder_start_token_id, self.tokenizer.eos_token_id
        self._never = [[i] for i in {self.tokenizer.pad_token_id, start} - {eos}]
        self._never += [[unk]] if [unk] in (config.bad_words_ids or []) else []
        # nmt takes over nothing else of generation_config.json
        special = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
        kept = {key: getattr(config, key) for key in special}
        self.model.generation_config = type(config)(**kept)
        ids = pieces_of(self.tokenizer)
        self.source = self._number(trained.source.vocabulary, ids[0], start)
        self.target = self._number(trained.target.vocabulary, ids[1], start)
        self._before_source, language = (
            [language_id(side_ids, name)] if name else []
            for name, side_ids in zip(languages, ids, strict=True)
        )
        self._before_target = [start, *language]
        self.absent = self.barred = self.target.absent

    def _number(self, vocabulary: Vocabulary, ids: Mapping[str, int], start: int) -> EngineIds:
        """The tokenizer's ids of nmt's pieces; made-up pieces get the remaining rows."""
        t, pieces = self.tokenizer, vocabulary.to_json()
        used = {start, *t.all_special_ids, *(ids[piece] for piece in pieces if piece in ids)}
        free = (i for i in count() if i not in used)
        order = [ids[piece] if piece in ids else next(free) for piece in pieces]
        pad = ABSENT if t.pad_token_id == start else t.pad_token_id
        return EngineIds(vocabulary, [pad, start, t.eos_token_id, t.unk_token_id, *order])

    def source_ids(self, line: str) -> list[int]:
        """The ids of a line with eos, without the language that the tokenizer puts first."""
        ids = self.tokenizer(line, split_special_tokens=True)["input_ids"]
        before = len(self._before_source)
        return self.source.to_nmt(ids[before:] if ids[:before] == self._before_source else ids)

    def log_probs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Tensor]:
        """Log-probabilities of all ids but PAD."""
        for source, target in pairs:
            before = torch.tensor([[*self._before_target, *self.target.to_engine(target)]])
            with torch.inference_mode():
                logits = self.model(**self._inputs(source), decoder_input_ids=before).logits[0]
            rows = logits[len(self._before_target) - 1 :].log_softmax(-1)
            rows = rows[:, self.target.numbers[BOS:]]
            if BOS in self.absent:
                rows[:, 0] = IMPOSSIBLE
            yield rows

    @torch.inference_mode()
    def output(self, source: list[int], limit: int, beam: int) -> Output:
        (row,) = self.model.generate(
            **self._inputs(source),
            decoder_input_ids=torch.tensor([self._before_target]),
            num_beams=beam,
            do_sample=False,
            length_penalty=0.0,
            early_stopping=False,
            forced_eos_token_id=None,
            bad_words_ids=self._never,
            max_new_tokens=limit + 1,  # eos, too
        )
        ids = self.target.to_nmt(row.tolist()[len(self._before_target) :])
        return Output(ids[:-1], ids[-1] == EOS)

    def _inputs(self, source: list[int]) -> dict[str, Tensor]:
        ids = torch.tensor([[*self._before_source, *self.source.to_engine([*source, EOS])]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
