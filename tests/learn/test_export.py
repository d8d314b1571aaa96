"""An exported policy does what our own does, in whatever runs it."""

from __future__ import annotations

import re
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
}
QUICKER = ("discrete", "bits")
"""Those that onnx, which is slow to export to, has cases enough without."""


def make_agent(kind: str) -> Agent:
    """An agent with random weights, large enough that it has opinions."""
    seen, done = SPACES[kind]
    config = TrainConfig("CartPole-v1", hidden=(16, 8))
    env = EnvDescription(seen, done, encoding_of(None, seen))
    policy = make_policy(env, config, seed=3)
    with torch.no_grad():
        policy.weights.copy_(torch.randn(policy.weights.shape, generator=torch.Generator().manual_seed(0)))
    return Agent(config, env, policy.arrays(), unit=2.5)


def situations(agent: Agent, count: int = 9) -> tuple[np.ndarray, np.ndarray | None]:
    """Observations, and masks where there is something to rule out."""
    space = agent.described.single_observation_space
    space.seed(0)
    observations = np.stack([space.sample() for _ in range(count)])
    head = agent.policy.head
    if head.num_free:
        return observations, None
    mask = np.random.default_rng(1).random((count, head.num_outputs)) < 0.8
    mask[:, 0] = True
    for first in np.cumsum([0, *getattr(head, "sizes", ())])[:-1]:
        mask[:, first] = True
    return observations, mask


def expected(agent: Agent, observations: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """What our own network answers."""
    policy = agent.policy
    table = policy.head.empty(len(observations))
    values = policy.infer(observations, mask, table)
    actions, _ = policy.head.likeliest(table, np.arange(len(observations)))
    return policy.head.played(actions), np.exp(table[1 if policy.head.num_free else 0]), values * agent.unit


def in_onnxruntime(path: Path) -> Callable[..., Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *given: session.run(None, dict(zip(names, given, strict=True)))


def in_torch(path: Path) -> Callable[..., Any]:
    program = torch.export.load(path).module()
    return lambda *given: [each.detach().numpy() for each in program(*map(torch.from_numpy, given))]


def in_numpy(path: Path) -> Callable[..., Any]:
    """As docs/export.md reads it."""
    text = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.S)
    there: dict[str, Any] = {}
    exec(code.replace('"policy.npz"', repr(str(path))), there)
    return there["act"]


RUN_BY = {"onnx": in_onnxruntime, "pt2": in_torch, "npz": in_numpy}


CASES = [(kind, ending) for kind in SPACES for ending in RUN_BY if ending != "onnx" or kind not in QUICKER]


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_an_exported_policy_answers_as_our_own_does(kind, ending, tmp_path):
    agent = make_agent(kind)
    path = redline.export(agent, tmp_path / f"policy.{ending}")
    run = RUN_BY[ending](path)
    for count in (1, 9):
        given = situations(agent, count)
        action, distribution, value = run(*(each for each in given if each is not None))
        own_action, own_distribution, own_value = expected(agent, *given)
        np.testing.assert_allclose(action.reshape(own_action.shape), own_action, rtol=1e-4, atol=1e-5)
        distribution = np.broadcast_to(distribution, own_distribution.shape)  # deviations of an .npz are those of all
        np.testing.assert_allclose(distribution, own_distribution, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value, own_value, rtol=1e-4, atol=1e-4)


def test_the_command_exports_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "cage2", "--num-envs", "4", "--num-steps", "10", "--total-steps", "40", "--eval-episodes", "0",
                 "--run-dir", str(run), "-q"]) == 0  # fmt: skip
    assert main(["export", str(run), str(tmp_path / "policy.npz")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {tmp_path / 'policy.npz'}"
    agent = redline.load(run)
    obs, _ = redline.make_env("cage2", 5).reset(seed=1)
    action, probabilities, value = in_numpy(tmp_path / "policy.npz")(obs)
    np.testing.assert_array_equal(action[:, 0], agent.act(obs))
    np.testing.assert_allclose(probabilities, agent.probabilities(obs), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, agent.value(obs), rtol=1e-4, atol=1e-4)


def test_a_file_that_does_not_say_what_it_is_is_refused(tmp_path):
    with pytest.raises(RedlineError, match=r"one of .onnx, .pt2, .npz. Try policy.onnx"):
        redline.export(make_agent("discrete"), tmp_path / "policy.bin")


def test_what_is_not_installed_is_named_with_lines_that_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[onnx\]', or in a clone: pip install -e '.\[onnx\]'"):
        redline.export(make_agent("discrete"), tmp_path / "policy.onnx")
