"""Training plans for CAGE-2: one defender against both Red agents, who is not told which it plays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.improvement import Improvement
from redline.learn.stages import Guard, PlanStage, seeded
from redline.worlds.cage2.protocol import LENGTHS, PLAIN

BOTH = "B_lineAgent,RedMeanderAgent"
BOARD = "leaderboard"
"""The rules to train under where none are named: those of the published board."""
TIDY = 0.003
TRYING = {"accidents": 0.03, "restore_rebate": 0.5}
"""What makes a defender find out what Restore is good for: some happen by themselves, and all are cheaper."""
ADOPTING = Improvement(
    lengths=LENGTHS, states=2000, least_visits=5, horizon=max(LENGTHS), deciding=512, errors=2.5, lessons=1500
)  # fmt: skip
GUARD = Guard(lengths=LENGTHS, env_options=PLAIN)
WIDE = PPOConfig(learning_rate=3e-3, epochs=6, target_kl=0.03, entropy=0.004, anneal_entropy=True)
FINE = replace(WIDE, learning_rate=2e-3, entropy=0.002)


class _Plan:
    """Stages that share an env and differ in how they learn."""

    def __init__(self, asked: TrainConfig) -> None:
        options: dict[str, Any] = {"rules": BOARD, "red_agent": BOTH, "observation": "memory", **asked.env_options}
        self._asked, self._options = asked, {**options, "actions": "useful"}

    def table(self, steps: int) -> PlanStage:
        """A quick beginning, on the table alone: few observations, learned fast."""
        return PlanStage("table", self._config(steps, 512, PPOConfig(), observation="table"))

    def ppo(self, name: str, steps: int, how: PPOConfig, heat: float = 1.0) -> PlanStage:
        """PPO on everything that Blue remembers."""
        return PlanStage(name, self._config(steps, 1024, how, tidy=TIDY), heat=heat, guard=GUARD)

    def trial(self, steps: int, **more: Any) -> PlanStage:
        """PPO that tries things out, and need not be better until use has been made of them."""
        return PlanStage("try", self._config(steps, 1024, WIDE, tidy=TIDY, **TRYING, **more), heat=0.3)

    def improve(self, rounds: int = 1, **more: Any) -> PlanStage:
        """Improvement by rollouts, which knows that a reward counts for every official length that it falls into."""
        how = Improvement(lengths=LENGTHS, rounds=rounds)
        return PlanStage("improve", self._config(None, 1024, FINE, **more), improve=how)

    def experts(self, stages: int) -> Iterator[PlanStage]:
        """For each Red a defender against that one alone: the policy after so many stages adopts what it does better."""
        for red in str(self._options["red_agent"]).split(","):
            expert = list(self._expert(red))
            yield from expert
            yield PlanStage("adopt", self._config(None, 1024, FINE), improve=ADOPTING, back_to=stages)
            stages += len(expert) + 1

    def _expert(self, red: str) -> Iterator[PlanStage]:
        """A defender against one Red. It tries things out and makes use of them, twice.

        What it finds out the second time depends on what it can do by then.
        """
        for _ in range(2):
            yield self.trial(14_000_000, red_agent=red)
            yield self.improve(red_agent=red)
            yield PlanStage("expert", self._config(10_000_000, 1024, FINE, tidy=TIDY, red_agent=red))

    def _config(self, steps: int | None, num_envs: int, how: PPOConfig, **more: Any) -> TrainConfig:
        options = {**self._options, **more}
        return replace(self._asked, env_options=options, total_steps=steps, num_envs=num_envs, num_steps=100, ppo=how)


def short(asked: TrainConfig) -> list[PlanStage]:
    """A minute and a half: better than the published board.

    Without accidents PPO may settle where it restores some host too late, and rollouts do not lead out of that.
    """
    plan = _Plan(asked)
    stages = [
        plan.table(10_000_000),
        plan.ppo("memory", 10_000_000, WIDE, heat=0.6),
        plan.trial(6_000_000),
        plan.improve(),
        plan.ppo("polish", 9_000_000, FINE),
    ]
    return seeded(stages, asked.seed)


def champion(asked: TrainConfig) -> list[PlanStage]:
    """As good as we know how to make it, in ten minutes on two cores."""
    plan = _Plan(asked)
    stages = [
        plan.table(12_000_000),
        plan.ppo("memory", 24_000_000, WIDE, heat=0.6),
        plan.improve(),
        plan.ppo("again", 18_000_000, FINE),
        *plan.experts(stages=4),
        plan.improve(rounds=2),
    ]
    return seeded(stages, asked.seed)
