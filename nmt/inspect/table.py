"""The survey's Table 1, row for row, filled in by this code and compared with what it printed."""

from collections.abc import Iterable, Iterator

from nmt.config import Settings
from nmt.errors import UserError
from nmt.inspect import checks, facts
from nmt.inspect.card import counted, said
from nmt.inspect.specimen import small
from nmt.inspect.survey import ELSEWHERE, ROWS, Row
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import Folders, family_of, options_of

HEAD = (
    *("method", "words", "family", "ref.", "inj.", "learnable", "recurring", "unbound"),
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


def table(words: list[str], markdown: bool, folders: Folders = ()) -> str:
    """The table at the size that the words choose, else base; aligned text or Markdown."""
    if not any(word.startswith("model=") for word in words):
        words = ["model=base", *words]
    blocks = [
        ("Table 1 of the survey", ROWS),
        ("In the survey's text, not in its Table 1", ELSEWHERE),
        ("Not in the survey's tables", tuple(_others(folders))),
    ]
    filled = [
        (title, [line for row in rows for line in lines(row, words, folders)])
        for title, rows in blocks
    ]
    size = experiment_of(words).settings.model
    shape = f"{size.encoder_layers}+{size.decoder_layers} layers of {size.dim}, {size.heads} heads"
    return (_markdown if markdown else _text)(filled) + f"\nCounted in a model of {shape}." + NOTES


def _others(folders: Folders = ()) -> Iterator[Row]:
    """Whatever else there is to choose."""
    named = {word for row in (*ROWS, *ELSEWHERE) for words in row.words for word in words.split()}
    for option in options_of("encoding", folders):
        if f"encoding={option}" not in named:
            yield Row("", "", (f"encoding={option}",))


def lines(row: Row, words: list[str], folders: Folders = ()) -> Iterator[list[str]]:
    """One line for each realisation of a row, or one that says why there is none."""
    name = row.name
    for choice in row.words:
        option = choice.split()[0].partition("=")[2]
        known = option in options_of("encoding", folders)
        family = family_of(option, folders) if known else "-"
        yield [name, _short(choice), family, *_cells(row, choice.split(), words, folders)]
        name = ""  # said once
    if not row.words:
        yield [name, "-", "-", *(row.cells or ("",) * 5), row.parameters, "-", f"no: {row.reason}"]


def _short(choice: str) -> str:
    return choice.removeprefix("encoding=")


def _cells(row: Row, choice: list[str], words: list[str], folders: Folders) -> list[str]:
    missing = [row.parameters, "-"]
    option = choice[0].partition("=")[2]
    if option not in options_of("encoding", folders):
        return [*(row.cells or [""] * 5), *missing, f"no: there is no option {option}"]
    try:
        settings = experiment_of([*choice, *words]).settings
        checked = checks.works(settings)
        cells = derived(settings, option) if checked.holds else row.cells or ("",) * 5
        count = _count(settings, option)
    except UserError as e:
        return [*(row.cells or [""] * 5), *missing, f"no: {e}"]
    here = [compared(a, b) for a, b in zip(cells, row.cells or cells, strict=True)]
    return [*here, row.parameters, count, "yes" if checked.holds else f"no: {checked.said}"]


def derived(settings: Settings, option: str) -> tuple[str, ...]:
    """The survey's first five cells for an encoding of ours."""
    known = facts.facts_of(small(settings), option)
    flags = (known.learnable, known.recurring, known.unbound)
    return (known.reference, known.injection, *("yes" if flag else "no" for flag in flags))


def compared(ours: str, theirs: str) -> str:
    """Our cell, and the survey's where it differs."""
    return ours if ours == theirs else f"{ours}{MARK} ({theirs})"


def _count(settings: Settings, option: str) -> str:
    counts = counted(settings, option)
    return said((sum(n for n, _ in counts), sum(words for _, words in counts)))


def _text(blocks: list[tuple[str, list[list[str]]]]) -> str:
    every = [list(HEAD), *(line for _, lines in blocks for line in lines)]
    widths = [max(len(line[i]) for line in every) for i in range(len(HEAD) - 1)]

    def row(cells: Iterable[str]) -> str:
        padded = [c.ljust(w) for c, w in zip(cells, widths, strict=False)]
        return "  ".join([*padded, list(cells)[-1]]).rstrip()

    parts = [row(HEAD)]
    for title, lines in blocks:
        parts += ["", title, *(row(line) for line in lines)]
    return "\n".join(parts) + "\n"


def _markdown(blocks: list[tuple[str, list[list[str]]]]) -> str:
    parts = []
    for title, lines in blocks:
        parts += [f"**{title}**", "", _pipes(HEAD), _pipes(["---"] * len(HEAD))]
        for line in lines:
            words = line[1] if line[1] == "-" else f"`{line[1]}`"
            parts.append(_pipes([_plain(line[0]), words, *map(_plain, line[2:])]))
        parts.append("")
    return "\n".join(parts)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.replace("|", r"\|").replace("*", r"\*").replace("_", r"\_").replace("^", r"\^")
