"""Where the test text of a corpus lies: what a user translates next."""

from pathlib import Path

from nmt.config import Files, Settings


def test_texts(settings: Settings) -> tuple[str, str]:
    """The test set's files, source and target; placeholders where the config names none.

    Those of the embedded corpus lie in its prepared directory, which is made if it is missing.
    """
    data = settings.data
    if isinstance(data, Files):
        source = data.test_source or f"TEST.{data.source_language}"
        return source, data.test_target or f"TEST.{data.target_language}"
    from nmt.data.prepare import prepare

    prepared = prepare(data, settings.segmenter)
    facts = prepared.facts
    return str(Path(prepared.path, facts["test_source"])), str(
        Path(prepared.path, facts["test_target"])
    )
