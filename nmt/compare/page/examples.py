"""Translations side by side: what differs from the reference, and what of the source was read."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby

from nmt.compare.page import grids
from nmt.compare.page.markup import Child, Markup, bdi, details, join, nothing, section, tag
from nmt.compare.page.numbers import count, fixed
from nmt.compare.report import UNATTENDED, ExamplePair, ExampleTranslation, Report

OPEN = 10  # examples that are open at first
WHYS = ("most different", "worst")  # in this order; others behind them
LEVELS = (UNATTENDED / 2, UNATTENDED, 0.5, 1.0)  # attention from which a piece is darker


def render(report: Report) -> Markup:
    """All examples of all test sets, with controls to choose among them."""
    chosen = sorted(
        ((test.name, example) for test in report.tests for example in test.examples),
        key=lambda pair: WHYS.index(pair[1].why) if pair[1].why in WHYS else len(WHYS),
    )
    title = "Translations side by side"
    if not chosen:
        return section("examples", title, nothing("No example was chosen."))
    items = [_example(report, test, e, n < OPEN) for n, (test, e) in enumerate(chosen)]
    return section(
        "examples",
        title,
        tag("p", _legend(), class_="note"),
        _controls([(test, e) for test, e in chosen]),
        tag("div", items),
    )


def _legend() -> list[Child]:
    """What marks and shades mean."""
    return [
        "Of each system's first run. ",
        tag("mark", "Marked words"),
        " do not stand in the reference at their place; a caret (",
        tag("span", "\u2038", class_="gap"),
        ") stands where words of the reference are missing. Where attention was recorded, the "
        "source is shaded by the attention that each piece got over the whole output, from ",
        tag("span", "little", class_="v0"),
        " over ",
        tag("span", "some", class_="v2"),
        " to ",
        tag("span", "much", class_="v4"),
        f"; pieces with little, under {UNATTENDED}, are underlined, and named below. chrF2 is "
        "that of the one sentence.",
    ]


def _controls(chosen: Sequence[tuple[str, ExamplePair]]) -> Markup:
    """Filters by test set, bucket and reason; of no use without scripts, and then not shown."""
    fields = {
        "test": ("Test set", [test for test, _ in chosen]),
        "bucket": ("Length", [e.bucket for _, e in chosen]),
        "why": ("Chosen as", [e.why for _, e in chosen]),
    }
    parts: list[Child] = []
    for name, (title, values) in fields.items():
        options = [tag("option", "all", value="")]
        options += [tag("option", value, value=value) for value in dict.fromkeys(values)]
        chooser = tag("select", options, data_filter=name)
        parts.append(tag("label", f"{title} ", chooser))
    shown = tag("output", f"{len(chosen)} of {len(chosen)} shown", id="filtered")
    toggle = tag("input", type="checkbox", data_opens=".coverage")
    read = tag("label", toggle, " Show the source as each system read it")
    return tag("div", parts, read, shown, class_="tool scripted")


def _example(report: Report, test: str, example: ExamplePair, opened: bool) -> Markup:
    summary: list[Child] = [
        tag("strong", f"Line {count(example.line)}"),
        " of ",
        bdi(test),
        tag("span", example.why, class_="tag"),
        tag("span", f"length {example.length} ({example.bucket})", class_="tag"),
    ]
    pairs = [
        tag("dt", "Source"),
        tag("dd", example.source, dir="auto"),
        tag("dt", "Reference"),
        tag("dd", example.reference, dir="auto", class_="reference"),
    ]
    for s, hypothesis in enumerate(example.hypotheses):
        score = tag("small", f"chrF2 {fixed(hypothesis.score)}")
        pairs += [tag("dt", grids.named(report, s), " ", score), _hypothesis(example, hypothesis)]
    return details(
        summary,
        tag("dl", pairs),
        class_="example",
        open=opened,
        data_test=test,
        data_bucket=example.bucket,
        data_why=example.why,
    )


def _hypothesis(example: ExamplePair, hypothesis: ExampleTranslation) -> Markup:
    if hypothesis.text.strip():
        said = tag("p", differing(hypothesis.text, example.reference), dir="auto")
    else:
        said = nothing("nothing at all")
    read = None
    if example.pieces is not None and hypothesis.coverage is not None:
        read = _coverage(example.pieces, hypothesis.coverage)
    return tag("dd", said, read)


def differing(text: str, reference: str) -> Markup:
    """The text with those words marked that are not at their place in the reference.

    A caret stands where words of the reference are missing.

    Words are what stands between spaces; where the reference has none, every character is one.
    """
    pattern = r"\S+" if re.search(r"\s", reference.strip()) else r"\S"
    spans = [found.span() for found in re.finditer(pattern, text)]
    words = [text[a:b] for a, b in spans]
    others = re.findall(pattern, reference)
    parts: list[Child] = []
    end = 0
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    for kind, a, b, i, j in matcher.get_opcodes():
        if a == b:
            said = f"{j - i} word{'s' * (j - i > 1)} of the reference left out"
            gap = tag("span", "\u2038", class_="gap", role="img", aria_label=said, title=said)
            parts.append(gap)
            continue
        first, last = spans[a][0], spans[b - 1][1]
        run = text[first:last]
        parts += [text[end:first], run if kind == "equal" else tag("mark", run)]
        end = last
    return join([*parts, text[end:]])


def level(attention: float) -> int:
    """How dark a piece is shaded, from 0 to 4."""
    return sum(attention >= bound for bound in LEVELS)


def _coverage(pieces: Sequence[str], coverage: Sequence[float]) -> Markup:
    words = spelt(pieces)
    shades = zip(words, map(level, coverage), strict=True)
    spans = [
        tag("span", "".join(word for word, _ in group), class_=f"v{shade}")
        for shade, group in groupby(shades, key=lambda pair: pair[1])
    ]
    missed = [word.strip() for word, a in zip(words, coverage, strict=True) if a < UNATTENDED]
    named = [word for word in missed if word]
    if named:
        shown: list[Child] = [f"Little attention to {len(named)} of {len(words)} pieces: "]
        shown.append(bdi(" · ".join(named)))
    else:
        shown = ["Every piece of the source got attention."]
    return details(
        ["Source as it was read ", tag("small", f"({len(named)} of {len(words)} little)")],
        tag("p", spans, dir="auto", class_="read"),
        tag("p", shown, class_="note"),
        class_="coverage",
    )


def spelt(pieces: Sequence[str]) -> list[str]:
    """Pieces as in the text: `@@` of BPE joins to the next, `\u2581` turns to a space."""
    if any("\u2581" in piece for piece in pieces):
        return [piece.replace("\u2581", " ") for piece in pieces]
    return [piece[:-2] if piece.endswith("@@") else f"{piece} " for piece in pieces]
