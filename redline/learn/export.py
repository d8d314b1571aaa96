"""A trained policy as a file that others can run: ONNX or a torch program.

Whatever the file, it takes observations as the env gives them and answers with the likeliest actions, as the env takes
them, the distribution they are from, and state values in the env's own rewards.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from redline.errors import RedlineError, install
from redline.files import make_folder, reason
from redline.learn.agent import Agent
from redline.learn.api import load
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.components import Components
from redline.learn.heads.gaussian import Gaussian
from redline.learn.heads.head import Head
from redline.learn.heads.masking import MASKED
from redline.learn.network.flat import append_free
from redline.learn.network.recurrent import MemoryStack, RecurrentNetwork
from redline.learn.normaliser import FARTHEST
from redline.learn.policy import Policy
from redline.worlds.encoding import Encoding, Image, OneHot, OneHots, Plain

OBSERVATIONS, MASK, MEMORY = "observations", "mask", "memory"
ACTION, PROBABILITIES, DEVIATIONS, VALUE, NEXT_MEMORY = "action", "probabilities", "deviations", "value", "next_memory"


def export(agent: Agent | str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Write an agent, or that of a run, to a file whose ending says how: .onnx or .pt2 (`torch.export`)."""
    target = Path(path)
    if target.suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise RedlineError(
            f"{target} does not say what to write: it must end in one of {known}. Try {target.stem}.onnx."
        )
    found = agent if isinstance(agent, Agent) else load(agent)
    try:
        make_folder(target.parent)
        WRITERS[target.suffix](found, target)
    except OSError as error:
        raise RedlineError(f"{target} cannot be written: {reason(error)}.") from error
    return target


class ExportedPolicy(nn.Module):
    """A policy from observations to actions, all of it in torch."""

    offsets: Tensor
    factors: Tensor

    def __init__(self, policy: Policy, unit: float) -> None:
        super().__init__()
        self.network, self._head, self._form, self._unit = policy.network, policy.head, policy.encoding, unit
        shift = None if policy.normaliser is None else policy.normaliser.shift
        self.normalises = shift is not None
        if shift is not None:
            self.register_buffer("offsets", torch.from_numpy(shift.offsets.copy()))
            self.register_buffer("factors", torch.from_numpy(shift.factors.copy()))

    @property
    def input_names(self) -> list[str]:
        """What it takes: masks unless actions are in a box, and a memory if it has one."""
        masks = [] if isinstance(self._head, Gaussian) else [MASK]
        return [OBSERVATIONS, *masks, *([MEMORY] if self.network.memory_size else [])]

    @property
    def output_names(self) -> list[str]:
        """What it answers."""
        distribution = PROBABILITIES if MASK in self.input_names else DEVIATIONS
        return [ACTION, distribution, VALUE, *([NEXT_MEMORY] if self.network.memory_size else [])]

    def examples(self, count: int = 2) -> dict[str, Tensor]:
        """Inputs of the right form, by name."""
        first = getattr(self._form, "first", 0)
        firsts = np.array(self._form.firsts).reshape(self._form.shape) if isinstance(self._form, OneHots) else first
        observations = np.zeros((count, *self._form.shape), self._form.dtype) + np.asarray(firsts, self._form.dtype)
        whole = {
            OBSERVATIONS: torch.from_numpy(observations),
            MASK: torch.ones(count, self._head.num_outputs, dtype=torch.bool),
            MEMORY: torch.zeros(count, self.network.memory_size),
        }
        return {name: whole[name] for name in self.input_names}

    def forward(
        self, observations: Tensor, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Actions, the distributions they are the likeliest of, state values, and what is remembered."""
        numbers = decoded(self._form, observations)
        if self.normalises:
            numbers = ((numbers - self.offsets) * self.factors).clamp(-float(FARTHEST), float(FARTHEST))
        memories: tuple[Tensor, ...] = ()
        if isinstance(self.network, RecurrentNetwork):
            assert memory is not None
            outputs, values, memory = stepped(self.network, numbers, memory)
            memories = (memory,)
        else:
            outputs, values = self.network(numbers)
        if mask is not None:
            outputs = torch.where(mask, outputs, torch.full_like(outputs, MASKED))
        action, distribution = answered(self._head, outputs)
        return action, distribution, values * self._unit, *memories


def stepped(network: RecurrentNetwork, numbers: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, state values and memories [n, memory size] after one step of a network that remembers."""
    if network.convs is not None:
        numbers = network.convs(numbers.reshape(-1, *network.sizes.picture)).flatten(1)
    size = network.stack.memory_size
    features = critic_features = whole = advanced(network.stack, numbers, memory[:, :size])
    if network.critic_stack is not None:
        critic_features = advanced(network.critic_stack, numbers, memory[:, size:])
        whole = torch.cat([features, critic_features], dim=1)
    width = network.stack.width
    values = network.critic(critic_features[:, :width]).squeeze(-1)
    return append_free(network.actor(features[:, :width]), network.free), values, whole


def advanced(stack: MemoryStack, numbers: Tensor, memory: Tensor) -> Tensor:
    """The memories [n, memory size] of a stack after one step; what it makes of the step comes first in them."""
    seen, width = stack.trunk(numbers), stack.width
    in_weight, weight, in_bias, bias = stack.memory.all_weights[0]
    if isinstance(stack.memory, nn.LSTM):
        hidden, cell = memory.split(width, dim=1)
        both = (seen @ in_weight.T + in_bias + hidden @ weight.T + bias).split(width, dim=1)
        cell = both[1].sigmoid() * cell + both[0].sigmoid() * both[2].tanh()
        return torch.cat([both[3].sigmoid() * cell.tanh(), cell], dim=1)
    coming = (seen @ in_weight.T + in_bias).split(width, dim=1)
    kept = (memory @ weight.T + bias).split(width, dim=1)
    reset, update = (coming[0] + kept[0]).sigmoid(), (coming[1] + kept[1]).sigmoid()
    new = (coming[2] + reset * kept[2]).tanh()
    return new + update * (memory - new)


# Observations, by the form that they have


@functools.singledispatch
def decoded(form: Encoding, observations: Tensor) -> Tensor:
    """What the network sees of observations, float32 [n, inputs]."""
    raise RedlineError(f"Observations in the form {type(form).__name__} cannot be exported.")


@decoded.register
def _(form: Plain, observations: Tensor) -> Tensor:
    numbers = observations.flatten(1).float()
    return numbers if form.unit == 1.0 else numbers * float(np.float32(1 / form.unit))


@decoded.register
def _(form: Image, observations: Tensor) -> Tensor:
    pictures = observations.permute(0, 3, 1, 2) if form.channels_last and len(form.shape) == 3 else observations
    return pictures.flatten(1).float() * float(np.float32(1 / form.unit))


@decoded.register
def _(form: OneHots, observations: Tensor) -> Tensor:
    states = (observations.flatten(1).long() - torch.tensor(form.firsts)).split(1, dim=1)
    parts = [state == torch.arange(count) for state, count in zip(states, form.counts, strict=True)]
    return torch.cat(parts, dim=1).float()


@decoded.register
def _(form: OneHot, observations: Tensor) -> Tensor:
    places = observations.long().unsqueeze(1) - form.first
    return (places == torch.arange(form.count)).float()


# Answers, by the kind of action


@functools.singledispatch
def answered(head: Head, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest actions as the env takes them, and the probabilities, or deviations, of what they are drawn from."""
    raise RedlineError(f"Actions of the kind {type(head).__name__} cannot be exported.")


@answered.register
def _(head: Categorical, outputs: Tensor) -> tuple[Tensor, Tensor]:
    return outputs.argmax(dim=1) + head.first, outputs.softmax(dim=1)


@answered.register
def _(head: Components, outputs: Tensor) -> tuple[Tensor, Tensor]:
    parts = outputs.split(head.sizes, dim=1)
    firsts = torch.tensor(head.firsts or (0,) * len(head.sizes))
    actions = torch.stack([part.argmax(dim=1) for part in parts], dim=1) + firsts
    return actions.reshape(-1, *head.action_shape), torch.cat([part.softmax(dim=1) for part in parts], dim=1)


@answered.register
def _(head: Gaussian, outputs: Tensor) -> tuple[Tensor, Tensor]:
    means, log_deviations = outputs.split(head.size, dim=1)
    return _shaped(head, means.clamp(*_bounds(head))), log_deviations.exp()


def _bounds(head: Gaussian) -> tuple[Tensor, Tensor]:
    return torch.tensor(head.low, dtype=torch.float32), torch.tensor(head.high, dtype=torch.float32)


def _shaped(head: Gaussian, numbers: Tensor) -> Tensor:
    whole = head.played_dtype.kind in "iu"
    dtype = torch.from_numpy(np.zeros(0, head.played_dtype)).dtype
    return (numbers.round() if whole else numbers).reshape(-1, *head.action_shape).to(dtype)


# Files


def write_onnx(agent: Agent, path: Path) -> None:
    """An ONNX model, by torch's exporter."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise RedlineError(f"{path} needs onnx and onnxscript. Try: {install('onnx')}") from error
    module = _module(agent)
    with _quietly():
        torch.onnx.export(
            module, (), str(path), kwargs=module.examples(), dynamo=True, external_data=False, verbose=False,
            input_names=module.input_names, output_names=module.output_names, dynamic_shapes=_any_number(module),
        )  # fmt: skip


def write_torch(agent: Agent, path: Path) -> None:
    """A program of `torch.export`, which `torch.export.load(path).module()` runs without Redline."""
    module = _module(agent)
    with _quietly():
        program = torch.export.export(module, (), module.examples(), dynamic_shapes=_any_number(module))
        torch.export.save(program, str(path))


WRITERS: dict[str, Callable[[Agent, Path], None]] = {
    ".onnx": write_onnx,
    ".pt2": write_torch,
}


def _module(agent: Agent) -> ExportedPolicy:
    return ExportedPolicy(agent.policy.to("cpu"), agent.unit).eval()


def _any_number(module: ExportedPolicy) -> dict[str, Any]:
    """Batches may be of any size."""
    count = torch.export.Dim("count")
    return {name: {0: count} for name in module.input_names}


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch has to say about how it exports."""
    level = logging.getLogger("torch.onnx").level
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        logging.getLogger("torch.onnx").setLevel(level)
