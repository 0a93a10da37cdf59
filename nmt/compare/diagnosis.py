"""Analysis of a translated test without its models: scores, signs, examples."""

from nmt.compare import scoring
from nmt.compare.examples import SENTENCE, with_examples
from nmt.compare.report import ScoredTest
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.undertranslation import with_signs


def diagnose(test: TranslatedTest, bootstrap: Bootstrap) -> ScoredTest:
    """Score a test set by bucket, look for signs of under-translation, choose examples.

    Raises UserError as `scorers_of` does.
    """
    used = scoring.scorers_of(test, bootstrap)
    examples = [] if test.sources is None else [SENTENCE]
    counts = scoring.count(test, bootstrap, [*(scorer.name for scorer in used), *examples])
    scored = scoring.score_counts(test, bootstrap, used, counts)
    scored = with_signs(scored, test, bootstrap)
    if not examples:
        return scored
    (sentence,) = scoring.scorers_of(test._replace(metrics=examples), bootstrap)
    return with_examples(scored, test, sentence, counts)
