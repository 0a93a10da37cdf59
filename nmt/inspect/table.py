"""The survey's Table 1, row for row, filled in by this code and compared with what it printed."""

from collections.abc import Iterable, Iterator

from nmt.errors import UserError
from nmt.inspect import checks, facts
from nmt.inspect.specimen import Specimen, small
from nmt.inspect.survey import ELSEWHERE, METHODS, Method
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import Folders, family_of, options_of

HEAD = (
    *("method", "overrides", "family", "ref.", "inj.", "learnable", "recurring", "unbound"),
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

Block = tuple[str, list[list[str]]]  # title, cells of each line


def table(overrides: list[str], markdown: bool, folders: Folders = ()) -> str:
    """The table at the size that the overrides choose, else base; aligned text or Markdown."""
    if not any(override.startswith("model=") for override in overrides):
        overrides = ["model=base", *overrides]
    blocks = [
        (title, [line for method in methods for line in lines(method, overrides, folders)])
        for title, methods in (
            ("Table 1 of the survey", METHODS),
            ("In the survey's text, not in its Table 1", ELSEWHERE),
            ("Not in the survey's tables", others(folders)),
        )
    ]
    size = experiment_of(overrides).settings.model
    shape = f"{size.encoder_layers}+{size.decoder_layers} layers of {size.dim}, {size.heads} heads"
    return (_markdown if markdown else _text)(blocks) + f"\nCounted in a model of {shape}." + NOTES


def others(folders: Folders = ()) -> list[Method]:
    """Whatever else there is to choose."""
    named = {choice.split()[0] for m in (*METHODS, *ELSEWHERE) for choice in m.choices}
    return [Method("", choices=(o,)) for o in options_of("encoding", folders) if o not in named]


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
            if option not in options_of("encoding", folders):
                raise UserError(f"there is no option {option}")
            family = family_of(option, folders)
            settings = experiment_of([f"encoding={option}", *more, *overrides]).settings
            specimen = small(settings)
            holds, finding = checks.works(specimen)
            derived = cells_of(specimen, option) if holds else printed
            count = facts.total(facts.counted(settings, option))
            cells = tuple(map(compared, derived, method.cells or derived))
            works = "yes" if holds else f"no: {finding}"
        except UserError as e:
            works = f"no: {e}"
        name = method.name if number == 0 else ""
        yield [name, choice, family, *cells, method.parameters, count, works]


def cells_of(specimen: Specimen, option: str) -> tuple[str, ...]:
    """The survey's first five cells for an encoding of ours."""
    reference, injection, *flags = facts.facts_of(specimen, option)
    return (reference, injection, *("yes" if flag else "no" for flag in flags))


def compared(ours: str, theirs: str) -> str:
    """Our cell, and the survey's where it differs."""
    return ours if ours == theirs else f"{ours}{MARK} ({theirs})"


def _text(blocks: list[Block]) -> str:
    rows = [HEAD, *(line for _, lines in blocks for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def padded(cells: Iterable[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    parts = [padded(HEAD)]
    for title, lines in blocks:
        parts += ["", title, *map(padded, lines)]
    return "\n".join(parts) + "\n"


def _markdown(blocks: list[Block]) -> str:
    parts = []
    for title, lines in blocks:
        parts += [f"**{title}**", "", _pipes(HEAD), _pipes(["---"] * len(HEAD))]
        for name, choice, *rest in lines:
            code = choice if choice == "-" else f"`{choice}`"
            parts.append(_pipes([_plain(name), code, *map(_plain, rest)]))
        parts.append("")
    return "\n".join(parts)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.translate({ord(c): rf"\{c}" for c in "|*_^"})
