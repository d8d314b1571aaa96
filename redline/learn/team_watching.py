"""An episode of a team, looked at closely: the same that `watching` tells of one agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from redline.learn.team_policy import TeamActor, TeamPolicy
from redline.learn.watching import Move, WatchedEpisode, WatchedStep
from redline.worlds.batch import Infos
from redline.worlds.team import TeamEnv


class TeamPlayer(Protocol):
    """Whoever plays for a team."""

    def __call__(self, observations: np.ndarray, infos: Infos) -> Move:
        """The choices for observations [1, agents, …]; its action is int64 [agents]."""


class TeamPolicyPlayer:
    """Trained policies of a team as a player. Seeded alike, they make the choices that they make in `redline eval`."""

    def __init__(
        self, policy: TeamPolicy, seed: int, steps: int, idle: np.ndarray, deterministic: bool = False
    ) -> None:
        self._actor, self._idle = TeamActor(policy, 1, seed, False, deterministic), idle
        self._actor.begin(steps)

    def __call__(self, observations: np.ndarray, infos: Infos) -> Move:
        """Draw actions; `likeliest` has who decided, counted from 0, with the chance of what it chose."""
        actions, decided = self._actor.act(observations, infos["action_mask"], infos["acting"], self._idle)
        chances: list[tuple[int, float]] = []
        for group, (columns, decision) in zip(self._actor.policy.groups, decided, strict=True):
            if decision is not None:
                members = np.array(group.members)[columns]
                chances += zip(members.tolist(), np.exp(decision.log_probs).tolist(), strict=True)
        return Move(actions[0], tuple(sorted(chances)))


def watch_team(
    env: TeamEnv,
    name: str,
    player: TeamPlayer,
    seed: int,
    *,
    who: str = "",
    note: Callable[[Any], Any] = lambda env: None,
    options: dict[str, Any] | None = None,
) -> WatchedEpisode:
    """Play one episode of an env of one. `note` says what to remember of it at its beginning and after every step."""
    env.autoreset = False
    obs, infos = env.reset(seed=seed)
    start, steps, over = note(env), [], False
    while not over:
        choice, before = player(obs, infos), obs
        obs, rewards, terminated, truncated, infos = env.step(choice.action[None])
        steps.append(WatchedStep(before.reshape(-1), choice, float(rewards[0]), note(env)))
        over = bool(terminated[0] or truncated[0])
    return WatchedEpisode(
        name, seed, who, env.action_names, (), start, tuple(steps), bool(terminated[0]), options or {}
    )
