"""The Python API: what `import nmt` offers, in the order in which one needs it.

docs/python.md shows all of it at work. `nmt.NAME` imports this module, and so torch, when a name is
first used: `import nmt` alone is quick.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from nmt import build, corpus, modeldir
from nmt.compare.report import Report
from nmt.config import Settings
from nmt.data.prepare import Prepared
from nmt.decode import forced
from nmt.decode.forced import GivenTranslation
from nmt.decode.translator import Translation, Translator
from nmt.encodings import registry
from nmt.encodings.base import Dims, Encoding
from nmt.errors import Exit, UserError
from nmt.experiments import testsets
from nmt.experiments.columns import with_columns
from nmt.experiments.engines import check_n_best, with_decode
from nmt.experiments.evaluate import evaluate as evaluate_systems
from nmt.experiments.options import USUAL, EvaluationOptions
from nmt.experiments.systems import systems_at
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained, load
from nmt.overrides import options
from nmt.overrides.compose import Experiment, experiment_of
from nmt.training import session
from nmt.training.run import Outcome

__all__ = [
    "Encoding",
    "EncodingFacts",
    "EvaluationOptions",
    "Experiment",
    "GivenTranslation",
    "Outcome",
    "Prepared",
    "Report",
    "Settings",
    "Trained",
    "Transformer",
    "Translation",
    "UserError",
    "build_encodings",
    "build_model",
    "compose",
    "evaluate",
    "list_encodings",
    "load",
    "n_best",
    "prepare",
    "save",
    "score",
    "train",
    "translate",
]

Columns = Mapping[str, Iterable[str]]  # by name: integers beside the text, line by line


def _lines(name: str, lines: Iterable[str]) -> list[str]:
    """The lines as a list; UserError for a text, whose letters would be lines, and for no texts."""
    if isinstance(lines, str):
        raise UserError(f"{name}: a text, where a list of them is expected; write [{lines[:20]!r}]")
    if not isinstance(lines, Iterable):
        raise UserError(f"{name}: {lines!r}, where a list of texts is expected")
    listed = list(lines)
    for place, line in enumerate(listed):
        if not isinstance(line, str):
            raise UserError(f"{name}[{place}]: {line!r} is no text; write '' for an empty line")
    return listed


def _columns(columns: Columns | None) -> dict[str, list[str]]:
    """The columns as lists of lines."""
    return {name: _lines(f"columns[{name!r}]", lines) for name, lines in (columns or {}).items()}


def _models(model: Any) -> list[Trained]:
    """One model or several; UserError for what is none, such as the path of one."""
    single = isinstance(model, str | Path | Trained) or not isinstance(model, Iterable)
    models: list[Any] = [model] if single else list(model)
    for one in models:
        if isinstance(one, str | Path):
            path = repr(str(one))
            raise UserError(f"model: a path, where a model is expected; write nmt.load({path})")
        if not isinstance(one, Trained):
            raise UserError(f"model: {type(one).__name__}, where one of nmt.load is expected")
    if not models:
        raise UserError("model: an empty list; give one model or more")
    return models


class EncodingFacts(NamedTuple):
    """What a list of encodings says of each."""

    name: str  # encoding=NAME
    family: str  # as "distances, as vectors"
    summary: str  # one line


def translate(
    model: Trained | Sequence[Trained],
    lines: Iterable[str],
    columns: Columns | None = None,
    target_prefixes: Iterable[str] | None = None,
    workers: int | None = None,
    **decode: Any,
) -> list[str]:
    """Translate lines of text: one translation for each line, in their order.

    `model` may be a list of models with equal vocabularies, which translate together by the mean of
    their probabilities; they search as the first was trained to. `decode` are keys of the group
    decode, as `beam_size=8, alpha=1.0`; others stay as the model was trained with. `columns` are
    the integers beside the text that encodings of trees ask for; a model of the embedded corpus
    parses its sentences itself. `target_prefixes` are the beginnings that the translations must
    have, one for each line, empty where it is free. `workers` are processes that search, with one
    thread each; None: as many as torch has threads where that pays for the text, and where nothing
    speaks against a fork (another thread of Python, a GPU). Raises UserError for a key or value
    that does not fit (exit code 2), and for text that cannot be translated (65).

    >>> model = nmt.load("runs/toy/relative-seed1")
    >>> nmt.translate(model, ["Die Frau liest einen Brief."], beam_size=1)
    ['The woman reads a letter.']
    """
    found = n_best(model, lines, 1, columns, target_prefixes, workers, **decode)
    return [best.text for best, *_ in found]


def n_best(
    model: Trained | Sequence[Trained],
    lines: Iterable[str],
    n: int,
    columns: Columns | None = None,
    target_prefixes: Iterable[str] | None = None,
    workers: int | None = None,
    **decode: Any,
) -> list[list[Translation]]:
    """The n best translations of each line, best first, with their scores.

    A score is the log-probability over the length penalty. An empty line has one empty translation.
    Takes and raises what `translate` does; `n` is at most `beam_size`. With `method="sample"` they
    are n samples, in the order in which they were drawn, and a score is the log-probability alone;
    with `mbr=32` the n of 32 candidates with the greatest expected chrF, which is their score.
    """
    first, *others = _models(model)
    settings = with_decode(first.settings, decode)
    check_n_best(n, settings.decode, f"n={n}", "give beam_size")
    if settings.decode.position_scale != 1:  # of copies
        first, *others = (m._replace(model=deepcopy(m.model)) for m in (first, *others))
    translator = Translator.of(first, settings.decode, *others, workers=workers)
    reader, some = translator.reader, _lines("lines", lines)
    read, beside = with_columns(reader.reads.columns, reader.settings, some, _columns(columns))
    begin = None if target_prefixes is None else _lines("target_prefixes", target_prefixes)
    return list(translator.translate(read, n, beside, prefixes=begin, read_ahead=True))


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
    (model,) = _models([model])
    read, beside = with_columns(
        model.model.columns, model.settings, _lines("sources", sources), _columns(columns)
    )
    return forced.score(model, read, _lines("targets", targets), beside, batch_tokens)


def evaluate(
    systems: Mapping[str, str | Path],
    reference: str | Path,
    source: str | Path | None = None,
    options: EvaluationOptions = USUAL,
) -> Report:
    """Score systems by source length, with intervals, and test each against the first.

    `systems` are model directories, which translate the file `source`, or files of translations, by
    the labels that tables show; "runs/a,runs/b" is an ensemble. `reference` is the file of the
    right translations; line N of all files belongs together. Translations are kept, see
    `options.cache`, and no text is translated twice. `nmt.compare.text.render` makes of the report
    what nmt-evaluate prints.
    Raises UserError: 2 for what does not fit together, 65 for files of unequal lines, 66 for what
    is not there.

    >>> report = nmt.evaluate({"baseline": "runs/a", "mine": "out.txt"}, "test.en", "test.de")
    >>> report.tests[0].rows[-1].cells[1].scores["BLEU"].mean
    31.4
    """
    named = systems_at({label: str(path) for label, path in systems.items()})
    test = testsets.unnamed(None if source is None else Path(source), Path(reference))
    return evaluate_systems(named, [test], options)


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Experiment:
    """The experiment that these overrides mean to nmt-train: its settings and its directory.

    `config_dir` is a folder of your own options, as `--config-dir`. Nothing is read but conf/.
    Raises UserError for an override that does not fit, with what is near, and for a sweep.

    >>> nmt.compose(["encoding=relative", "tau=8"]).run
    PosixPath('runs/toy/relative-tau8-seed1')
    """
    folder = options.config_dir_override(None if config_dir is None else str(config_dir))
    return experiment_of([*folder, *_lines("overrides", overrides)])


def train(experiment: Experiment) -> Outcome:
    """Train in the experiment's directory, or go on there, as nmt-train does.

    A run that is finished stays as it is. The outcome has the last `step` and the best development
    `perplexity`. Raises UserError for settings that cannot be, another config or corpus in the
    directory, and where a signal stopped the run (exit code 128 + its number): then it is saved,
    and the same call goes on.

    >>> nmt.train(nmt.compose(["encoding=relative", "tau=8"])).step
    3160
    """
    return session.train(experiment.settings, experiment.run, elsewhere=experiment.elsewhere)


def prepare(settings: Settings) -> Prepared:
    """The corpus in numbers, made now if nobody has prepared it before.

    `train` and `dev` are stores of ids, `source` and `target` know segmenter and vocabulary, and
    `facts` what was dropped. Raises UserError: 66 if a file is missing, 65 if its text is no use.
    """
    return corpus.prepare(settings)


def list_encodings(config_dir: str | Path | None = None) -> list[EncodingFacts]:
    """All options of `encoding=`, by family; those of a folder of your own beside ours."""
    folders = () if config_dir is None else (Path(config_dir),)
    options.check(folders)
    return [
        EncodingFacts(name, family, options.summary("encoding", name, folders))
        for family, names in options.families(folders).items()
        for name in names
    ]


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

    Raises UserError (73) for a path that exists, OSError where nothing can be written; then nothing
    is left behind.
    """
    (model,) = _models([model])
    if Path(path).exists():
        raise UserError(f"{path}: exists; give another path, or remove it", Exit.CANT_CREATE)
    modeldir.save(model, Path(path))
