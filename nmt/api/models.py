"""The Python API, models: read and write them, translate, score, and make new ones.

docs/python.md shows all of it at work. `nmt.NAME` imports this module, and so torch, when a name is
first used: `import nmt` alone is quick.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmt import build, modeldir
from nmt.api import arguments
from nmt.api.arguments import Columns
from nmt.config.settings import Settings as Settings
from nmt.config.settings import with_decode
from nmt.decode.alignment import Alignment as Alignment
from nmt.decode.score import GivenTranslation as GivenTranslation
from nmt.decode.score import score_translations
from nmt.decode.translator import Translation as Translation
from nmt.decode.translator import Translator
from nmt.encodings import registry
from nmt.encodings.base import Dims
from nmt.encodings.base import Encoding as Encoding
from nmt.errors import Exit
from nmt.errors import UserError as UserError
from nmt.model.transformer import Transformer as Transformer
from nmt.modeldir import Trained as Trained


def load(path: str | Path, device: str | torch.device = "cpu") -> Trained:
    """Read a run (its best checkpoint), a checkpoint, or a model directory, onto a device.

    Every byte is compared with the manifest before it is parsed. Raises UserError: exit 66 where
    nothing is, 65 where something else or something damaged is.

    >>> nmt.load("runs/toy/relative-seed1", "cuda")
    """
    return modeldir.load(path, device)


def translate(
    model: Trained | Sequence[Trained],
    lines: Iterable[str],
    columns: Columns | None = None,
    target_prefixes: Iterable[str] | None = None,
    workers: int | None = None,
    engine: str = "nmt",
    progress: Callable[[int], None] | None = None,
    **decode: Any,
) -> list[str]:
    """Translate texts, mostly lines: one translation for each, in their order.

    A text of several lines is translated line by line, and has the same breaks in its translation.
    `model` may be a list of models with equal vocabularies, which translate together by the mean of
    their probabilities; they search as the first was trained to. `decode` are keys of the group
    decode, as `beam_size=8, alpha=1.0`; others stay as the model was trained with. `columns` are
    the integers of each line that encodings of trees need. `target_prefixes` are the beginnings
    that the translations must have, one for each line, empty where it is free. `workers` are
    processes that search, with one thread each; None: as many as torch has threads where that pays
    for the text, and where nothing speaks against a fork (another thread of Python, a GPU).
    `engine="auto"` is CTranslate2 where it can, see docs/translate.md: it is opened anew for each
    call. `progress` is called with the number of lines that are done, for each line when its window
    is. Raises UserError for a key or value that does not fit (exit code 2), and for text that
    cannot be translated (65).

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> nmt.translate(model, ["Die Frau liest einen Brief."], beam_size=1)
    ['The woman reads a letter.']
    """
    prefixes = target_prefixes
    if columns or prefixes is not None:  # which belong to single lines
        lines = arguments.single_lines("lines", lines)

    def search(lines: Iterable[str]) -> list[list[Translation]]:
        return n_best(model, lines, 1, columns, prefixes, workers, engine, progress, **decode)

    return list(arguments.by_lines(arguments.lines("lines", lines), search))


def translate_stream(
    model: Trained | Sequence[Trained],
    lines: Iterable[str],
    workers: int | None = 1,
    engine: str = "nmt",
    **decode: Any,
) -> Iterator[str]:
    """Translate lines as they come: reads `window` of them (2,000), yields as many, and reads on.

    So a text may be larger than the memory, or never end; with `window=1` and one worker each line
    is answered before the next is read. Takes and raises what `translate` does, but for columns,
    prefixes and `progress`: models that need columns are refused.

    >>> with open("large.de") as file:
    ...     for line in nmt.translate_stream(model, file, workers=None):
    ...         print(line)
    """
    translator = _translator(model, 1, workers, engine, decode)
    search = partial(translator.translate, read_ahead=workers != 1)
    return arguments.by_lines(arguments.each_line("lines", lines), search)


def n_best(
    model: Trained | Sequence[Trained],
    lines: Iterable[str],
    n: int,
    columns: Columns | None = None,
    target_prefixes: Iterable[str] | None = None,
    workers: int | None = None,
    engine: str = "nmt",
    progress: Callable[[int], None] | None = None,
    **decode: Any,
) -> list[list[Translation]]:
    """The n best translations of each line, best first, with their scores.

    A score is the log-probability over the length penalty. An empty line has one empty translation.
    Takes and raises what `translate` does, but refuses texts of several lines; `n` is at most
    `beam_size`. With `method="sample"` they are n samples, in the order in which they were
    drawn, and a score is the log-probability alone; with `mbr=32` the n of 32 candidates with the
    greatest expected chrF, which is their score.
    """
    needs = [] if target_prefixes is None else ["target prefixes"]
    translator = _translator(model, n, workers, engine, decode, needs)
    texts, prefixes = arguments.single_lines("lines", lines), target_prefixes
    if prefixes is not None:
        prefixes = arguments.single_lines("target_prefixes", prefixes)
    translated = list[list[Translation]]()
    streams = arguments.columns(columns)
    for of_line in translator.translate(texts, n, streams, prefixes=prefixes, read_ahead=True):
        translated.append(of_line)
        if progress is not None:
            progress(len(translated))
    return translated


def _translator(
    model: Trained | Sequence[Trained],
    n: int,
    workers: int | None,
    engine: str,
    decode: Mapping[str, Any],
    needs: Sequence[str] = (),
) -> Translator:
    """A translator with other values of the group decode, which finds n translations of a line."""
    first, *others = arguments.models_to_run(model)
    arguments.positive(workers=workers)
    settings = with_decode(first.settings, decode)
    settings.decode.check_n_best(n, f"n={n}", "give beam_size")
    if engine == "nmt":
        return Translator.of(first, settings.decode, *others, workers=workers)
    from nmt.exchange import engines  # and what exports a model

    return engines.translator([first, *others], settings.decode, workers, engine, needs)


def score(
    model: Trained,
    sources: Iterable[str],
    targets: Iterable[str],
    columns: Columns | None = None,
    batch_tokens: int = 4000,
) -> list[GivenTranslation]:
    """How likely the model finds given translations: `targets[i]` of the line `sources[i]`.

    Each answer has the pieces, a log-probability (natural logarithm) for each of them, their sum
    `log_prob` and their number `length`, the end of the sentence included. A batch holds about
    `batch_tokens` tokens of the longer side. Raises UserError (65) for texts that are not parallel,
    or lines that the encoding's table cannot hold.

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> (one,) = nmt.score(model, ["Die Frau schläft."], ["The woman sleeps."])
    >>> one.log_prob / one.length > -0.5
    True
    """
    from nmt.decode.models import adapt  # here: who translates elsewhere needs no engine

    (model,) = arguments.models_to_run([model])
    arguments.positive(batch_tokens=batch_tokens)
    texts = arguments.single_lines("sources", sources)
    translations = arguments.single_lines("targets", targets)
    whole = max(1, len(translations))  # one window
    streams = arguments.columns(columns)
    model = adapt(model, model.settings.decode)
    scored = score_translations(
        model, texts, translations, streams, batch_tokens=batch_tokens, window=whole
    )
    return [pair for pair in scored if pair is not None]  # all: too long ones are raised


def align(
    model: Trained | Sequence[Trained],
    sources: Iterable[str],
    targets: Iterable[str],
    columns: Columns | None = None,
    **decode: Any,
) -> list[Alignment]:
    """Which words of each line and of its translation `targets[i]` belong together, by attention.

    `pairs` has for each word of the translation the word of the line with most weight, both from 0;
    words are what white space separates. `words` [target, source + 1] has all weights, with those
    of the end of the line last, and `attention` [target, source] those of the pieces. It is the
    cross-attention of the decoder's last layer but one, the mean over heads. Takes and raises what
    `n_best` does, and UserError (65) for lines that the encoding's table cannot hold.

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> (one,) = nmt.align(model, ["Die Frau schläft."], ["The woman sleeps."])
    >>> one.pairs
    [(0, 0), (1, 1), (2, 2)]
    """
    translator = _translator(model, 1, 1, "nmt", decode)
    texts = arguments.single_lines("sources", sources)
    translations = arguments.single_lines("targets", targets)
    return translator.align(texts, translations, arguments.columns(columns))


def build_model(settings: Settings, source_size: int, target_size: int) -> Transformer:
    """A model with fresh weights, drawn from torch's global generator; in training mode.

    The sizes are those of the vocabularies. `model(source, target)` maps ids [batch, source] and
    prefixes [batch, target] to logits [batch, target, vocab]. Raises UserError that names the key
    whose value cannot be.

    >>> nmt.build_model(nmt.compose(["encoding=rotary"]).settings, 100, 100)(source, target).shape
    torch.Size([8, 20, 100])
    """
    return build.transformer(settings, source_size, target_size)


def build_encodings(
    settings: Settings, site: str = "encoder", vocabulary_size: int = 0
) -> list[Encoding]:
    """The encodings of one attention site: "encoder", "decoder" (its self-attention) or "cross".

    They have the width, heads and layers of `settings.model`. Those that learn something per word
    need the size of their side's vocabulary. Raises UserError for a site or option that cannot be.

    >>> (relative,) = nmt.build_encodings(nmt.compose(["encoding=relative"]).settings)
    """
    if site not in registry.SITES:
        raise UserError(f"site={site}: choose among {', '.join(registry.SITES)}")
    model = settings.model
    layers = model.encoder_layers if site == "encoder" else model.decoder_layers
    head_dim = model.dim // model.heads
    try:
        return registry.create(
            settings.encoding, Dims(site, layers, model.heads, model.dim, head_dim, vocabulary_size)
        )
    except ValueError as error:
        raise UserError(str(error)) from None


def save(model: Trained, path: str | Path) -> None:
    """Write a model directory that `load` and all commands read; the path must not exist.

    Raises UserError: 73 for a path that exists, 65 for what `load` would refuse, such as weights in
    bfloat16 or facts without `longest_source`. Then nothing is written. Raises OSError where
    writing fails; then no model is left behind.
    """
    (model,) = arguments.models([model])
    if Path(path).exists():
        raise UserError(f"{path}: exists; give another path, or remove it", Exit.CANT_CREATE)
    modeldir.check_model(model)
    modeldir.save(model, Path(path))
