"""What a group of envs in one process notices about its envs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from redline.engines.faults import Failure, Faults, Supervisor
from redline.engines.spec import Spec
from redline.engines.workers.single_envs import SingleEnvs
from redline.engines.workers.status import WorkerStatus
from redline.engines.workers.step_buffers import StepBuffers


class Odd(gym.Env[np.ndarray, int]):
    """Forbids everything, or raises what Ctrl-C raises, in its second step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, how: str) -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.clock = 0
        return np.zeros(2, np.float32), {"action_mask": np.ones(2, bool)}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.clock += 1
        if self.clock == 2 and self.how == "interrupt":
            raise KeyboardInterrupt
        allowed = not (self.clock == 2 and self.how == "forbid")
        return np.zeros(2, np.float32), 0.0, False, False, {"action_mask": np.full(2, allowed)}


def failures_of(how: str, in_worker: bool) -> list[Failure]:
    spec = Spec("external:tests.engines.test_single_envs:Odd", {"how": how})
    envs = SingleEnvs(spec, [7], WorkerStatus() if in_worker else None)
    spaces = envs.make(0)
    envs.use(StepBuffers.local(spaces, 1), spaces)
    envs.reset([0], [0])
    return envs.step([0]).failures + envs.step([0]).failures


def test_a_mask_that_allows_nothing_is_a_failure_of_its_env():
    (failure,) = failures_of("forbid", in_worker=False)
    assert failure.env == 7
    assert "allows no action" in failure.what


def test_an_env_in_a_worker_cannot_press_ctrl_c():
    (failure,) = failures_of("interrupt", in_worker=True)
    assert "KeyboardInterrupt" in failure.what


def test_ctrl_c_in_this_process_is_not_an_env_that_failed():
    with pytest.raises(KeyboardInterrupt):
        failures_of("interrupt", in_worker=False)


def test_a_traceback_is_shown_once():
    said: list[str] = []
    supervisor = Supervisor(Faults(), 2, 0, warn=said.append, sleep=lambda seconds: None)
    for env in (0, 1, 0):
        supervisor.decide(Failure(env, "step", "ValueError: x", 0, 0, 0, "Traceback …"), [env], 1)
    assert ["Traceback" in line for line in said] == [True, False, False]
