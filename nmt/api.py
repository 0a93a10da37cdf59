"""The Python API: what the commands do, as functions.

docs/python.md shows all of it at work. `nmt.NAME` imports this module, and so torch, when a name is
first used: `import nmt` alone is quick.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nmt import build, modeldir
from nmt.config.check import PositiveInt, fit
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
from nmt.evaluation.options import USUAL
from nmt.evaluation.options import EvaluationOptions as EvaluationOptions
from nmt.model.transformer import Transformer as Transformer
from nmt.modeldir import Trained as Trained

if TYPE_CHECKING:  # who translates needs none of these
    from nmt.config.catalog import EncodingFacts as EncodingFacts
    from nmt.config.compose import Experiment as Experiment
    from nmt.corpus.prepare import Prepared as Prepared
    from nmt.evaluation.report import Report as Report
    from nmt.training.run import Outcome as Outcome

Columns = Mapping[str, Iterable[str]]  # by name: integers for the words of each line of the text


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
    """Translate lines: one translation for each, in their order.

    `model` may be a list of models with equal vocabularies, which translate together by the mean of
    their probabilities; they search as the first was trained to. `decode` are keys of the group
    decode, as `beam_size=8, alpha=1.0`. `columns` are the integers of each line that encodings of
    trees need. `target_prefixes` are the beginnings that the translations must have, empty where
    one is free. `workers` are processes that search, with one thread each; None: the fastest.
    `engine="auto"` is CTranslate2 where it can, see docs/translate.md: it is opened anew for each
    call. `progress` is called with the number of lines that are done. Raises UserError for a key or
    value that does not fit (exit code 2), and for text that cannot be translated (65).

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> nmt.translate(model, ["Die Frau liest einen Brief."], beam_size=1)
    ['The woman reads a letter.']
    """
    options = (1, columns, target_prefixes, workers, engine, progress)
    return [best.text for best, *_ in n_best(model, lines, *options, **decode)]


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
    texts = _single_lines("lines", _texts("lines", lines))  # a single text is refused at once
    translated = translator.translate(texts, read_ahead=workers != 1)
    return (best.text for best, *_ in translated)


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

    Takes and raises what `translate` does. A score is the log-probability over the length penalty.
    With `method="sample"` they are n samples in the order in which they were drawn, and a score is
    the log-probability alone; with `mbr=32` the n of 32 candidates with the greatest expected chrF,
    which is their score.
    """
    needs = [] if target_prefixes is None else ["target prefixes"]
    translator = _translator(model, n, workers, engine, decode, needs)
    texts, streams = list(_single_lines("lines", lines)), dict(columns or {})
    prefixes = target_prefixes
    if prefixes is not None:
        prefixes = list(_single_lines("target_prefixes", prefixes))
    translated = list[list[Translation]]()
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
    first, *further = _models_to_run(model)
    fit(PositiveInt | None, workers, "workers")
    settings = with_decode(first.settings, decode)
    settings.decode.check_n_best(n, f"n={n}", "give beam_size")
    if engine == "nmt":
        return Translator.of(first, settings.decode, *further, workers=workers)
    from nmt.exchange import engines  # and what exports a model

    return engines.translator([first, *further], settings.decode, workers, engine, needs)


def score(
    model: Trained,
    sources: Iterable[str],
    targets: Iterable[str],
    columns: Columns | None = None,
    batch_tokens: int = 4000,
) -> list[GivenTranslation]:
    """Score given translations: the log-probability of `targets[i]` for the line `sources[i]`.

    Each answer has the pieces, a log-probability (natural logarithm) for each of them, their sum
    `log_prob` and their number `length`, the end of the sentence included. Raises UserError (65)
    for texts that are not parallel, or lines that the encoding's table cannot hold.

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> (one,) = nmt.score(model, ["Die Frau schläft."], ["The woman sleeps."])
    >>> one.log_prob / one.length > -0.5
    True
    """
    from nmt.decode.models import adapt  # here: who translates elsewhere needs no engine

    (model,) = _models_to_run(model)
    fit(PositiveInt, batch_tokens, "batch_tokens")
    texts, translations = _parallel_lines(sources, targets)
    model = adapt(model, model.settings.decode)
    streams, window = dict(columns or {}), max(1, len(translations))
    scored = score_translations(
        model, texts, translations, streams, batch_tokens=batch_tokens, window=window
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
    `words` [target, source + 1] all weights, that of the end of the line last, and `attention`
    [target, source] the weights of pieces. It is the cross-attention of the decoder's last layer
    but one, the mean over heads. Takes and raises what `n_best` does.

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> (one,) = nmt.align(model, ["Die Frau schläft."], ["The woman sleeps."])
    >>> one.pairs
    [(0, 0), (1, 1), (2, 2)]
    """
    translator = _translator(model, 1, 1, "nmt", decode)
    texts, translations = _parallel_lines(sources, targets)
    return translator.align(texts, translations, dict(columns or {}))


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

    Raises UserError, and writes nothing: 73 for a path that exists, 65 for what `load` would
    refuse, such as weights in bfloat16 or facts without `longest_source`.
    """
    if Path(path).exists():
        raise UserError(f"{path}: exists; give another path, or remove it", Exit.CANT_CREATE)
    modeldir.check_model(model)
    modeldir.save(model, Path(path))


def evaluate(
    systems: Mapping[str, str | Path],
    reference: str | Path,
    source: str | Path | None = None,
    options: EvaluationOptions = USUAL,
) -> "Report":
    """Score systems by source length, with intervals, and test each against the first.

    `systems` are model directories, which translate the file `source`, or files of translations, by
    the labels that tables show. `reference` is the file of the right translations.
    `nmt.evaluation.text.render` makes of the report what nmt-evaluate prints, and `report.figures`
    are rows of plain numbers, as for a pandas.DataFrame. Raises UserError: 2 for what does not fit
    together, 65 for files of unequal lines, 66 for what is not there.

    >>> report = nmt.evaluate({"baseline": "runs/a", "mine": "out.txt"}, "test.en", "test.de")
    >>> report.figure("BLEU", "mine").mean
    31.4
    """
    from nmt.evaluation.run import evaluate as evaluate_systems
    from nmt.evaluation.systems import read_named_systems
    from nmt.evaluation.testsets import single_test

    options = options._replace(
        bounds=list(map(index, options.bounds)),  # plain numbers, also of numpy
        columns={name: Path(path) for name, path in options.columns.items()},
        scores={name: Path(path) for name, path in options.scores.items()},
    )
    named = read_named_systems((label, str(path)) for label, path in systems.items())
    test = single_test([] if source is None else [Path(source)], [Path(reference)])
    return evaluate_systems(named, [test], options)


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> "Experiment":
    """The experiment that these overrides mean to nmt-train: its settings and its directory.

    `config_dir` is a folder of your own options, as `--config-dir`. Nothing is read but conf/.
    Raises UserError for an override that does not fit, with what is near, and for a sweep.

    >>> nmt.compose(["encoding=relative", "tau=8"]).run
    PosixPath('runs/toy/relative-tau8-seed1')
    """
    from nmt.config.catalog import config_dir_override
    from nmt.parent import experiment_of

    folder = config_dir_override(None if config_dir is None else str(config_dir))
    return experiment_of([*folder, *_texts("overrides", overrides)])


def train(experiment: "Experiment") -> "Outcome":
    """Train in the experiment's directory, or go on there, as nmt-train does.

    The outcome has the last `step` and the `best` score on the development text. Raises UserError
    for settings that cannot be, another config or corpus in the directory, and where a signal (exit
    code 128 + its number) or trainer.max_hours (75) stopped the run: it is saved, to be resumed.

    >>> nmt.train(nmt.compose(["encoding=relative", "tau=8"])).step
    3160
    """
    from nmt.exchange.exporting import refuse_target
    from nmt.training import run as training

    return training.train(experiment.settings, experiment.run, refuse_target=refuse_target)


def prepare(settings: Settings) -> "Prepared":
    """The corpus in ids, prepared now unless it is in the cache.

    `train` and `dev` are stores of ids, `source` and `target` have segmenter and vocabulary, and
    `report["train"]["dropped"]` counts the pairs that were dropped. Raises UserError: 66 if a file
    is missing, 65 if its text is unusable.
    """
    from nmt.training import corpus

    return corpus.prepare(settings)


def list_encodings(config_dir: str | Path | None = None) -> list["EncodingFacts"]:
    """All options of `encoding=`, by family, also of a folder of your own."""
    from nmt.config import catalog

    folders = () if config_dir is None else (Path(config_dir),)
    catalog.config_dir_override(*map(str, folders))  # refuses what is no directory
    catalog.check_folders(folders)
    return catalog.list_encodings(folders)


def _texts(name: str, texts: Iterable[str]) -> Iterable[str]:
    """The texts; UserError for one text, whose letters would be taken for texts."""
    if isinstance(texts, str):
        raise UserError(f"{name}: a text, where a list of them is expected; write [{texts[:20]!r}]")
    return texts


def _single_lines(name: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; UserError for one of several lines, which has no single answer."""
    for number, text in enumerate(_texts(name, texts)):
        if "\n" in text[:-1]:  # at its end, a text may have that of its line
            raise UserError(f"{name}[{number}]: {text[:20]!r} has several lines; give each alone")
        yield text


def _parallel_lines(sources: Iterable[str], targets: Iterable[str]) -> tuple[list[str], list[str]]:
    return [*_single_lines("sources", sources)], [*_single_lines("targets", targets)]


def _models_to_run(model: Trained | Sequence[Trained]) -> list[Trained]:
    """One model or several; UserError for one in training mode, which drops at random."""
    models = [model] if isinstance(model, Trained) else list(model)
    if any(one.model.training for one in models):
        raise UserError("model: in training mode, which drops at random; call model.model.eval()")
    return models
