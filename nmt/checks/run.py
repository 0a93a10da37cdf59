"""Try all that encodings must do, for `nmt.testing` and `nmt-encodings --check`, and show it."""

import copy
import logging
import textwrap
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from nmt import modeldir
from nmt.checks import parity
from nmt.checks.example import build_perturbed, small_settings
from nmt.checks.parity import BOUNDS, TOKENS
from nmt.checks.properties import CHECKS
from nmt.checks.training_step import CheckError
from nmt.config.catalog import Folders, options_of
from nmt.errors import Exit, UserError, where_raised
from nmt.model.transformer import Transformer

STEP, ORDER = "training step", "order in the encoder"
OF_TRAINED = ("later tokens and padding", "long and empty sequences")  # whatever was learned
PAGE = "docs/adding-an-encoding.md"  # tells what hooks must do
NAME = 38  # columns of a line
_wrap = partial(textwrap.fill, width=110, replace_whitespace=False)


class Result(NamedTuple):
    """The result of one check."""

    check: str  # as "training step" or "decoding: beams, bfloat16"
    passed: bool
    finding: str  # the figure; where the check failed, also what to do


def run_checks(
    model: Transformer,
    order_matters: bool | None = True,
    tokens: int = TOKENS,
    precisions: Iterable[str] = BOUNDS,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    only: Iterable[str] = tuple(CHECKS),
) -> Iterator[Result]:
    """Try a model in eval mode, one result after the other; a failed training step ends it.

    `order_matters`: whether an encoder must tell the order of its tokens; None: either will do.
    `tokens`, `precisions` and `device` are of the comparison of cached decoding with the full pass,
    which follows the other checks, those named in `only`.
    """
    options = {ORDER: {"matters": order_matters}}
    for name in only:
        check = partial(CHECKS[name], **options.get(name, {}))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            try:
                figure = check(copy.deepcopy(model))
                finding = figure if isinstance(figure, str) else f"largest difference {figure:.2g}"
                result = Result(name, True, finding)
            except Exception as e:  # whatever an encoding raises, in any of its hooks
                fault = str(e) if isinstance(e, CheckError) else where_raised(e)
                result = Result(name, False, fault)
        if name == STEP and not result.passed:  # a hook that raises would fail every check
            yield result._replace(finding=f"{result.finding}; no other check was tried")
            return
        yield result
    for d in parity.measure(copy.deepcopy(model).to(device), tokens, precisions):
        yield Result(f"decoding: {d.condition}, {d.precision}", d.passed, d.finding)


def failures(results: Iterable[Result]) -> list[str]:
    """A line for each different failure, with the checks that met it."""
    checks: dict[str, list[str]] = {}
    for result in results:
        if not result.passed:
            checks.setdefault(result.finding, []).append(result.check)
    return [f"{', '.join(names)}: {finding}" for finding, names in checks.items()]


def check_encodings(
    names: Sequence[str], overrides: Sequence[str], folders: Folders, device: torch.device
) -> Iterator[str]:
    """Check encodings, all if no name is given; yields the lines of a report as they come.

    Of several, those that are right get a line. Raises UserError (70) if a check failed, or a model
    of those that are named cannot be built, and (2) if none can be built.
    """
    logging.captureWarnings(True)  # torch's advice about kernels does not belong into the report
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    failed, refused = 0, dict[str, UserError]()
    every = names or options_of("encoding", folders)
    for name in every:
        try:
            model = build_perturbed(small_settings(name, overrides))
        except UserError as error:
            refused[name] = error
        else:
            results = run_checks(model, None, device=device)
            failed += yield from _report(name, results, whole=len(every) == 1)
    if len(refused) == len(every):
        raise refused[every[0]]
    yield from (f"{name:<{NAME}}refused: {why}" for name, why in refused.items())
    _conclude(failed + (len(refused) if names else 0))


def check_run(path: Path, device: torch.device) -> Iterator[str]:
    """Check the model of a run, or another model directory; raises UserError (70) as above."""
    results = run_checks(modeldir.load(path).model, device=device, only=OF_TRAINED)
    _conclude((yield from _report(str(path), results, whole=True)))


def _report(name: str, results: Iterable[Result], whole: bool) -> Generator[str, None, int]:
    """Yield all results as they come, or how many passed and what failed; returns how many did."""
    if whole:
        yield name
    seen: list[Result] = []
    for result in results:
        seen.append(result)
        if whole:
            state = "ok" if result.passed else "FAILED"
            line = f"  {result.check:<{NAME}}  {state}  {result.finding}"
            yield _wrap(line, subsequent_indent=" " * (NAME + 4))
    failed = sum(not result.passed for result in seen)
    if not whole:
        yield f"{name:<{NAME}}{len(seen) - failed} checks passed, {failed} failed"
        yield from (_wrap(f"  {line}", subsequent_indent=" " * 4) for line in failures(seen))
    return failed


def _conclude(failed: int) -> None:
    if failed:
        raise UserError(f"checks that failed: {failed}; see above, and {PAGE}", Exit.DIVERGED)
