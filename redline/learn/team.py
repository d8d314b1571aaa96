"""PPO for a team: every agent decides for itself and learns from the team's reward.

An action may last several steps, in which its agent decides nothing. So a step of a rollout here is a decision: its
reward is all that the team got until the agent's next one. Steps on which an action is still running are no decisions and
are not learned from. They are discounted all the same: were a long action one step as a short one is, whoever loses points
as time goes by would choose what is short, only to have more of the future discounted.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

from redline.engines.faults import Faults, Supervisor
from redline.learn.config import TrainConfig, settled
from redline.learn.finite import require_finite
from redline.learn.ppo import PPO
from redline.learn.restoring import Experience, refusing, require_like, require_numbers, require_steps
from redline.learn.team_policy import AgentGroup, TeamActor, TeamPolicy, make_team_policy
from redline.learn.train import (
    SLOW_COLLECT,
    Saved,
    Trainer,
    Update,
    below,
    load_weights,
    pick_device,
    spread_seed,
)
from redline.rollout import Decision, Rollout
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch
from redline.worlds.registry import make_env, world_of
from redline.worlds.team import TeamEnv


class Decisions:
    """The decisions of a group's agents in one collect: a column for each agent of each env."""

    def __init__(self, group: AgentGroup, num_steps: int, num_envs: int, version: int, gamma: float) -> None:
        self.group, self.size, self._gamma = group, len(group.members), np.float32(gamma)
        self.rollout = Rollout.empty(num_steps, num_envs * self.size, version)
        self.count = np.zeros(num_envs * self.size, np.int64)
        self.open = np.zeros(num_envs * self.size, np.bool_)
        self.made = np.zeros(self.size, np.int64)
        self._worth = np.ones(num_envs * self.size, np.float32)  # of a point now, when the open decision was made

    def decide(self, columns: np.ndarray, decision: Decision) -> None:
        """Agents decide; what they decided before has led here."""
        rollout, before = self.rollout, columns[self.open[columns]]
        follows = self.open[columns]
        # the learner discounts by one step, so what more the action lasted is discounted here
        later = self._worth[before] / self._gamma
        rollout.next_values[self.count[before] - 1, before] = decision.values[follows] * later
        at = self.count[columns]
        rollout.rows[at, columns] = decision.rows
        rollout.actions[at, columns] = decision.actions
        rollout.log_probs[at, columns] = decision.log_probs
        rollout.values[at, columns] = decision.values
        rollout.rewards[at, columns] = 0.0
        self.count[columns] += 1
        self.open[columns], self._worth[columns] = True, 1.0
        self.made += np.bincount(columns % self.size, minlength=self.size)

    def pay(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Every agent is paid for a step, rewards [N x members], and some episodes end with it."""
        opened = np.flatnonzero(self.open)
        paid = rewards[opened] * self._worth[opened]
        self.rollout.rewards[self.count[opened] - 1, opened] += paid
        self._worth[opened] *= self._gamma
        over = np.flatnonzero(self.open & np.repeat(ended, self.size))
        self.rollout.terminated[self.count[over] - 1, over] = True
        self.rollout.next_values[self.count[over] - 1, over] = 0.0
        self.open[over] = False

    def finish(self, observations: np.ndarray, masks: np.ndarray | None) -> Rollout:
        """The decisions whose outcome is known; of those still under way only the value counts."""
        rollout, count = self.rollout, self.count - self.open
        held = np.arange(len(rollout.rows))[:, None] < count
        for array in (rollout.log_probs, rollout.values, rollout.next_values, rollout.rewards):
            array[~held] = 0.0
        rollout.rows[~held], rollout.actions[~held], rollout.terminated[~held] = 0, 0, True
        last = max(1, int(count.max()))
        for name in ("rows", "actions", "log_probs", "values", "next_values", "rewards", "terminated", "truncated"):
            setattr(rollout, name, getattr(rollout, name)[:last])
        rollout.held, rollout.observations, rollout.masks = held[:last], observations, masks
        return rollout


class TeamEngine:
    """The envs of a team, and what has ended in them."""

    plan = ""

    def __init__(self, config: TrainConfig, seed: int) -> None:
        env = make_env(config.env, config.num_envs, encoded=True, turbo=config.turbo, **config.env_options)
        assert isinstance(env, TeamEnv)  # its world has agents
        self.env, self.faults = env, Supervisor(Faults(), config.num_envs, seed)
        self.obs, self.infos = env.reset(seed=seed)

    def collect(self, actor: TeamActor, num_steps: int, version: int, gamma: float, watch: Stopwatch) -> TeamRollout:
        """Play so many steps in every env; `gamma` discounts what comes while an action lasts."""
        env, told = self.env, TeamRollout(actor.policy, num_steps, self.env.num_envs, version, gamma)
        actor.begin(num_steps, version)
        for _ in range(num_steps):
            with watch.span("policy"):
                masks, acting = self.infos["action_mask"], self.infos["acting"]
                actions, decided = actor.act(self.obs, masks, acting, env.idle)
            with watch.span("env"):
                obs, rewards, terminated, truncated, infos = env.step(actions)
            with watch.span("record"):
                told.write(decided, rewards, env.shares, terminated | truncated, infos)
            self.obs, self.infos = obs, infos
        for group, own in zip(told.groups, actor.actors, strict=True):
            group.finish(*own.observations())
        return told

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here."""
        return self.env.snapshot()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        self.obs = self.env.restore(arrays)
        self.infos = {"action_mask": self.env.action_masks(), "acting": self.env.acting.copy()}

    def close(self) -> None:
        """Let go of the envs."""
        self.env.close()


class TeamRollout:
    """What all groups of a team decided in one collect, and the episodes that ended."""

    def __init__(self, policy: TeamPolicy, num_steps: int, num_envs: int, version: int, gamma: float) -> None:
        self.groups = [Decisions(group, num_steps, num_envs, version, gamma) for group in policy.groups]
        self.num_steps = num_steps * num_envs
        self.returns: list[np.ndarray] = []
        self.lengths: list[np.ndarray] = []
        self.more: dict[str, list[np.ndarray]] = {}

    def write(
        self,
        decided: list[tuple[np.ndarray, Decision | None]],
        rewards: np.ndarray,
        shares: np.ndarray | None,
        ended: np.ndarray,
        infos: Any,
    ) -> None:
        """One step of all envs. Agents are paid their shares of it, or all of it where nobody can tell them apart."""
        if shares is None:
            shares = np.repeat(rewards[:, None], sum(group.size for group in self.groups), axis=1)
        for group, (columns, decision) in zip(self.groups, decided, strict=True):
            if decision is not None:
                group.decide(columns, decision)
            group.pay(group.group.columns(shares).astype(np.float32), ended)
        if ended.any():
            self.returns.append(infos["episode"]["r"][ended])
            self.lengths.append(infos["episode"]["l"][ended])
            for name, values in infos.get("episode_metrics", {}).items():
                self.more.setdefault(name, []).append(values[ended])

    @property
    def num_episodes(self) -> int:
        """Episodes that ended."""
        return sum(map(len, self.returns))

    def metrics(self) -> dict[str, float]:
        """How the episodes went, and how often each agent decided, by step."""
        returns = np.concatenate(self.returns) if self.returns else np.full(1, np.nan)
        lengths = np.concatenate(self.lengths) if self.lengths else np.full(1, np.nan)
        found = {"return": returns.mean(), "return_std": returns.std(), "return_min": returns.min()}
        found |= {"return_max": returns.max(), "length": lengths.mean()}
        found |= {name: np.concatenate(values).mean() for name, values in self.more.items()}
        return {name: float(value) for name, value in found.items()}


class TeamTrainer(Trainer):
    """Trains the policies of a team. It collects in this process: engines step envs of one agent."""

    policy: TeamPolicy

    def __init__(self, config: TrainConfig, watch: Stopwatch | None = None) -> None:
        config = settled(config)
        self.config, self.world = config, world_of(config.env)
        self.watch = watch or Stopwatch()
        self.device = pick_device(config.device)
        self.threads, self.thread_plan = use_threads(config.threads)
        env_seed, policy_seed, action_seed, order_seed = spread_seed(config.seed, 4)
        self.team = TeamEngine(config, env_seed)
        self.engine = self.team  # type: ignore[assignment]
        self.policy = make_team_policy(self.team.env, config, policy_seed).to(self.device)
        self.team_actor = TeamActor(self.policy, config.num_envs, action_seed, config.dedup)
        for actor in self.team_actor.actors:
            actor.watch = self.watch
        self.learners = [
            PPO(policy, config.ppo, order_seed + k, config.dedup, self.threads, None, config.schedule)
            for k, policy in enumerate(self.policy.policies)
        ]
        self.step = self.episodes = self.number = 0
        self.collecting = self.updating = self.unbeatable = False
        self._before: Saved | None = None
        self._collect_seconds = SLOW_COLLECT

    def update(self) -> Update:
        """Collect once, and let every group learn from its own decisions."""
        watch, config = self.watch, self.config
        self._before = self.snapshot() if self._collect_seconds >= SLOW_COLLECT else None
        began = time.monotonic()
        self.collecting = self.updating = True
        with watch.span("collect"):
            told = self.team.collect(self.team_actor, config.num_steps, self.number, config.ppo.gamma, watch)
        self.collecting, self._before = False, None
        self._collect_seconds = time.monotonic() - began
        with watch.span("learn"):
            learned = [self._learn(ppo, each) for ppo, each in zip(self.learners, told.groups, strict=True)]
        self.number += 1
        self.step += told.num_steps
        self.episodes += told.num_episodes
        require_finite("A weight", [float(np.abs(self.policy.vector).max())], told.groups[0].rollout, config.ppo)
        metrics = {**told.metrics(), **_joined(learned), **self._agents_metrics(told, learned)}
        self.updating = False
        return Update(self.number, self.step, self.episodes, told.num_steps, self.progress, metrics, watch.lap())

    def _learn(self, ppo: PPO, decisions: Decisions) -> dict[str, float]:
        if not decisions.rollout.num_steps:
            return {}
        return ppo.update(decisions.rollout, self.watch, self.progress)

    def _agents_metrics(self, told: TeamRollout, learned: list[dict[str, float]]) -> dict[str, float]:
        """How often each agent decided, by step, and what its policy's learning came to."""
        found = {}
        for group, metrics in zip(told.groups, learned, strict=True):
            for k, b in enumerate(group.group.members):
                agent = self.team.env.agents[b]
                found[f"{agent}.decisions"] = float(group.made[k]) / told.num_steps
                found |= {
                    f"{agent}.{name}": metrics.get(name, float("nan")) for name in ("entropy", "kl", "value_loss")
                }
        return found

    def snapshot(self) -> Saved:
        """Arrays and plain values from which `restore` continues bit for bit."""
        if self._before is not None:
            return self._before
        arrays = {f"policy.{name}": array for name, array in self.policy.arrays().items()}
        arrays |= {f"actor.{name}": array for name, array in self.team_actor.snapshot().items()}
        for k, ppo in enumerate(self.learners):
            arrays |= {f"ppo.{k}.{name}": array for name, array in ppo.snapshot_arrays().items()}
        if not self.updating:
            arrays |= {f"engine.{name}": array for name, array in self.team.snapshot().items()}
        orders = [ppo.order_state() for ppo in self.learners]
        return arrays, {"step": self.step, "episodes": self.episodes, "number": self.number, "orders": orders}

    def restore(self, arrays: dict[str, np.ndarray], values: dict[str, Any], where: str = "The snapshot") -> bool:
        """Go on from a snapshot. Returns whether the envs go on too."""
        with refusing(where):
            require_steps(values)
            load_weights(self.policy, below(arrays, "policy"))
            for k, ppo in enumerate(self.learners):
                saved = below(arrays, f"ppo.{k}")
                require_numbers(saved, f"ppo.{k}")
                require_like(saved, ppo.snapshot_arrays(), f"ppo.{k}")
                ppo.restore(saved, values["orders"][k])
            for k, actor in enumerate(self.team_actor.actors):
                policy = self.policy.policies[k]
                space = gym.spaces.Discrete(policy.head.num_outputs)
                experience = Experience(policy.encoding, space, policy.head.num_outputs)
                experience.require_actor(below(arrays, f"actor.{k}"), actor.snapshot())
            self.team_actor.restore(below(arrays, "actor"))
            self.step, self.episodes, self.number = values["step"], values["episodes"], values["number"]
        envs = below(arrays, "engine")
        if envs:
            with refusing(where):
                self.team.restore(envs)
            return True
        self.team = TeamEngine(self.config, spread_seed(self.config.seed, 4, self.step)[0])
        self.engine = self.team  # type: ignore[assignment]
        return False

    def close(self) -> None:
        """Let go of the envs."""
        self.team.close()


def _joined(learned: list[dict[str, float]]) -> dict[str, float]:
    """The mean of what the groups' learning came to."""
    names = dict.fromkeys(name for metrics in learned for name in metrics)
    return {name: float(np.mean([metrics[name] for metrics in learned if name in metrics])) for name in names}
