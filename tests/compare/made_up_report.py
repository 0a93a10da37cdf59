"""A report that nobody made: five systems, three seeds, two test sets, and texts that attack."""

import math
import random
from dataclasses import replace

from nmt.compare.report import (
    AttentionProfile,
    BucketScores,
    ComparedSystem,
    ExamplePair,
    ExampleTranslation,
    LearningCurve,
    LossParts,
    Metric,
    PaperTable,
    PartShares,
    PlaceScores,
    Report,
    Score,
    ScoredTest,
    Share,
    SystemScores,
    TrainedRun,
    UnderTranslation,
)

LABELS = ["absolute 100", "relative 100", "LSTM 100", "absolute 75", "relative 75"]
LIMITS = [100, 100, 100, 75, 75]
BUCKETS = [
    ("0-25", 0, 25, 13_482),
    ("26-50", 26, 50, 10_731),
    ("51-75", 51, 75, 3_021),
    ("76-100", 76, 100, 640),
    ("over 100", 101, None, 201),
]
PUBLISHED = [  # Rosendahl et al. (2019), Table 2, BLEU / TER
    [(31.7, 57.9), (32.0, 57.3), (31.4, 58.5), (29.3, 62.3), (21.5, 69.3)],
    [(31.8, 58.1), (32.2, 57.1), (31.8, 58.1), (29.3, 62.7), (29.3, 62.7)],
    [(31.4, 58.6), (31.9, 57.5), (31.4, 58.4), (28.7, 63.9), (25.5, 66.6)],
    [(31.7, 58.1), (32.0, 57.3), (31.2, 58.6), (25.9, 65.0), (15.3, 74.5)],
    [(31.7, 58.0), (31.9, 57.4), (31.5, 58.5), (29.6, 62.2), (27.2, 66.3)],
]
METRICS = [
    Metric("BLEU", "detokenised, cased, tokenizer 13a", True, "nrefs:1|case:mixed|eff:no|tok:13a"),
    Metric("TER", "translation edit rate", False, "nrefs:1|case:lc|tok:tercom|norm:no"),
    Metric("chrF2", "character F-score", True, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0"),
]
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "שלום עולם, זה משפט <b>מימין</b> לשמאל",
    "zero\u200bwidth\ufeff and \u202eoverride\u202c, \x07bell, \x1b[31mred\x1b[0m, \x00nul",
    "</style></script>--><!-- ]]> &amp; &lt; \"quoted\" 'single'",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, a surrogate \ud800 and \u2028 a line",
]


def whole(seed: int = 1) -> Report:
    """The whole of it."""
    made = random.Random(seed)
    return Report(
        title="Positions in translation: Table 2 at a made-up scale",
        date="2026-11-21",
        command="nmt-train experiment=table2 scale=toy seed=1,2,3 runs=runs/table2",
        notes=[
            "All numbers on this page are made up, to see what a page looks like.",
            HOSTILE[0],
            "Trained for 3,000 updates; the paper trained for about a million.",
        ],
        systems=[_system(made, s) for s in range(len(LABELS))],
        tests=[
            _test(made, "newstest_all", "News of ten years, sentence by sentence.", 0.0),
            _test(made, "concat_seq", "Consecutive sentences joined in pairs.", 4.6, joined=True),
        ],
        tables=[
            PaperTable("Table 1", "All pairs", "newstest_all", [0, 1], ["BLEU"], False, False),
            PaperTable(
                "Table 2",
                "BLEU and TER by source length",
                "newstest_all",
                [0, 1, 2, 3, 4],
                ["BLEU", "TER"],
                True,
            ),
            PaperTable("Table 3", "Joined pairs", "concat_seq", [0, 1, 3, 4], ["BLEU"], False),
        ],
        profiles=_profiles(made),
        samples=1000,
        seed=12345,
        about={
            "versions": {"nmt": "0.4.0", "torch": "2.13.0", "sacrebleu": "2.6.0"},
            "files": {"newstest_all.de": "sha256 " + "ab" * 32},
            "settings": {"beam": 4, "alpha": 0.6, "cut": None, HOSTILE[3]: [HOSTILE[2]]},
        },
    )


def empty() -> Report:
    """A report of nothing."""
    return Report([], [], 1000, 1, "Nothing", "2026-11-21", "nmt-evaluate")


def bare() -> Report:
    """None wherever it is allowed; one seed; no source; nothing optional."""
    cells = [
        SystemScores({"BLEU": _score(20.0 + s, [20.0 + s], None)}, None, False) for s in (0, 1)
    ]
    row = BucketScores("all", 0, None, 12, True, cells)
    test = ScoredTest("plain", "", None, None, METRICS[:1], [row])
    curve = LearningCurve([], [], [], [], [])
    systems = [
        ComparedSystem(label, None, 1000, 0, [TrainedRun("runs/x", 1, 10, None, None, None, curve)])
        for label in ("one", "two")
    ]
    return replace(empty(), systems=systems, tests=[test])


def _system(made: random.Random, s: int) -> ComparedSystem:
    runs = []
    for seed in (1, 2, 3):
        steps = list(range(50, 3001, 10))
        floor = 3.1 + 0.15 * s + made.random() * 0.1

        def at(step: int, floor: float = floor) -> float:
            return floor + 900 * math.exp(-step / 180)

        dev_steps = list(range(250, 3001, 250))
        curve = LearningCurve(
            steps,
            [at(step) * made.uniform(0.95, 1.05) for step in steps],
            dev_steps,
            [1.08 * at(step) for step in dev_steps],
            [1e-3 * min(step / 400, (400 / step) ** 0.5) for step in steps],
        )
        name = f"runs/table2/{LABELS[s].replace(' ', '-')}-seed{seed}"
        speed = None if s == 2 and seed == 3 else 2400 - 400 * s + made.random() * 40
        seconds = 1700 + 90.0 * s
        runs.append(TrainedRun(name, seed, 3000, seconds, speed, 1.08 * floor, curve))
    return ComparedSystem(LABELS[s], LIMITS[s], 3_412_000 + 10_560 * s, 10_560 * s, runs)


def _score(mean: float, seeds: list[float], p: float | None, wide: float = 1.0) -> Score:
    n = len(seeds)
    spread = math.sqrt(sum((x - mean) ** 2 for x in seeds) / (n - 1)) if n > 1 else None
    return Score(mean, spread, seeds, mean - wide, mean + wide * 1.1, p)


def _test(
    made: random.Random, name: str, about: str, lower: float, joined: bool = False
) -> ScoredTest:
    rows = []
    for b, (bucket, low, high, pairs) in enumerate(BUCKETS):
        if joined:
            pairs = 0 if b == 0 else max(41, pairs // 2)  # an empty bucket, and one of few pairs
        cells = []
        for s in range(len(LABELS)):
            scores = {} if not pairs else _scores(made, s, b, pairs, lower)
            signs = UnderTranslation(
                repeated=0.01 + 0.004 * b * (1 + (s in (0, 3))),
                repeated_reference=0.008 + 0.001 * b,
                unattended=0.02 + 0.03 * b * (1 + (s in (0, 3))),
                dropped_half=0.015 * b * (1 + s) / 3 if joined else None,
            )
            ratio = 1.0 - (0.05 if s in (0, 3) else 0.01) * max(0, b - 1) if pairs else None
            beyond = low > LIMITS[s]
            cells.append(SystemScores(scores, ratio, beyond, signs if pairs else None))
        rows.append(BucketScores(bucket, low, high, pairs, 0 < pairs < 100, cells))
    pairs = sum(row.pairs for row in rows)
    cells = [
        SystemScores(_scores(made, s, 1, pairs, lower, published=False), 0.98, False)
        for s in range(len(LABELS))
    ]
    rows.append(BucketScores("all", 0, None, pairs, False, cells))
    examples = _examples(made)
    test = ScoredTest(name, about, "subword pieces of absolute 100", 263, METRICS, rows, examples)
    return replace(test, places=_places(), losses=_losses()) if joined else test


def _places() -> list[PlaceScores]:
    """Two and three parts, few of three; of one system a part is unknown."""
    rows = []
    for parts, place in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3)):
        cells = [
            PartShares(
                Share(0.7 - 0.1 * place, 0.6 - 0.1 * place, 0.8 - 0.1 * place), 0.1 * place, 0.02
            )
            if s
            else PartShares(None, None, None)
            for s in range(len(LABELS))
        ]
        rows.append(PlaceScores(parts, place, 900 if parts == 2 else 40, parts == 3, cells))
    return rows


def _losses() -> list[LossParts | None]:
    def share(mean: float) -> Share:
        return Share(mean, mean - 0.02, mean + 0.03)

    parts = LossParts(201, share(0.3), share(0.6), share(0.05), share(0.15), share(0.1))
    return [None, *[parts] * (len(LABELS) - 1)]


def _scores(
    made: random.Random, s: int, b: int, pairs: int, lower: float, published: bool = True
) -> dict[str, Score]:
    scores = {}
    for m, metric in enumerate(METRICS):
        paper = PUBLISHED[s][b][m] if m < 2 else 55.0 + PUBLISHED[s][b][0] / 10
        centre = paper - lower * (1 if metric.higher_is_better else -1)
        seeds = [centre + made.gauss(0, 0.3) for _ in range(3)]
        mean = sum(seeds) / 3
        p = None if s == 0 or pairs < 30 else (0.0 if b > 2 and s != 3 else made.uniform(0.04, 0.9))
        wide = 40 / math.sqrt(pairs)
        score = _score(mean, seeds, p, wide)
        shown = paper if published and m < 2 else None
        scores[metric.name] = replace(score, published=shown)
    return scores


SOURCE = "Die Kommission hat gestern in einer langen Sitzung beschlossen , den Vorschlag der"
SOURCE += " Mitgliedstaaten zur gemeinsamen Fischereipolitik anzunehmen und zu veröffentlichen ."
TARGET = "In a long session yesterday, the Commission decided to adopt and publish the Member"
TARGET += " States' proposal on the common fisheries policy."


def _examples(made: random.Random) -> list[ExamplePair]:
    examples = []
    for n in range(16):
        source, target = SOURCE, TARGET
        if n < len(HOSTILE):
            source, target = HOSTILE[n], HOSTILE[n]
        pieces = None if n == 5 else [piece for word in source.split() for piece in _cut(word)]
        hypotheses = []
        for s in range(len(LABELS)):
            words = target.split()
            keep = len(words) if s in (1, 4) else max(2, len(words) - 3 - s)
            kept = [w for w in words[:keep] if made.random() > 0.08]
            text = " ".join("thing" if made.random() < 0.06 else w for w in kept)
            text = "" if n == 6 and s == 3 else text
            coverage = None
            if pieces is not None and s != 2:
                coverage = [made.random() ** 2 * 1.8 for _ in pieces]
            hypotheses.append(ExampleTranslation(text, made.uniform(10, 95), coverage))
        why = "most different" if n % 2 else "worst"
        bucket = BUCKETS[n % 5][0]
        length = len(pieces or source.split())
        examples.append(
            ExamplePair(100 * n + 7, why, source, target, length, bucket, pieces, hypotheses)
        )
    return examples


def _cut(word: str) -> list[str]:
    return [word] if len(word) < 8 else [word[:6] + "@@", word[6:]]


def _profiles(made: random.Random) -> list[AttentionProfile]:
    profiles = []
    for system in range(len(LABELS)):
        for bucket, *_ in BUCKETS[1:]:
            for site in ("encoder", "decoder", "cross"):
                distances = list(range(-32, 1 if site == "decoder" else 33))
                for layer in (1, 2, 3):
                    for head in (1, 2, 3, 4):
                        centre = made.choice([-1, 0, 1, 0, -2])
                        wide = made.choice([1.0, 2.0, 8.0, 20.0])
                        raw = [math.exp(-abs(d - centre) / wide) for d in distances]
                        raw[0] *= 3
                        weights = [w / sum(raw) for w in raw]
                        far = sum(w * abs(d) for w, d in zip(weights, distances, strict=True))
                        profiles.append(
                            AttentionProfile(
                                system, "newstest_all", bucket, site, layer, head, far,
                                distances, weights,
                            )
                        )  # fmt: skip
    return profiles
