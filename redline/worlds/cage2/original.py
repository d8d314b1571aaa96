"""The original CAGE-2 simulator, CybORG 2.1, with the face of our own `cage2` env.

Actions, their order, observations and rewards are the same, so that a policy trained on one plays on the other. CybORG
is not ours to install: the first env made imports it, and says what to do when it is not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError, unknown
from redline.worlds.cage2.rules.observe import TABLE_SIZE
from redline.worlds.cage2.rules.scenario import GREEN_AGENTS, NUM_ACTIONS, RED_AGENTS, describe_action

INSTALL = "git clone https://github.com/cage-challenge/cage-challenge-2 && pip install -e cage-challenge-2/CybORG"
"""Neither PyPI nor a plain `pip install` will do: the first has another package, the second leaves the data files out."""


@dataclass(frozen=True)
class Cyborg:
    """Options of a `cyborg:` env."""

    max_steps: int = 100
    """Steps in an episode; 30, 50 and 100 in the official protocol. 0 never ends one."""
    green_agent: str = "SleepAgent"
    """SleepAgent (the challenge's default) or GreenAgent, which scans hosts at random."""
    lean: bool = True
    """Leave out what CybORG works out anew at every step and nobody reads. Episodes stay the same."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played, saying what could."""
        if self.max_steps < 0:
            raise RedlineError(f"An episode of {self.max_steps} steps cannot be played. Try --max-steps 100.")
        if self.green_agent not in GREEN_AGENTS:
            raise unknown("green agent", self.green_agent, GREEN_AGENTS)


def make_cyborg(name: str, **options: Any) -> gym.Env:
    """The original simulator with Red played by the agent that is named, as in `cyborg:B_lineAgent`."""
    red_agent = name.removeprefix("cyborg:")
    if red_agent not in RED_AGENTS:
        raise unknown("red agent", red_agent, RED_AGENTS)
    fields = [field.name for field in dataclasses.fields(Cyborg)]
    for option in options:
        if option not in fields:
            raise unknown("cyborg option", option, fields)
    return CyborgEnv(red_agent, Cyborg(**options))


class CyborgEnv(gym.Env[np.ndarray, np.integer]):
    """One CybORG episode at a time, reproducible from its seed.

    CybORG draws from Python's global generator. Around every call it finds this env's own stream there, and afterwards
    everybody else finds theirs: envs do not disturb one another, nor the program around them. Seeded with `s`, an env
    plays what CybORG plays after `random.seed(s)`. Threads share the global generator, so use processes instead.
    """

    metadata = {"render_modes": []}

    def __init__(self, red_agent: str, options: Cyborg | None = None) -> None:
        self.options = options or Cyborg()
        self.action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = gym.spaces.Box(0, 1, (TABLE_SIZE,), np.int8)
        self._stream = random.Random().getstate()
        self._clock: int | None = None  # steps since reset; None before the first
        parts = _import_cyborg()
        agents = {"Red": getattr(parts.agents, red_agent), "Green": getattr(parts.agents, self.options.green_agent)}
        with self._own_randomness():
            self.cyborg = parts.CybORG(str(parts.scenario), "sim", agents=agents)
            self._challenge = parts.ChallengeWrapper(env=self.cyborg, agent_name="Blue")
        enum_wrapper = self._challenge.env.env
        _require_our_actions(enum_wrapper.possible_actions)
        if self.options.lean:
            _skip_true_state(self.cyborg.environment_controller)
            enum_wrapper.action_space_change = lambda action_space: NUM_ACTIONS  # it would list all 145 again

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a new episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._stream = random.Random(seed).getstate()
        with self._own_randomness():
            obs = self._challenge.reset()
        self._clock = 0
        return obs.astype(np.int8), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one step. What CybORG tells besides is left out: it is large, and `cyborg` has it for who asks."""
        if self._clock is None:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        if not 0 <= action < NUM_ACTIONS:
            raise RedlineError(f"Actions must be 0 to {NUM_ACTIONS - 1}; got {action}.")
        with self._own_randomness():
            obs, reward, done, _ = self._challenge.step(int(action))
        self._clock += 1
        return obs.astype(np.int8), float(reward), bool(done), self._clock == self.options.max_steps, {}

    @contextlib.contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Lend the global generator to this env. NumPy's is left alone: CybORG 2.1 never draws from it."""
        outside = random.getstate()
        random.setstate(self._stream)
        try:
            yield
        finally:
            self._stream = random.getstate()
            random.setstate(outside)


def _import_cyborg() -> SimpleNamespace:
    """The classes of CybORG that an env is made of, and where its scenario is."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the old gym it imports greets every process with a lecture
            package = importlib.import_module("CybORG")
            agents = importlib.import_module("CybORG.Agents")
            wrappers = importlib.import_module("CybORG.Agents.Wrappers")
        simulator = package.CybORG
        scenario = Path(inspect.getfile(simulator)).parent / "Shared" / "Scenarios" / "Scenario2.yaml"
        challenge_wrapper = wrappers.ChallengeWrapper
    except ModuleNotFoundError as error:
        raise RedlineError(f"The env 'cyborg' needs {error.name}, which is not installed. Try: {INSTALL}") from error
    except (ImportError, OSError, AttributeError) as error:
        raise RedlineError(f"The CybORG installed here is not a whole CAGE-2 one ({error}). Try: {INSTALL}") from error
    if not scenario.exists():
        raise RedlineError(f"The CybORG installed here has no CAGE-2 scenario {scenario.name}. Try: {INSTALL}")
    return SimpleNamespace(CybORG=simulator, agents=agents, ChallengeWrapper=challenge_wrapper, scenario=scenario)


def _require_our_actions(possible_actions: list[Any]) -> None:
    """A policy knows actions by their number only, so the numbers must mean what they mean in `cage2`."""
    theirs = [str(action) for action in possible_actions]
    ours = [describe_action(action) for action in range(NUM_ACTIONS)]
    if theirs != ours:
        raise RedlineError(
            f"The CybORG installed here offers Blue {len(theirs)} actions that are not CAGE-2's {len(ours)} in their "
            f"order. Try: {INSTALL}"
        )


class _Stakes:
    """The part of CybORG's true state that rewards are made of, in the same form."""

    def __init__(self, state: Any) -> None:
        self.data = {
            name: {
                "System info": {"Hostname": name, "OSType": host.os_type},
                "Processes": [{"Process Name": process.name} for process in host.processes],
                "Sessions": [
                    {"Agent": agent, "Username": state.sessions[agent][session].username}
                    for agent, sessions in host.sessions.items()
                    for session in sessions
                ],
            }
            for name, host in state.hosts.items()
        }

    def filter_addresses(self, **_: Any) -> None:
        """Nothing to do: there are no addresses here."""


def _skip_true_state(controller: Any) -> None:
    """Have `controller.step` look only at what rewards are made of. Who asks at another time gets the whole true state."""
    step, whole = controller.step, controller.get_true_state

    def lean_step(*args: Any, **kwargs: Any) -> Any:
        controller.get_true_state = lambda info: _Stakes(controller.state)
        try:
            return step(*args, **kwargs)
        finally:
            controller.get_true_state = whole

    controller.step = lean_step
