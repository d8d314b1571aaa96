"""An exported policy does what our own does, in whatever runs it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import redline
from redline.cli import main
from redline.engines.spec import EnvDescription
from redline.errors import RedlineError
from redline.learn.agent import Agent
from redline.learn.config import TrainConfig
from redline.learn.train import make_policy
from redline.worlds.batch import encoding_of

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
box = gym.spaces.Box

PLACES = box(-3.0, 3.0, (4,), np.float32)
SPACES: dict[str, tuple[gym.Space, gym.Space]] = {
    "discrete": (PLACES, gym.spaces.Discrete(5)),
    "counted from 3": (gym.spaces.Discrete(6, start=2), gym.spaces.Discrete(5, start=3)),
    "small numbers": (box(0, 3, (7,), np.int8), gym.spaces.Discrete(4)),
    "several": (PLACES, gym.spaces.MultiDiscrete([3, 2, 4], start=[1, 0, 5])),
    "bits": (PLACES, gym.spaces.MultiBinary((2, 3))),
    "box": (PLACES, box(-1.0, 2.0, (3,), np.float32)),
    "relu": (PLACES, box(-1.0, 2.0, (3,), np.float32)),
    "several states": (gym.spaces.MultiDiscrete([3, 4], start=[1, 0]), gym.spaces.Discrete(3)),
    "normalised": (PLACES, gym.spaces.Discrete(3)),
    "pictures": (box(0, 255, (9, 8, 3), np.uint8), gym.spaces.Discrete(3)),
    "gru": (PLACES, gym.spaces.Discrete(3)),
    "lstm": (PLACES, box(-1.0, 2.0, (3,), np.float32)),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "relu": {"activation": "relu"},
    "normalised": {"normalise_observations": True, "shared": True},
    "gru": {"recurrent": "gru"},
    "lstm": {"recurrent": "lstm"},
}
QUICKER = ("discrete", "bits", "counted from 3", "relu", "small numbers", "box")
"""Those that onnx, which is slow to export to, has cases enough without."""


def make_agent(kind: str) -> Agent:
    """An agent with random weights, large enough that it has opinions."""
    seen, done = SPACES[kind]
    config = TrainConfig("CartPole-v1", hidden=(16, 8), **SETTINGS.get(kind, {}))
    env = EnvDescription(seen, done, encoding_of(None, seen))
    policy = make_policy(env, config, seed=3)
    with torch.no_grad():
        policy.weights.copy_(torch.randn(policy.weights.shape, generator=torch.Generator().manual_seed(0)))
    if policy.normaliser is not None:
        policy.normaliser.see(np.random.default_rng(0).normal(1.0, 0.1, (50, 4)), np.ones(50))
    return Agent(config, env, policy.arrays(), unit=2.5)


def situations(agent: Agent, count: int) -> dict[str, np.ndarray]:
    """Observations, with masks where there is something to rule out, and with memories where something is remembered."""
    space = agent.described.single_observation_space
    space.seed(0)
    rng, head = np.random.default_rng(1), agent.policy.head
    given = {"observations": np.stack([space.sample() for _ in range(count)])}
    if not head.num_free:
        given["mask"] = rng.random((count, head.num_outputs)) < 0.8
        given["mask"][:, np.cumsum([0, *getattr(head, "sizes", ())])[: len(getattr(head, "sizes", (1,)))]] = True
    if agent.policy.memory_size:
        given["memory"] = rng.normal(size=(count, agent.policy.memory_size)).astype(np.float32)
    return given


def expected(agent: Agent, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What our own network answers."""
    policy, observations = agent.policy, given["observations"]
    table = policy.head.empty(len(observations))
    memory = [given["memory"].copy()] if "memory" in given else []
    values = policy.infer(observations, given.get("mask"), table, *memory)
    actions, _ = policy.head.likeliest(table, np.arange(len(observations)))
    return [policy.head.played(actions), np.exp(table[1 if policy.head.num_free else 0]), values * agent.unit, *memory]


def in_onnxruntime(path: Path) -> Callable[..., Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda **given: session.run(None, given)


def in_torch(path: Path) -> Callable[..., Any]:
    program = torch.export.load(path).module()
    return lambda **given: [
        each.detach().numpy() for each in program(**{name: torch.from_numpy(array) for name, array in given.items()})
    ]


RUN_BY = {"onnx": in_onnxruntime, "pt2": in_torch}


CASES = [(kind, ending) for kind in SPACES for ending in RUN_BY if kind not in {"onnx": QUICKER, "pt2": ()}[ending]]


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_an_exported_policy_answers_as_our_own_does(kind, ending, tmp_path):
    agent = make_agent(kind)
    path = redline.export(agent, tmp_path / f"policy.{ending}")
    run = RUN_BY[ending](path)
    for count in (1, 9):
        given = situations(agent, count)
        own = expected(agent, given)
        for found, due in zip(run(**given), own, strict=True):
            np.testing.assert_allclose(found, due, rtol=1e-4, atol=1e-4)


def test_the_command_exports_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "cage2", "--num-envs", "4", "--num-steps", "10", "--total-steps", "40", "--eval-episodes", "0",
                 "--run-dir", str(run), "-q"]) == 0  # fmt: skip
    path = tmp_path / "policy.pt2"
    assert main(["export", str(run), str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {path}"
    agent = redline.load(run)
    obs, _ = redline.make_env("cage2", 5).reset(seed=1)
    mask = np.ones((len(obs), agent.policy.head.num_outputs), np.bool_)
    action, probabilities, value = in_torch(path)(observations=obs, mask=mask)
    np.testing.assert_array_equal(action, agent.act(obs))
    np.testing.assert_allclose(probabilities, agent.probabilities(obs), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, agent.value(obs), rtol=1e-4, atol=1e-4)


def test_a_file_that_does_not_say_what_it_is_is_refused(tmp_path):
    with pytest.raises(RedlineError, match=r"one of .onnx, .pt2. Try policy.onnx"):
        redline.export(make_agent("discrete"), tmp_path / "policy.bin")


def test_what_is_not_installed_is_named_with_lines_that_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[onnx\]', or in a clone: pip install -e '.\[onnx\]'"):
        redline.export(make_agent("discrete"), tmp_path / "policy.onnx")


def test_an_export_leaves_the_users_logging_as_it_was(tmp_path):
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        redline.export(make_agent("discrete"), tmp_path / "policy.pt2")
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(before)
