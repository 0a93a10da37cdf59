"""One step of training on synthetic text: does a model run, and do all parameters get gradients?"""

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.checks.example import Sentences
from nmt.checks.hooks import checking_hooks
from nmt.model.transformer import PAD, Transformer


class CheckError(Exception):
    """A check that a model fails: what deviates, with its place in the config."""


def step(model: Transformer, sentences: Sentences) -> None:
    """Compute a loss and its gradients, from torch's global generator.

    Raises CheckError where something is not finite, a parameter gets no gradient, or torch does not
    know a tensor of an encoding; what encodings raise passes through.
    """
    for name in _unregistered(model):
        raise CheckError(
            f"{name} is neither a parameter nor a buffer, so it would not be saved, nor moved to a "
            "GPU; use nn.Parameter, nn.ParameterList or nn.ModuleList, or register_buffer, for "
            "constants with persistent=False"
        )
    target = sentences.target.clone()
    target[0, max(1, target.shape[1] - 2) :] = PAD
    model.train()
    with checking_hooks(model.entries):
        logits = model(sentences.source, target, sentences.columns)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    if not loss.isfinite():
        raise CheckError(f"encoding: the loss of a first step is {loss.item()}")
    loss.backward()
    for name, p in _named_parameters(model):
        if p.grad is not None and not p.grad.isfinite().all():
            raise CheckError(f"{name}: its gradient in a first step is not finite")
    lacking = [e for e in model.entries if e.may_lack_gradients]
    others = [e for e in model.entries if e not in lacking]
    needed = {id(p) for part in (others if lacking else [model]) for p in part.parameters()}
    for name, p in _named_parameters(model):
        if p.requires_grad and p.grad is None and id(p) in needed:
            raise CheckError(
                f"{name}: gets no gradient, so it would never learn; another entry may replace "
                "what it adds to: leave one out"
            )


def _named_parameters(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter once; those of encodings by the names that a config has for them."""
    in_encodings = set()
    for e in model.entries:
        for name, p in e.named_parameters():
            in_encodings.add(id(p))
            yield f"encoding.{e.name}: {name} ({e.dims.site})", p
    yield from (
        (f"model: {n}", p) for n, p in model.named_parameters() if id(p) not in in_encodings
    )


def _unregistered(model: Transformer) -> Iterator[str]:
    """The attributes of encodings with a tensor or a module that torch does not know of."""
    known = {id(each) for each in (*model.parameters(), *model.buffers(), *model.modules())}
    for e in model.entries:
        for module in e.modules():
            for name, value in vars(module).items():
                values = value.values() if isinstance(value, dict) else value
                held = values if isinstance(value, (list, tuple, dict)) else [value]
                if any(isinstance(v, (Tensor, nn.Module)) and id(v) not in known for v in held):
                    yield f"encoding.{e.name}: {name} ({e.dims.site})"


def num_elements(model: nn.Module) -> int:
    """Elements of all parameters and buffers, shared ones once."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(t.numel() for t in {id(t): t for t in tensors}.values())
