"""One step of training on synthetic text: does a model run, and do all parameters get gradients?"""

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks.example import Sentences
from nmt.checks.hooks import checking_hooks
from nmt.encodings.base import Encoding
from nmt.model.transformer import PAD, Transformer


class CheckError(Exception):
    """A check that a model fails: what deviates, with its place in the config."""


def require(holds: bool | Tensor, fault: str) -> None:
    """Raise CheckError unless something holds."""
    if not holds:
        raise CheckError(fault)


def step(model: Transformer, sentences: Sentences) -> None:
    """Compute a loss and its gradients, from torch's global generator.

    Raises CheckError where something is not finite, a parameter gets no gradient, or torch does not
    know a tensor of an encoding; what encodings raise passes through.
    """
    _require_registered(model)
    target = sentences.target.clone()
    target[0, max(1, target.shape[1] - 2) :] = PAD
    model.train()
    with checking_hooks(model.entries):
        logits = model(sentences.source, target, sentences.columns)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    require(loss.isfinite(), f"encoding: the loss of a first step is {loss.item()}")
    loss.backward()
    # by the names that a config has for them, or the model
    parameters = {p: f"model: {name}" for name, p in model.named_parameters()}
    for e in model.entries:
        parameters |= {p: name_of(e, name) for name, p in e.named_parameters()}
    lacking = {p for e in model.entries if e.may_lack_gradients for p in e.parameters()}
    of_model = {p for p, name in parameters.items() if name.startswith("model: ")}
    lacking |= of_model if any(e.may_lack_gradients for e in model.entries) else set()
    for p, name in parameters.items():
        finite = p.grad is None or p.grad.isfinite().all()
        require(finite, f"{name}: its gradient in a first step is not finite")
        require(
            p.grad is not None or not p.requires_grad or p in lacking,
            f"{name}: gets no gradient, so it would never learn; another entry may replace what it "
            "adds to: leave one out",
        )


def name_of(e: Encoding, attribute: str) -> str:
    """An attribute of an encoding as messages name it."""
    return f"encoding.{e.name}: {attribute} ({e.dims.site})"


def _require_registered(model: Transformer) -> None:
    """Refuse encodings with a tensor or a module in an attribute that torch does not know of."""
    known = {id(each) for each in (*model.parameters(), *model.buffers(), *model.modules())}
    for e in model.entries:
        for name, value in (item for module in e.modules() for item in vars(module).items()):
            values = value.values() if isinstance(value, dict) else value
            held = values if isinstance(value, (list, tuple, dict)) else [value]
            require(
                all(id(v) in known for v in held if isinstance(v, (Tensor, nn.Module))),
                f"{name_of(e, name)} is neither a parameter nor a buffer, so it would not be "
                "saved, nor moved to a GPU; use nn.Parameter, nn.ParameterList, nn.ModuleList, or "
                "register_buffer, for constants with persistent=False",
            )
