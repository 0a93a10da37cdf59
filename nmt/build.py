"""From settings to a model."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt.config.settings import Decode, Settings, integers
from nmt.encodings.registry import create
from nmt.errors import Exit, UserError, is_out_of_memory, where_raised
from nmt.model.transformer import Transformer
from nmt.text.languages import language_id
from nmt.text.vocab import Vocabulary

ON_META = (
    " Models are also built without numbers (device meta), so a constructor cannot read numbers of "
    "a tensor: compute them with math, or in a tensor with device='cpu'."
)
# torch hands over the functions of nn.init whole, not the calls in them
INITIALISING = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)
FILLING = (*INITIALISING, Tensor.normal_, Tensor.uniform_)  # with random numbers
DIM, INNER, HEADS, LAYERS = 16, 24, 2, 2  # of a small model instead of a large one

PARTS = {
    "encoder": ("encoder", "encoder_encodings"),
    "decoder": ("decoder", "decoder_encodings", "cross_encodings"),
    "embeddings": ("source_embedding", "target_embedding"),
}  # names of parts -> modules; any other name is the beginning of the names of parameters


def transformer(settings: Settings, source_size: int, target_size: int) -> Transformer:
    """Make the model in float32, its weights drawn from torch's global generator.

    Raises UserError that names the key whose value cannot be, or where a constructor failed.
    """
    model = settings.model
    if model.dim % model.heads:
        raise UserError(f"model.heads={model.heads}: must divide model.dim={model.dim}")
    try:
        network = Transformer(model, source_size, target_size, partial(create, settings.encoding))
        return network if torch.get_default_dtype() == torch.float32 else network.float()
    except ValueError as e:
        prefix = "" if str(e).startswith("encoding.") else "model: "
        raise UserError(f"{prefix}{e}") from None
    except Exception as e:  # whatever the constructor of an encoding raises
        if not is_out_of_memory(e):
            hint = ON_META if "meta tensor" in str(e) else ""
            names = ",".join(settings.encoding)
            raise UserError(
                f"encoding=[{names}]: the model cannot be built: {where_raised(e)}{hint}"
            ) from e
        sizes = (*integers(settings.encoding, "encoding"), *integers(vars(model), "model"))
        name, value = max(sizes, key=lambda size: size[1])
        raise UserError(
            f"{name}={value}: no memory holds what it asks for; lower it", Exit.NO_MEMORY
        ) from None


def model(settings: Settings, source: Vocabulary, target: Vocabulary) -> Transformer:
    """Make the model for two vocabularies, which must have the languages of the settings."""
    network = transformer(settings, len(source), len(target))
    set_languages(network, settings.decode, source, target)
    return network


class Uninitialised(TorchFunctionMode):
    """A context in which a model is built without drawing weights, which will be read.

    Memory that is never written takes no space: embeddings that are tied later take theirs once.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Skip calls that draw random numbers from the global generator."""
        named = dict(kwargs or {})
        if named.get("generator") is None:
            named.pop("generator", None)
            if func in FILLING:
                return args[0] if args else named["tensor"]
            func = torch.zeros if func in (torch.rand, torch.randn) else func
        return func(*args, **named)


def set_languages(
    model: Transformer, decode: Decode, source: Vocabulary, target: Vocabulary
) -> None:
    """Have a model read and write the languages of its settings; UserError for an unknown one."""
    check_languages(model, decode)
    for side, vocabulary in (("source", source), ("target", target)):
        key = f"{side}_language"
        setattr(model, key, language_id(vocabulary, getattr(decode, key), f"decode.{key}"))


def check_languages(model: Transformer, decode: Decode) -> None:
    """Raise UserError for a language if encodings read a column: its piece has no number there."""
    for key in ("source_language", "target_language"):
        if (name := getattr(decode, key)) is not None and model.columns:
            raise UserError(
                f"decode.{key}={name}: its piece has no number in column {min(model.columns)}, "
                "which an encoding reads; choose another encoding"
            )


def freeze(model: Transformer, names: Sequence[str]) -> None:
    """Freeze the parameters of named parts, or below a name such as decoder.layers.0.

    An output layer that is tied to embeddings is frozen with them. Raises ValueError for a name
    that no parameter has, and where nothing is left to train.
    """
    parameters = list(model.named_parameters(remove_duplicate=False))  # tied ones have two names
    for name in names:
        starts = tuple(f"{start}." for start in PARTS.get(name, (name,)))
        frozen = [p for key, p in parameters if f"{key}.".startswith(starts)]
        if not frozen:
            choices = [*PARTS, *sorted({key.split(".")[0] for key, _ in parameters} - {*PARTS})]
            raise ValueError(f"no parameter is named {name}; known are {', '.join(choices)}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if names and not any(p.requires_grad for _, p in parameters):
        raise ValueError("nothing is left to train; name fewer parts")


def shallow(model: Transformer) -> Transformer:
    """Copy a model's modules, which can then be changed, but not its tensors."""
    tensors = [*model.parameters(), *model.buffers()]
    for module in model.modules():  # such as packed weights in int8, which cannot be copied
        tensors += [value for value in vars(module).values() if isinstance(value, Tensor)]
    return deepcopy(model, {id(tensor): tensor for tensor in tensors})


def meta_model(settings: Settings, source_size: int, target_size: int) -> Transformer:
    """Make the model on the meta device: shapes without numbers, which take no memory.

    It takes a second or two: for meta tensors torch imports its compiler.
    """
    with torch.device("meta"):
        return transformer(settings, source_size, target_size)


def shrink(settings: Settings) -> Settings:
    """Return settings of a small model: 16 dimensions, unless its encodings need the full width.

    It has two layers, or more where model.drop_residual or an entry of the encoding names them.
    """
    model = settings.model
    deepest = max([LAYERS, *model.drop_residual, count_layers(settings.encoding)])
    shallow = replace(
        model,
        encoder_layers=min(model.encoder_layers, deepest),
        decoder_layers=min(model.decoder_layers, deepest),
        feedforward_dim=INNER,
    )
    small = replace(settings, model=replace(shallow, dim=DIM, heads=HEADS))
    try:
        meta_model(small, 8, 8)
    except UserError:
        return replace(settings, model=shallow)
    return small


def count_layers(encoding: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the layers that a model needs for the numbers in `layers` of its encodings."""
    lists = [options.get("layers") for options in encoding.values()]
    numbers = [n for each in lists if isinstance(each, list) for n in each if type(n) is int]
    return 1 + max(numbers, default=-1)
