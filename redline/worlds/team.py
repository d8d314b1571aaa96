"""`TeamEnv`: the face of compiled worlds in which several agents act together, for one reward."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from redline.errors import RedlineError
from redline.worlds.batch import BatchEnv, Infos, started_streams
from redline.worlds.encoding import Encoding


class AgentSpaces(NamedTuple):
    """The spaces of one agent, without the padding that makes those of a team equal."""

    observation: gym.spaces.Box
    action: gym.spaces.Discrete


class TeamEnv(BatchEnv):
    """Many episodes of a team, stepped together by one call.

    Observations, actions and masks have an axis more, `[N, agents, …]`. Observations and masks are padded to those of the
    largest agent; `spaces(agent)` tells each agent's own. Actions may last several steps: `infos["acting"]`, bool
    [N, agents], tells whose next action will begin at once, while that of others is not heard. There is one reward for all.
    """

    def __init__(
        self,
        num_envs: int,
        agents: tuple[str, ...],
        spaces: tuple[AgentSpaces, ...],
        stored: Encoding,
        *,
        encoded: bool = False,
        autoreset: bool = True,
    ) -> None:
        self.agents, self._spaces = agents, spaces
        self._counts = np.array([int(each.action.n) for each in spaces])
        num_actions = int(self._counts.max())
        super().__init__(num_envs, num_actions, stored, encoded=encoded, masked=True, autoreset=autoreset)
        self.single_action_space = gym.spaces.MultiDiscrete(self._counts)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.mask = np.zeros((num_envs, len(agents), num_actions), np.bool_)
        self.acting = np.zeros((num_envs, len(agents)), np.bool_)

    def spaces(self, agent: str) -> AgentSpaces:
        """The spaces of an agent. Its numbers and actions are the first of the padded ones."""
        if agent not in self.agents:
            raise RedlineError(f"There is no agent {agent}. Known are {', '.join(self.agents)}.")
        return self._spaces[self.agents.index(agent)]

    @property
    def idle(self) -> np.ndarray:
        """The action of each agent that does nothing and costs nothing, int64 [agents]: for those who are not acting."""
        raise NotImplementedError

    @property
    def shares(self) -> np.ndarray | None:
        """What each agent has to do with the latest reward, float32 [N, agents], where the world can tell: to learn from."""
        return None

    def agent_encoding(self, agent: str) -> Encoding:
        """How the stored observations of one agent are seen."""
        raise NotImplementedError

    def checked(self, actions: np.ndarray) -> np.ndarray:
        """Actions int64 [N, agents], refused if they do not fit."""
        actions, shape = np.asarray(actions), (self.num_envs, len(self.agents))
        if actions.shape != shape or actions.dtype.kind not in "iu":
            raise RedlineError(
                f"Actions of shape {actions.shape} and type {actions.dtype} do not fit {shape[0]} envs of {shape[1]} "
                "agents: pass one whole number for each agent of each env."
            )
        wrong = (actions < 0) | (actions >= self._counts)
        if wrong.any():
            i, b = np.argwhere(wrong)[0]
            raise RedlineError(
                f"Actions of {self.agents[b]} must be 0 to {self._counts[b] - 1}; got {actions[i, b]} in env {i}."
            )
        return actions.astype(np.int64, copy=False)

    def shown(self, stored: np.ndarray) -> np.ndarray:
        """A copy of stored observations in the form that is handed out."""
        if self.encoding is self.stored:
            return stored.copy()
        return self.stored.decode(stored).reshape(len(stored), len(self.agents), -1)

    def _masks(self) -> Infos:
        return {"action_mask": self.mask.copy(), "acting": self.acting.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from a snapshot of an env with the same options and size."""
        obs = super().restore(snapshot)
        self.acting[:] = snapshot["acting"]
        return obs

    def single_info(self, infos: Infos) -> Infos:
        """Masks, and who acts next."""
        return {key: infos[key][0] for key in ("action_mask", "acting")}


def seeds_of(seed: int | list[int | None], num_envs: int) -> list[int | None]:
    """The seed of each env; None for one that goes on with its own stream. Refuses what `BatchEnv.reset` refuses."""
    started_streams(seed, np.zeros(num_envs, np.uint64))
    return [int(seed) + i for i in range(num_envs)] if isinstance(seed, int | np.integer) else list(seed)


def pick_allowed(masks: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An allowed action for each agent of each env, each as likely: int64 [N, agents]."""
    weights = random.random(masks.shape)
    chosen: Any = np.where(masks, weights, -1.0).argmax(axis=-1)
    return np.asarray(chosen, np.int64)
