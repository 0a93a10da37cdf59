"""All that can be told of a translated test without the models: scores, signs, examples."""

from nmt.compare import scoring
from nmt.compare.examples import SENTENCE, with_examples
from nmt.compare.report import ScoredTest
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.undertranslation import with_signs


def diagnose(test: TranslatedTest, how: Bootstrap) -> ScoredTest:
    """Score a test set by bucket, look for signs of under-translation, choose examples.

    The usual metrics are added to those of the test. Raises UserError as `score` does.
    """
    usual = [scorer.name for scorer in scoring.scorers_of(test._replace(metrics=None), how)]
    test = test._replace(metrics=list(dict.fromkeys([*(test.metrics or ()), *usual])))
    used = scoring.scorers_of(test, how)
    counts = scoring.count(test, how, [scorer.name for scorer in used])
    scored = scoring.score_counts(test, how, used, counts)
    scored = with_signs(scored, test, how.jobs)
    sentence = next(scorer for scorer in used if scorer.name == SENTENCE)
    return with_examples(scored, test, sentence, counts)
