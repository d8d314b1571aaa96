"""Policies of a team: agents whose spaces are equal share one, and act side by side in many envs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.heads import head_for
from redline.learn.policy import Policy
from redline.rollout import Decision
from redline.worlds.team import TeamEnv


class AgentGroup(NamedTuple):
    """Agents that share a policy."""

    name: str
    members: tuple[int, ...]
    """Their places among the agents of the team."""
    num_actions: int

    def columns(self, array: np.ndarray) -> np.ndarray:
        """An array [N, agents, …] of the whole team as [N x members, …] of this group."""
        own = array[:, self.members]
        return own.reshape(-1, *own.shape[2:])


def groups_of(env: TeamEnv) -> list[AgentGroup]:
    """The groups of a team: agents with equal spaces, in order."""
    found: dict[tuple[int, int], list[int]] = {}
    for b, agent in enumerate(env.agents):
        spaces = env.spaces(agent)
        found.setdefault((spaces.observation.shape[0], int(spaces.action.n)), []).append(b)
    names = {key: "+".join(env.agents[b] for b in members) for key, members in found.items()}
    return [AgentGroup(names[key], tuple(members), key[1]) for key, members in found.items()]


class TeamPolicy(Policy):
    """The policies of a team, one for each group."""

    def __init__(self, groups: Sequence[AgentGroup], policies: Sequence[Policy]) -> None:
        self.groups, self.policies = tuple(groups), tuple(policies)

    def __getattr__(self, name: str) -> Any:
        """What a single policy has and a team has not: whoever asks for it does something that needs one agent."""
        if name not in ("encoding", "head", "network", "normaliser"):
            raise AttributeError(name)
        agents = sum(len(group.members) for group in self.groups)
        raise RedlineError(
            f"A team of {agents} agents has {len(self.policies)} policies: only those of one agent go here."
        )

    @property
    def gradient_plan(self) -> str:
        """How the gradient is found on a CPU, in words."""
        return f"{len(self.policies)} policies, {self.policies[0].gradient_plan}"

    @property
    def vector(self) -> np.ndarray:
        """All weights as one vector: a copy."""
        return np.concatenate([policy.vector for policy in self.policies])

    @property
    def on_cpu(self) -> bool:
        """Whether the weights are in this machine's own memory."""
        return self.policies[0].on_cpu

    def to(self, device: str) -> TeamPolicy:
        """The same policies, moved to a device."""
        for policy in self.policies:
            policy.to(device)
        return self

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by the names that checkpoints know them by."""
        parts = enumerate(self.policies)
        return {f"{k}.{name}": array for k, policy in parts for name, array in policy.arrays().items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights that `arrays` gave."""
        for k, policy in enumerate(self.policies):
            prefix = f"{k}."
            policy.load({name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)})


def make_team_policy(env: TeamEnv, config: TrainConfig, seed: int) -> TeamPolicy:
    """Fresh policies that fit a team."""
    if config.recurrent or config.network or config.make_network or config.normalise_observations:
        raise RedlineError(f"{config.env} is learned by plain networks: leave out --recurrent, --network and the like.")
    groups = groups_of(env)
    seeds = np.random.SeedSequence(seed).generate_state(len(groups))
    policies = [
        Policy(
            env.agent_encoding(env.agents[group.members[0]]),
            head_for(env.spaces(env.agents[group.members[0]]).action),
            config.hidden,
            config.shared,
            config.activation,
            seed=int(own),
        )
        for group, own in zip(groups, seeds, strict=True)
    ]
    return TeamPolicy(groups, policies)


class TeamActor:
    """Acts for all agents of many envs: each group by its own policy, each agent from a random stream of its own."""

    def __init__(
        self, policy: TeamPolicy, num_envs: int, seed: int, dedup: bool = True, deterministic: bool = False
    ) -> None:
        self.policy = policy
        seeds = np.random.SeedSequence(seed).generate_state(len(policy.groups), np.uint64)
        self.actors = [
            Actor(each, num_envs * len(group.members), int(own), dedup, deterministic)
            for group, each, own in zip(policy.groups, policy.policies, seeds, strict=True)
        ]

    def begin(self, num_steps: int, version: int = 0) -> None:
        """A collect of so many steps starts."""
        for actor in self.actors:
            actor.version = version
            actor.begin(num_steps)

    def act(
        self, obs: np.ndarray, masks: np.ndarray, acting: np.ndarray, idle: np.ndarray
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, Decision | None]]]:
        """Actions int64 [N, agents], and of each group the columns that decided, with their decision."""
        actions = np.tile(idle, (len(obs), 1))
        decided: list[tuple[np.ndarray, Decision | None]] = []
        for group, actor in zip(self.policy.groups, self.actors, strict=True):
            columns = np.flatnonzero(group.columns(acting))
            if not len(columns):
                decided.append((columns, None))
                continue
            seen, allowed = group.columns(obs)[columns], group.columns(masks)[columns, : group.num_actions]
            decision = actor.act(seen, np.ascontiguousarray(allowed), columns)
            envs, places = np.divmod(columns, len(group.members))
            actions[envs, np.array(group.members)[places]] = decision.for_envs
            decided.append((columns, decision))
        return actions, decided

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        parts = enumerate(self.actors)
        return {f"{k}.{name}": array for k, actor in parts for name, array in actor.snapshot().items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for k, actor in enumerate(self.actors):
            prefix = f"{k}."
            actor.restore({name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)})
