"""The text of nmt-encodings --check: what was tried of each encoding, and what failed."""

import logging
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from nmt import modeldir
from nmt.config.catalog import Folders, options_of
from nmt.errors import Exit, UserError
from nmt.inspect import conformance
from nmt.inspect.conformance import Result, run_checks, small_settings

NAME, WIDTH = 38, 110  # columns
Show = Callable[[str], None]


def check_encodings(
    names: Sequence[str],
    overrides: Sequence[str],
    folders: Folders,
    show: Show,
    device: torch.device,
) -> None:
    """Check encodings, all if no name is given, and show what was tried of each.

    Of several, those that are right get a line. Raises UserError (70) if a check failed, or a model
    of those that are named cannot be built, and (2) if none can be built.
    """
    logging.captureWarnings(True)  # torch's advice about kernels does not belong into the report
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    failed, refused = 0, dict[str, UserError]()
    all_names = names or options_of("encoding", folders)
    for name in all_names:
        try:
            model = conformance.subject(small_settings(name, overrides))
        except UserError as error:
            refused[name] = error
        else:
            results = run_checks(model, None, device=device)
            failed += _show_results(name, results, show, len(all_names) == 1)
    if len(refused) == len(all_names):
        raise refused[all_names[0]]
    for name, why in refused.items():
        show(f"{name:<{NAME}}refused: {why}")
    _conclude(failed + (len(refused) if names else 0))


def check_run(path: Path, show: Show, device: torch.device) -> None:
    """Check the model of a run, or another model directory; raises UserError (70) as above."""
    results = run_checks(modeldir.load(path).model, device=device, only=conformance.OF_TRAINED)
    _conclude(_show_results(str(path), results, show, True))


def _show_results(name: str, results: Iterable[Result], show: Show, whole: bool) -> int:
    """Show all results, or those that failed; how many failed."""
    collected: list[Result] = []
    if whole:
        show(name)
    for result in results:
        collected.append(result)
        if whole:
            state = "ok" if result.passed else "FAILED"
            line = f"  {result.check:<{NAME}}  {state}  {result.finding}"
            show(_wrap(line, NAME + 4))
    failed = sum(not result.passed for result in collected)
    if not whole:
        show(f"{name:<{NAME}}{len(collected) - failed} checks passed, {failed} failed")
        for line in conformance.failures(collected):
            show(_wrap(f"  {line}", 4))
    return failed


def _wrap(text: str, indent: int) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, replace_whitespace=False)


def _conclude(failed: int) -> None:
    if failed:
        raise UserError(f"checks that failed: {failed}; see above", Exit.DIVERGED)
