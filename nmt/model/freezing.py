"""Parts of a model that training leaves as they are."""

from collections.abc import Sequence

from nmt.model.transformer import Transformer

PARTS = {
    "encoder": ("encoder", "encoder_encodings"),
    "decoder": ("decoder", "decoder_encodings", "cross_encodings"),
    "embeddings": ("source_embedding", "target_embedding"),
}  # names of parts -> modules; any other name is the beginning of the names of parameters


def freeze(model: Transformer, names: Sequence[str]) -> None:
    """Let parameters have no gradient: of named parts, or below a name such as decoder.layers.0.

    An output layer that is tied to embeddings is frozen with them. Raises ValueError for a name
    that no parameter has, and where nothing is left to train.
    """
    parameters = list(model.named_parameters(remove_duplicate=False))  # tied ones have two names
    for name in names:
        starts = tuple(f"{start}." for start in PARTS.get(name, (name,)))
        frozen = [p for key, p in parameters if f"{key}.".startswith(starts)]
        if not frozen:
            known = [*PARTS, *sorted({key.split(".")[0] for key, _ in parameters} - {*PARTS})]
            raise ValueError(f"no parameter is named {name}; known are {', '.join(known)}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if names and not any(p.requires_grad for _, p in parameters):
        raise ValueError("nothing is left to train; name fewer parts")
