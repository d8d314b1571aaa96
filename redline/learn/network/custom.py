"""Networks of one's own: any torch module that turns inputs into outputs and state values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from redline.errors import RedlineError
from redline.learn.network.flat import FlatModule, append_free, free_parameters
from redline.learn.network.layers import Network

FORM = "package.module:Net"


class CustomNetwork(FlatModule):
    """Somebody's own module where ours would stand. Its gradient is found by autograd."""

    memory_size = 0

    def __init__(self, factory: Callable[[int, int], nn.Module] | nn.Module, sizes: Network) -> None:
        """`factory` is called with the numbers of inputs and outputs; a module is copied."""
        super().__init__()
        self.sizes = sizes
        module = copy.deepcopy(factory) if isinstance(factory, nn.Module) else _made(factory, sizes)
        self.module = module
        self.free = free_parameters(sizes.num_free)
        self.value_unit: Tensor
        self.register_buffer("value_unit", torch.ones(()))
        _require_answer(module, sizes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [n, outputs] and state values [n]."""
        outputs, values = self.module(inputs)
        return append_free(outputs, self.free), values.reshape(len(inputs)) * self.value_unit

    def scale_values(self, factor: float) -> None:
        """Let the state values be that many times as large."""
        self.value_unit.mul_(factor)


def _made(factory: Callable[[int, int], nn.Module], sizes: Network) -> nn.Module:
    try:
        module: Any = factory(sizes.num_inputs, sizes.num_seeing)
    except Exception as error:
        raise RedlineError(
            f"The network {_name(factory)} cannot be made of {sizes.num_inputs} inputs and {sizes.num_seeing} outputs: "
            f"{type(error).__name__}: {error}."
        ) from error
    if not isinstance(module, nn.Module):
        raise RedlineError(f"{_name(factory)} makes a {type(module).__name__}, not a torch.nn.Module. Return a module.")
    return module


def _require_answer(module: nn.Module, sizes: Network) -> None:
    """Refuse a module that has nothing to learn, or whose answer is not outputs and values."""
    name, due = type(module).__name__, f"(outputs [n, {sizes.num_seeing}], values [n])"
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise RedlineError(f"The network {name} has no weights to learn. Pass one that has.")
    try:
        with torch.no_grad():
            answer: Any = module(torch.zeros(3, sizes.num_inputs))
    except Exception as error:
        raise RedlineError(
            f"The network {name} cannot take inputs [n, {sizes.num_inputs}]: {' '.join(str(error).split())}."
        ) from error
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise RedlineError(f"The network {name} answers with a {type(answer).__name__}. Return {due}.")
    shapes = [tuple(getattr(part, "shape", ())) for part in answer]
    if shapes[0] != (3, sizes.num_seeing) or shapes[1] not in ((3,), (3, 1)):
        raise RedlineError(
            f"The network {name} answers 3 inputs with shapes {shapes[0]} and {shapes[1]}. Return {due}."
        )


def _name(factory: object) -> str:
    return getattr(factory, "__qualname__", type(factory).__name__)
