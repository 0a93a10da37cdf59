"""The settings of a model from elsewhere: what its files say, and for the rest what conf/ does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmt.config.compose import experiment_of
from nmt.config.data import Segmentation
from nmt.config.settings import Settings

UNNAMED = "und"  # ISO 639-2: undetermined


def sinusoids(layout: str, denominator: str, start: int = 0) -> list[str]:
    """The overrides that choose sinusoids on the embeddings."""
    key = "encoding.absolute"
    words = ["encoding=absolute", f"{key}.layout={layout}", f"{key}.denominator={denominator}"]
    return [*words, f"{key}.at.index.start={start}"] if start else words


def settings_of(
    overrides: Sequence[str],
    model: Mapping[str, Any],
    longest: int | None,
    shared: bool,
    languages: Sequence[str] = (UNNAMED, UNNAMED),
) -> Settings:
    """The settings as nmt-train would have been given them.

    `overrides` choose encoding and search; texts of files stay out of them, since Hydra reads more
    than text. `model` has the keys of that section; `longest`: pieces of the longest source in
    training, None: unknown; `shared`: both sides have one vocabulary.
    """
    source, target = languages
    arguments = [
        *("data=files", "data.root=elsewhere", "data.name=imported", "data.normalize=none"),
        *([] if longest is None else [f"data.max_length={longest}"]),
        *("decode.unknown=allow", "decode.length_penalty=power"),
    ]
    settings = experiment_of([*arguments, *overrides]).settings
    segmenter = Segmentation("imported", "none", shared_vocabulary=shared)
    data = replace(settings.data, source_language=source, target_language=target)
    shape = replace(settings.model, **model)
    return replace(settings, segmenter=segmenter, model=shape, data=data)
