"""CTranslate2 as an engine of nmt-translate: below lines, windows and parts as any other.

What its search does stands in its src/decoding.cc (4.8). With a length penalty it ends as soon as
beam_size x patience hypotheses are finished, whether or not an open one is better; without, when
the best is. It ranks by pieces^alpha; here they are scored and ranked anew, as
decode.length_penalty says.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from nmt import config
from nmt.config import RESTRICTIONS, Decode, Settings
from nmt.data.side import Side
from nmt.decode.engine import Weights, out_of_memory_message, within_memory
from nmt.decode.hypothesis import Hypothesis, length_penalty
from nmt.decode.sources import Source
from nmt.errors import Exit, UserError
from nmt.exchange.adapter import CERTIFICATE, CTRANSLATE2
from nmt.exchange.ctranslate2_names import Naming, names, prefixes
from nmt.exchange.ctranslate2_options import output_options, restrictions, search_options
from nmt.foreign import CTRANSLATE2_WEIGHTS
from nmt.machine import cpus, device_name
from nmt.machine.device_name import DeviceName
from nmt.modelfiles import VOCABULARY_LIMIT, portable
from nmt.storage import manifest
from nmt.storage.manifest import VerifiedDirectory
from nmt.storage.modelpath import SETTINGS_BESIDE

BY_NMT = "translate by nmt, with the model that was exported"
NOT_THERE = "its search is not restricted so"
PRECISIONS = {"int8": "int8", "bfloat16": "bfloat16"}  # of an export -> decode.precision


class ExportedModel(NamedTuple):
    """A directory that nmt-export wrote, without the weights."""

    directory: Path
    settings: Settings
    source: Side
    target: Side
    facts: dict[str, Any]  # of the model that it was written from
    naming: Naming
    digest: str  # SHA-256 of the manifest


def is_exported(path: Path) -> bool:
    """Whether a directory is CTranslate2's."""
    return (path / CTRANSLATE2_WEIGHTS).is_file()


def settings_file(settings: Settings, precision: str) -> bytes:
    """The settings that go along with an export of this precision, as a file."""
    name = next((ours for theirs, ours in PRECISIONS.items() if precision.startswith(theirs)), None)
    decode = replace(settings.decode, precision=name or "float32")
    return manifest.dump(config.freeze(portable(replace(settings, decode=decode))))


def load(path: Path) -> ExportedModel:
    """Read a directory; every byte is compared with the manifest. Raises UserError (65, 69)."""
    CTRANSLATE2.require(str(path))
    if not (path / manifest.NAME).exists() or not (path / SETTINGS_BESIDE).exists():
        raise UserError(
            f"{path}: holds a model for CTranslate2 without what nmt needs to know of it; write it "
            "by nmt-export",
            Exit.DATA,
        )
    sealed = VerifiedDirectory(path)
    for name in sealed.files:
        sealed.read(name)
    where = path / SETTINGS_BESIDE
    try:
        settings = config.thaw(sealed.json(SETTINGS_BESIDE))
        sides = [Side.from_json(sealed.json(f"{name}.json", VOCABULARY_LIMIT))
                 for name in ("source", "target")]  # fmt: skip
    except UserError as error:
        raise UserError(f"{where}: {error}", Exit.DATA) from None
    right_for = sealed.json(CERTIFICATE)["right_for"]
    pieces = [right_for[f"{side}_pieces"] for side in ("source", "target")]
    longest = [None if most is None else most + 1 for most in pieces]
    naming = Naming(*names(sides[0].vocabulary, sides[1].vocabulary), *longest)
    return ExportedModel(
        path, settings, sides[0], sides[1], sealed.json("facts.json"), naming, sealed.digest
    )


def pick(name: str) -> DeviceName:
    """The device of a name; as `machine.device.pick`, by what CTranslate2 sees."""
    from ctranslate2 import get_cuda_device_count

    return device_name.parse(name, get_cuda_device_count, "CTranslate2")


class CTranslate2Engine:
    """A directory that CTranslate2 searches in; an Engine."""

    columns: Set[str] = frozenset()  # such models are not exported
    column_ranges: Mapping[str, range] = {}

    def __init__(
        self, model: ExportedModel, decode: Decode, device: DeviceName, threads: int | None = None
    ) -> None:
        """Raises UserError for settings that CTranslate2 cannot follow."""
        refuse(decode)
        from ctranslate2 import Translator as Reader

        self.model, self.decode, self.device = model, decode, device
        stored = model.settings.decode.precision
        self.source_limit = model.naming.longest_source
        self.target_limit = model.naming.longest_target
        self.ids = {name: number for number, name in enumerate(model.naming.target)}
        vocabularies = model.source.vocabulary, model.target.vocabulary
        self.before, self.after = prefixes(decode, *vocabularies)
        self.options = search_options(decode) | restrictions(model.naming, decode.unknown)
        self.threads = threads or cpus.threads()
        self.open = partial(
            Reader,
            str(model.directory),
            device=device.type,
            device_index=device.number or 0,
            compute_type="default" if decode.precision == stored else decode.precision,
        )
        try:
            self.reader = self.open(inter_threads=1, intra_threads=self.threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"{model.directory}: CTranslate2 cannot read it for {device} and "
                f"decode.precision={decode.precision}: {' '.join(str(error).split())}"
            ) from None

    @property
    def parallel_batches(self) -> int:
        """Batches that this device searches best at a time: one on each core, or 1 on a GPU."""
        return cpus.cpus() if self.device.type == "cpu" else 1

    @property
    def most_workers(self) -> int:
        """As many as it may have threads; 1 on a GPU."""
        return self.threads if self.device.type == "cpu" else 1

    @contextmanager
    def workers(self, count: int) -> Iterator[Executor]:
        """Its own threads, each with a batch, which share the weights; UserError on a GPU."""
        if self.device.type != "cpu":
            raise UserError(f"{count} workers: {self.device} searches for one process; take 1")
        alone = self.reader
        alone.unload_model()
        self.reader = self.open(inter_threads=count, intra_threads=1)
        threads = ThreadPoolExecutor(count)
        try:
            yield threads
        finally:
            threads.shutdown(cancel_futures=True)
            self.reader = alone
            alone.load_model()

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Find up to n_best hypotheses for each source; raises UserError (71) for want of memory.

        Sources of one limit are searched together, so that none depends on others.
        """
        if any(source.prefix for source in sources):
            raise UserError(f"prefixes: not with CTranslate2; {BY_NMT}")
        by_source: list[list[Hypothesis]] = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda place: sources[place].limit)
        with within_memory(out_of_memory_message(self.decode.batch_tokens, self.device)):
            for limit, places in groupby(order, key=lambda place: sources[place].limit):
                group = list(places)
                batch = [sources[place] for place in group]
                for place, hypotheses in zip(
                    group, self._searched(batch, limit, n_best), strict=True
                ):
                    by_source[place] = hypotheses
        return by_source

    def cross_attention(
        self, sources: Sequence[Source], outputs: Sequence[Sequence[int]]
    ) -> list[Weights]:
        """Raises UserError: CTranslate2 shows the attention of its own outputs alone."""
        raise UserError(f"alignments: not with CTranslate2; {BY_NMT}")

    def _searched(
        self, sources: Sequence[Source], limit: int, n_best: int
    ) -> Iterator[list[Hypothesis]]:
        """The hypotheses of sources of one limit."""
        options = self.options
        beams = options["beam_size"] * options["patience"]
        anew = options["length_penalty"] > 0  # all of them are ranked
        results = self.reader.translate_batch(
            [self._named(source) for source in sources],
            **options | {"num_hypotheses": beams if anew else n_best, "return_scores": True},
            **output_options(self.after, len(sources), limit + 1),  # eos, too
        )
        start = len(self.after)
        found = [
            [
                (tuple(self.ids[name] for name in pieces[start:]), score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]
        cut = {  # hold one piece more; of several, one may be left
            (source, ids[:limit]): 0.0
            for source, outputs in enumerate(found)
            for ids, _ in outputs
            if len(ids) > limit
        }
        pairs = [(sources[source], ids) for source, ids in cut]
        cut = dict(zip(cut, self._log_probs(pairs), strict=True))
        for source, outputs in enumerate(found):
            log_probs = {}
            for ids, score in outputs:
                if len(ids) <= limit:
                    length = start + len(ids) + 1  # a language counts
                    log_probs[ids, True] = score * length ** options["length_penalty"]
                else:
                    log_probs[ids[:limit], False] = cut[source, ids[:limit]]
            hypotheses = [self._hypothesis(*output, p) for output, p in log_probs.items()]
            yield sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:n_best]

    def _hypothesis(self, ids: Sequence[int], finished: bool, log_prob: float) -> Hypothesis:
        """One output with its score as nmt has it."""
        length = len(self.after) + len(ids) + finished
        penalty = length_penalty(length, self.decode.alpha, self.decode.length_penalty)
        return Hypothesis([*ids], log_prob / penalty, log_prob, finished)

    def _log_probs(self, outputs: Sequence[tuple[Source, Sequence[int]]]) -> list[float]:
        """The log-probabilities of outputs without eos; all in one call, which is far faster."""
        if not outputs:
            return []
        before, names = len(self.after), self.model.naming.target
        scored = self.reader.score_batch(
            [self._named(source) for source, _ in outputs],
            [[*self.after, *(names[number] for number in ids)] for _, ids in outputs],
            max_input_length=0,
        )
        return [
            sum(one.log_probs[before : before + len(ids)])
            for one, (_, ids) in zip(scored, outputs, strict=True)
        ]

    def _named(self, source: Source) -> list[str]:
        """Its pieces; CTranslate2 adds eos itself."""
        return [*self.before, *(self.model.naming.source[number] for number in source.ids[:-1])]


def refuse(decode: Decode) -> None:
    """Raise UserError for what CTranslate2 has not, or otherwise."""
    for key, wrong, why in (
        ("method", decode.method != "beam", "it draws otherwise, without a seed for each line"),
        ("position_scale", decode.position_scale != 1, "its positions are fixed"),
        ("target_length", decode.target_length != "ratio", "no such model asks for a length"),
        *((key, getattr(decode, key) != free, NOT_THERE) for key, free in RESTRICTIONS.items()),
    ):
        if wrong:
            raise UserError(
                f"decode.{key}={getattr(decode, key)}: not with CTranslate2, because {why}; "
                f"{BY_NMT}"
            )
