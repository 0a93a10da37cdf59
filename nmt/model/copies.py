"""Copies of models, in a fifth of the time that `copy.deepcopy` alone takes for them."""

from collections import OrderedDict
from copy import deepcopy
from typing import Any

from torch import nn


def copied(module: nn.Module, memo: dict[int, Any]) -> Any:
    """Make what `copy.deepcopy` makes of a module; `memo` is its own, by the id of each original.

    Most of its time goes into dicts: a module of torch has ten, nearly all of them empty, and
    each is taken apart and put together as an object like any other.
    """
    reduced: Any = module.__reduce_ex__(4)
    make, arguments, state, *_ = reduced
    new = memo[id(module)] = make(*arguments)
    new.__setstate__({name: _part(value, memo) for name, value in state.items()})
    return new


def _part(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if id(value) not in memo:
        if kind in (dict, OrderedDict, set) and not value:
            memo[id(value)] = kind()
        elif kind is dict:  # modules in it must come back to `copied`
            new = memo[id(value)] = {}
            for key, held in value.items():
                new[deepcopy(key, memo)] = _part(held, memo)
        elif isinstance(value, nn.Module) and not hasattr(kind, "__deepcopy__"):
            return copied(value, memo)
        else:
            return deepcopy(value, memo)
    return memo[id(value)]
