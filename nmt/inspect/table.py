"""The survey's Table 1, row for row, filled in by this code and compared with what it printed."""

from collections.abc import Iterable, Iterator

from nmt.config.catalog import Folders, family_of, options_of
from nmt.config.compose import experiment_of
from nmt.errors import UserError
from nmt.inspect import checks, facts
from nmt.inspect.specimen import Specimen, small
from nmt.inspect.survey import ELSEWHERE, METHODS, Method

HEAD = (
    *("method", "encoding=", "family", "ref.", "inj.", "learnable", "recurring", "unbound"),
    *("parameters (survey, one stack)", "here, encoder + decoder", "works"),
)
MARK = "*"
NOTES = f"""
ref.: A absolute, R relative, B both, - neither. inj.: ape adds vectors of positions, mam modifies
attention. Cells are derived from the code, not copied; {MARK} a cell of which the survey prints
something else, which stands in brackets. works: built, encoded, and decoded token by token to the
same logits as all at once, just now, in a small model with made-up text.
Of an option with several entries, cells and parameters are those of the entry that bears its name,
if there is one. V: word types of the side. How each cell is derived: nmt/inspect/facts.py.
The survey: Dufter, Schmitt, Schütze (2022), Position Information in Transformers: An Overview.
"""


def table(overrides: list[str], folders: Folders = ()) -> str:
    """The table at the size that the overrides choose, else base, as Markdown."""
    if not any(override.startswith("model=") for override in overrides):
        overrides = ["model=base", *overrides]
    blocks = [
        _markdown(title, (line for method in methods for line in lines(method, overrides, folders)))
        for title, methods in (
            ("Table 1 of the survey", METHODS),
            ("In the survey's text, not in its Table 1", ELSEWHERE),
            ("Not in the survey's tables", others(folders)),
        )
    ]
    size = experiment_of(overrides).settings.model
    shape = f"{size.encoder_layers}+{size.decoder_layers} layers of {size.dim}, {size.heads} heads"
    return "\n".join(blocks) + f"\nCounted in a model of {shape}." + NOTES


def others(folders: Folders = ()) -> list[Method]:
    """All other options."""
    in_survey = {choice.split()[0] for m in (*METHODS, *ELSEWHERE) for choice in m.choices}
    return [Method("", choices=(o,)) for o in options_of("encoding", folders) if o not in in_survey]


def lines(method: Method, overrides: list[str], folders: Folders = ()) -> Iterator[list[str]]:
    """One line for each realisation of a method, or one that says why there is none."""
    printed = method.cells or ("",) * 5
    if not method.choices:
        why = f"no: {method.reason}"
        yield [method.name, "-", "-", *printed, method.parameters, "-", why]
    for number, choice in enumerate(method.choices):
        option, *more = choice.split()
        family, cells, count = "-", printed, "-"
        try:
            family = family_of(option, folders)
            settings = experiment_of([f"encoding={option}", *more, *overrides]).settings
            specimen = small(settings)
            decoded = checks.cached(specimen.model)
            derived = cells_of(specimen, option) if decoded.passed else printed
            count = facts.format_counts(facts.parameter_counts(settings, option))
            cells = tuple(map(with_survey, derived, method.cells or derived))
            works = "yes" if decoded.passed else f"no: {decoded.finding}"
        except UserError as e:
            works = f"no: {e}"
        name = method.name if number == 0 else ""
        yield [name, choice, family, *cells, method.parameters, count, works]


def cells_of(specimen: Specimen, option: str) -> tuple[str, ...]:
    """The survey's first five cells for an encoding of ours."""
    reference, injection, *flags = facts.facts_of(specimen, option)
    return (reference, injection, *("yes" if flag else "no" for flag in flags))


def with_survey(ours: str, theirs: str) -> str:
    """Our cell, and the survey's where it differs."""
    return ours if ours == theirs else f"{ours}{MARK} ({theirs})"


def _markdown(title: str, lines: Iterable[list[str]]) -> str:
    """A table as Markdown, its columns aligned for those who read it as text."""
    rows = [
        [_plain(name), choice if choice == "-" else f"`{choice}`", *map(_plain, rest)]
        for name, choice, *rest in lines
    ]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    rows = [list(HEAD), ["-" * width for width in widths], *rows]
    padded = [[c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows]
    return "\n".join([f"**{title}**", "", *(f"| {' | '.join(row)} |" for row in padded), ""])


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.translate({ord(c): rf"\{c}" for c in "|*_^"})
