"""Torch modules whose weights are one vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from redline.threads import keep_torch_to_its_threads


class FlatModule(nn.Module):
    """A module with all of its weights in one vector, of which the parameters are views."""

    def __init__(self) -> None:
        super().__init__()
        keep_torch_to_its_threads()
        self._weights: Tensor | None = None
        self._first: tuple[nn.Parameter, ...] = ()  # a tuple, or torch would count it twice

    @property
    def first(self) -> nn.Parameter:
        """The first parameter, found once: looking for it takes longer than a small network takes to answer."""
        if not self._first:
            self._first = (next(self.parameters()),)
        return self._first[0]

    @property
    def weights(self) -> Tensor:
        """All weights as one vector, of which the layers' own are views; its `grad` is shared in the same way."""
        if (
            self._weights is None or self._weights.data_ptr() != self.first.data_ptr()
        ):  # new, or moved to another device
            self._weights = self._flatten()
        return self._weights

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.first.device

    def _flatten(self) -> Tensor:
        vector = torch.cat([each.detach().reshape(-1) for each in self.parameters()])
        vector.grad = torch.zeros_like(vector)
        return self.share(vector)

    def share(self, vector: Tensor) -> Tensor:
        """Let all parameters be views of a vector, and their gradients views of its own. Returns it."""
        assert vector.grad is not None
        place = 0
        for parameter in self.parameters():
            part = slice(place, place + parameter.numel())
            shape = parameter.shape
            parameter.data, parameter.grad = vector.data[part].view(shape), vector.grad[part].view(shape)
            place = part.stop
        return vector


def append_free(outputs: Tensor, free: nn.ParameterList) -> Tensor:
    """Outputs [n, …] with those behind them that are the same for every observation."""
    return torch.cat([outputs, free[0].expand(outputs.shape[0], -1)], dim=1) if len(free) else outputs


def free_parameters(count: int) -> nn.ParameterList:
    """The outputs that are the same for every observation."""
    return nn.ParameterList([torch.zeros(count)] if count else [])
