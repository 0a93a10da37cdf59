"""CTranslate2 as a search engine of nmt-translate.

Its search is in src/decoding.cc (4.8). With a length penalty it ends as soon as beam_size x
patience hypotheses are finished, even if an open one is better; without one, when the best is
finished. It ranks by pieces^alpha; hypotheses are ranked again here by decode.length_penalty.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from nmt import modeldir
from nmt.config.settings import RESTRICTIONS, Decode, Settings, freeze
from nmt.decode.engine import Hypothesis, Source, Weights, length_penalty, within_memory
from nmt.decode.scheduler import batches_of
from nmt.errors import UserError
from nmt.exchange.ctranslate2_names import (
    Naming,
    SideNames,
    list_prefixes,
    name_ids,
    output_options,
    search_options,
)
from nmt.exchange.interface import CERTIFICATE, CTRANSLATE2, invalid
from nmt.foreign import CTRANSLATE2_WEIGHTS
from nmt.modeldir import SETTINGS_BESIDE
from nmt.system import manifest, resources
from nmt.system.manifest import VerifiedDirectory
from nmt.system.pool import Executor
from nmt.system.resources import DeviceName, parse_device
from nmt.text.side import Side

# Tokens of the sources in a batch, which one thread searches for: threads that share one wait for
# each other after every product, and took 5 to 25 times as long on two cores of a virtual machine.
BATCH_TOKENS = 1024
BY_NMT = "translate by nmt, with the model that was exported"
NOTHING = Hypothesis([], 0.0, 0.0, finished=False)  # where an output may have no piece
PRECISIONS = ("int8", "bfloat16")  # that decode.precision has too; the others count as float32


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
    """The settings file of an export in a precision; sampling becomes beam search."""
    nearest: Any = next((name for name in PRECISIONS if precision.startswith(name)), "float32")
    decode = replace(settings.decode.by_beam(), precision=nearest)
    return manifest.dump(freeze(modeldir.portable(replace(settings, decode=decode))))


def load(path: Path) -> ExportedModel:
    """Read a directory; every byte is compared with the manifest. Raises UserError (65, 69)."""
    CTRANSLATE2.require(str(path))
    if not (path / manifest.NAME).exists() or not (path / SETTINGS_BESIDE).exists():
        raise invalid(
            path, "lacks the files of nmt for a CTranslate2 model; nmt-export writes them"
        )
    sealed = VerifiedDirectory(path)
    with ThreadPoolExecutor(1) as thread:  # to hash the weights takes as long as the rest
        verified = thread.submit(sealed.verify)
        settings = modeldir.settings_of(sealed, SETTINGS_BESIDE)
        source, target = modeldir.sides_of(sealed)
        import_module("ctranslate2")
        verified.result()
    vocabularies = source.vocabulary, target.vocabulary
    right_for = sealed.json(CERTIFICATE)["right_for"]
    most = [right_for[f"{side}_pieces"] for side in ("source", "target")]
    sides = zip(
        name_ids(*vocabularies), most, list_prefixes(settings.decode, *vocabularies), strict=True
    )
    naming = Naming(
        *(
            SideNames(names, None if pieces is None else pieces + 1 + len(language), language)
            for names, pieces, language in sides
        )
    )
    facts = modeldir.facts_of(sealed)
    return ExportedModel(path, settings, source, target, facts, naming, sealed.digest)


def pick(name: str) -> DeviceName:
    """The device of a name, among those that CTranslate2 finds."""
    from ctranslate2 import get_cuda_device_count

    return parse_device(name, get_cuda_device_count, "CTranslate2")


class CTranslate2Engine:
    """An exported model, searched by CTranslate2; an Engine."""

    columns: Set[str] = frozenset()  # such models are not exported
    column_ranges: Mapping[str, range] = {}

    def __init__(
        self, model: ExportedModel, decode: Decode, device: DeviceName, threads: int | None = None
    ) -> None:
        """Raises UserError for settings that CTranslate2 does not support."""
        refuse(decode)
        from ctranslate2 import Translator as Reader

        self.model, self.decode, self.device = model, decode, device
        stored = model.settings.decode.precision
        languages = list_prefixes(decode, model.source.vocabulary, model.target.vocabulary)
        sides = zip(model.naming, languages, strict=True)
        self.naming = Naming(*(replace(side, language=language) for side, language in sides))
        self.source_limit, self.target_limit = (side.longest for side in self.naming)
        self.options = search_options(self.naming, decode)
        self.ranks_all = self.options["length_penalty"] > 0  # all hypotheses of a search
        on_cpu = device.type == "cpu"
        self.threads = (threads or resources.threads()) if on_cpu else 1
        self.batch_tokens = BATCH_TOKENS if on_cpu else decode.batch_tokens // decode.width(1)
        try:
            self.reader = Reader(
                str(model.directory),
                device=device.type,
                device_index=device.number or 0,
                compute_type="default" if decode.precision == stored else decode.precision,
                inter_threads=self.threads,
                intra_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"{model.directory}: CTranslate2 cannot read it for {device} and "
                f"decode.precision={decode.precision}: {' '.join(str(error).split())}"
            ) from None

    parallel_batches = 1  # CTranslate2 divides each among its threads

    @property
    def most_workers(self) -> int:
        """2 on CPUs, so that the next batch waits while one is searched; 1 on a GPU."""
        return 2 if self.device.type == "cpu" else 1

    @contextmanager
    def workers(self, count: int) -> Iterator[Executor]:
        """Threads that share its reader; UserError on a GPU."""
        if self.device.type != "cpu":
            raise UserError(f"{count} workers: {self.device} searches for one process; take 1")
        threads = ThreadPoolExecutor(count)
        try:
            yield threads
        finally:
            threads.shutdown(cancel_futures=True)

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        """Find up to n_best hypotheses for each source; raises UserError (71) for lack of memory.

        A call of CTranslate2 has one length limit. With a length penalty it returns all finished
        hypotheses; if all of them end before the limit of their source, a higher limit gave the
        same. So all sources are first searched with the highest limit, and those that reached
        their own are searched again with it. No translation depends on others.
        """
        if any(source.required for source in sources):
            raise UserError(f"prefixes: not with CTranslate2; {BY_NMT}")
        limits = [source.limit for source in sources]
        outputs = {index: [NOTHING] for index, limit in enumerate(limits) if limit == 0}
        rest = [index for index, limit in enumerate(limits) if limit > 0]
        everything = [(max(limits), rest)] if rest and self.ranks_all else []
        lengths = [len(source.ids) for source in sources]
        with within_memory(lengths, self.decode.batch_tokens, self.device):
            for index, hypotheses in self._search_ctranslate2(sources, everything, n_best):
                longest, limit = max(len(h.ids) for h in hypotheses), limits[index]
                if limit == max(limits) or longest < limit - 1:  # eos, too, came before the limit
                    outputs[index] = hypotheses
            rest = sorted({*rest} - {*outputs}, key=limits.__getitem__)
            by_limit = [(limit, [*some]) for limit, some in groupby(rest, limits.__getitem__)]
            outputs.update(self._search_ctranslate2(sources, by_limit, n_best))
        return [outputs[index][:n_best] for index in range(len(sources))]

    def cross_attention(self, pairs: Sequence[Source]) -> list[Weights]:
        """Raises UserError: CTranslate2 shows the attention of its own outputs alone."""
        raise UserError(f"alignments: not with CTranslate2; {BY_NMT}")

    def _search_ctranslate2(
        self, sources: Sequence[Source], by_limit: Sequence[tuple[int, Sequence[int]]], n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses, best first, of the sources with these indices, by their limits.

        All batches are started before the first result is read.
        """
        count = self.options["beam_size"] * self.options["patience"] if self.ranks_all else n_best
        options = self.options | {"num_hypotheses": count, "return_scores": True}
        started: list[tuple[int, list[int], list[Any]]] = []
        for limit, indices in by_limit:
            lengths = [len(sources[index].ids) for index in indices]
            parallel = -(-self.threads // len(by_limit))
            for group in batches_of(lengths, self.batch_tokens, 1, parallel):
                batch = [indices[i] for i in group]
                named = [self.naming.source.to_names(sources[index].ids[:-1]) for index in batch]
                options |= output_options(self.naming, len(batch), limit)
                results = self.reader.translate_batch(named, asynchronous=True, **options)
                started.append((limit, batch, results))
        for limit, batch, results in started:
            for index, result in zip(batch, results, strict=True):
                outputs = result.result()
                hypotheses = [
                    self._hypothesis(self.naming.target.to_ids(pieces), limit, s)
                    for pieces, s in zip(outputs.hypotheses, outputs.scores, strict=True)
                ]
                yield index, sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)

    def _hypothesis(self, ids: list[int], limit: int, score: float) -> Hypothesis:
        """One output with nmt's score; one of `limit` pieces counts as cut."""
        finished = len(ids) < limit
        length = len(self.naming.target.language) + len(ids) + finished  # a language counts
        log_prob = score * length ** self.options["length_penalty"]
        penalty = length_penalty(length, self.decode.alpha, self.decode.length_penalty)
        return Hypothesis(ids, log_prob / penalty, log_prob, finished)


def refuse(decode: Decode) -> None:
    """Raise UserError for search settings that CTranslate2 lacks or treats differently."""
    for key, usual, why in (
        ("method", "beam", "it draws without a seed for each line"),
        ("position_scale", 1, "its positions are fixed"),
        ("target_length", "ratio", "no such model asks for a length"),
        *((key, free, "its search is not restricted so") for key, free in RESTRICTIONS.items()),
    ):
        if (value := getattr(decode, key)) != usual:
            raise UserError(f"decode.{key}={value}: not with CTranslate2, because {why}; {BY_NMT}")
