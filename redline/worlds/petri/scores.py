"""Scoring on timed nets: makespans of a policy beside those of rules and of an exact solver."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.compiled.rng import actor_seed
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.policy import Policy
from redline.worlds.petri.dispatching import play_actions, rule_actions, rules_for
from redline.worlds.petri.env import PetriVectorEnv
from redline.worlds.petri.instances import Instance, parse_petri
from redline.worlds.petri.replay import Played
from redline.worlds.petri.rules.tables import tabulate
from redline.worlds.petri.schedule import Schedule


@dataclass(frozen=True)
class NetResult:
    """A schedule of a net, and the policy, rule or solver that made it."""

    player: str
    schedule: Schedule
    played: Played
    decisions: int | None = None
    bound: int | None = None
    """Proven by this player: no schedule is shorter."""

    @property
    def makespan(self) -> int | None:
        """When the goal was reached, if it was."""
        return self.schedule.makespan if self.schedule.outcome == "done" else None

    def gap(self, reference: int | None) -> float | None:
        """How far the makespan lies above a reference, as a share of it."""
        return None if self.makespan is None or not reference else self.makespan / reference - 1

    def _busy(self, kind: str) -> dict[str, float]:
        """For what share of the time each place of a kind worked."""
        clock, names = max(1, self.schedule.makespan), [p.name for p in self.schedule.net.places if p.kind == kind]
        return {name: self.played.place_seconds[name] / clock for name in names}

    def to_json(self, instance: Instance) -> dict[str, Any]:
        """The result as plain data."""
        clock, played = max(1, self.schedule.makespan), self.played
        return {
            "policy": self.player,
            "makespan": self.makespan,
            "outcome": self.schedule.outcome,
            "finished": played.finished,
            "decisions": self.decisions,
            "gap_bound": self.gap(instance.lower_bound),
            "gap_optimum": self.gap(instance.optimum),
            "proven_bound": self.bound,
            "margin_min": None if played.margins is None else played.margins[0],
            "margin_mean": None if played.margins is None else played.margins[1],
            "robot": {name: seconds / clock for name, seconds in played.resource_seconds.items()},
            **{what: self._busy(kind) for what, kind in (("chamber", "process"), ("machine", "machine"))},
        }


@dataclass(frozen=True)
class Samples:
    """How a number of sampled episodes ended."""

    makespans: np.ndarray
    """float64 [n], NaN where the goal was not reached."""

    def to_json(self) -> dict[str, Any]:
        """The samples in a few numbers."""
        done = self.makespans[np.isfinite(self.makespans)]
        return {
            "count": len(self.makespans),
            "completed": len(done) / len(self.makespans),
            "best": int(done.min()) if len(done) else None,
            "mean": float(done.mean()) if len(done) else None,
            "worst": int(done.max()) if len(done) else None,
        }


def result_of(player: str, instance: Instance, actions: Sequence[int]) -> NetResult:
    """The result of playing actions."""
    played = play_actions(instance.net, actions)
    schedule = Schedule(instance.name, instance.net, played.makespan, played.outcome, played.firings)
    return NetResult(player, schedule, played, len(actions))


def play_rules(instance: Instance) -> list[NetResult]:
    """The results of all rules. A rule whose plan the net's options forbid is left out."""
    results = []
    for rule in rules_for(instance):
        try:
            results.append(result_of(rule, instance, rule_actions(instance, rule)))
        except RedlineError:
            continue
    return results


def play_policy(policy: Policy, instance: Instance, samples: int, seed: int) -> tuple[list[NetResult], Samples]:
    """A policy by its likeliest actions, and the best of a number of samples of it."""
    likeliest, _ = play_episodes(policy, instance, 1, seed, deterministic=True)
    drawn, makespans = play_episodes(policy, instance, samples, seed)
    best = int(np.nanargmin(makespans)) if np.isfinite(makespans).any() else 0
    results = [
        result_of("policy, likeliest actions", instance, likeliest[0]),
        result_of(f"policy, best of {samples} samples", instance, drawn[best]),
    ]
    return results, Samples(makespans)


def play_episodes(
    policy: Policy, instance: Instance, count: int, seed: int, deterministic: bool = False
) -> tuple[list[list[int]], np.ndarray]:
    """The actions of `count` episodes side by side, and their makespans, NaN where the goal was not reached."""
    env = PetriVectorEnv(count, instance.net)
    actor = Actor(policy, count, actor_seed(seed), deterministic=deterministic)
    obs, infos = env.reset(seed=seed)
    running, makespans = np.ones(count, np.bool_), np.full(count, np.nan)
    actions: list[list[int]] = [[] for _ in range(count)]
    while running.any():
        actor.begin(1)
        chosen = actor.act(obs, infos["action_mask"]).actions
        for i in np.flatnonzero(running):
            actions[i].append(int(chosen[i]))
        obs, _, terminated, truncated, infos = env.step(chosen)
        ended = (terminated | truncated) & running
        if ended.any():
            metrics = infos["episode_metrics"]
            done = ended & (metrics["completed"] > 0)
            makespans[done] = metrics["end_time"][done]
            running &= ~ended
    return actions, makespans


def solve_result(instance: Instance, seconds: float, workers: int, seed: int) -> NetResult:
    """The best schedule that CP-SAT finds within a time limit."""
    from redline.worlds.petri.replay import play_script, read_firings
    from redline.worlds.petri.solve import solve  # needs the ortools extra

    solution = solve(instance, seconds=seconds, workers=workers, seed=seed)
    schedule = solution.schedule
    script = read_firings(schedule.to_json()).script
    player = f"CP-SAT, {solution.seconds:.0f} s" + (", proven optimal" if solution.proven else "")
    return NetResult(player, schedule, play_script(instance.net, script), None, solution.bound)


def best_of(results: Sequence[NetResult]) -> NetResult:
    """The shortest completed schedule, or the one that came furthest."""
    return min(results, key=lambda each: (each.makespan is None, each.makespan or -each.played.finished))


def require_fit(policy: Policy, instance: Instance) -> None:
    """Refuse a net with other observations or actions than the policy was trained on."""
    sizes = tabulate(instance.net)[1]
    size, actions = sizes.observation, sizes.actions
    trained_on = policy.encoding.size, policy.head.num_outputs
    if (size, actions) != trained_on:
        raise RedlineError(
            f"{instance.name} has {size} observed numbers and {actions} actions; the policy was trained on "
            f"{trained_on[0]} and {trained_on[1]}. Try a net of the same device, arms and waits."
        )


def summarise(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """How long the schedules are that an update completed: on average and at best."""
    if "end_time" not in metrics:
        return {}
    done = metrics["end_time"][metrics["completed"] > 0]
    if not len(done):
        return dict.fromkeys(("makespan", "makespan_min"), float("nan"))
    return {"makespan": float(done.mean()), "makespan_min": float(done.min())}


def unbeatable(config: TrainConfig, metrics: dict[str, np.ndarray]) -> str | None:
    """A sentence if a schedule that was completed, with nothing scrapped or late, is as short as any can be."""
    if "end_time" not in metrics:
        return None
    kept = (metrics["completed"] > 0) & (metrics["margin_min"] >= 0)
    kept &= metrics.get("scrapped", np.zeros(len(kept))) == 0
    if not kept.any():
        return None
    best = int(metrics["end_time"][kept].min())
    bound, optimum = _known_limits(config.env, tuple(sorted(config.env_options.items())))
    if best == optimum:
        return f"A schedule of {best} was played, which is the known optimum: there is nothing left to learn."
    if bound is not None and best <= bound:
        return f"A schedule of {best} was played, which is the lower bound: there is nothing left to learn."
    return None


@functools.lru_cache(maxsize=8)
def _known_limits(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[int | None, int | None]:
    """The lower bound of a net's makespan, and its optimum, where they are known."""
    instance = parse_petri(name, **dict(options))
    return instance.lower_bound, instance.optimum


def progress(metrics: dict[str, float]) -> str:
    """When the episodes of an update ended, which says more than what they paid."""
    times = f"  makespan {metrics['makespan']:7.0f}, best {metrics['makespan_min']:.0f}"
    return f"done {metrics['completed']:4.0%}" + (times if metrics["completed"] else "")
