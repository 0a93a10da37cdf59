"""The profile of a training step: the share of each kind of work."""

from scripts.bench.profile_worker import ORDER
from scripts.bench.rounds import benchmark, middle
from scripts.bench.session import Session
from scripts.bench.table import BenchPart, figure
from scripts.bench.training import choices, size, trainer, training_corpus


def parts(session: Session) -> list[BenchPart]:
    """Profile the training of the chosen encoding in each number format."""
    each_precision = [choices(session, precision) for precision in session.precisions]
    chosen = {name: settings for some in each_precision for name, settings in some.items()}
    first = next(iter(chosen.values()))
    data = training_corpus(session, first)
    candidates = [trainer(session, name, s, data, "profile_worker") for name, s in chosen.items()]
    (measured,) = benchmark(min(session.rounds, 3), candidates)
    rows = []
    for kind in ORDER:
        shares = [middle([answer["shares"][kind] for answer in m.rounds]) for m in measured]
        rows.append([kind, *(figure(share, "{:.1%}") for share in shares), ""])
    return [
        BenchPart(
            "profile",
            f"profile of a training step: {size(first)}, vocabulary {data.vocab}",
            [m.name for m in measured],
            rows,
            [
                "residuals, activations, copies and gradients' sums are `other`",
                *(f"{m.name}: {m.failed}" for m in measured if m.failed),
            ],
            {"entries": [m.to_json() for m in measured]},
        )
    ]
