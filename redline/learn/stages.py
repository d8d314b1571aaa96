"""A training plan in stages: each goes on from what the one before it has learned, and none can lose it.

    NAME-20250131-142500/
      config.json       the settings of the last stage, and all stages
      stages.json       what each stage came to
      stages/1-table/   a run folder for each
      checkpoints/      the policy after the latest stage

A stage that was broken off goes on where it was, bit for bit: PPO from its latest checkpoint, improvement by rollouts
from its beginning.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redline.learn import checkpoint
from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.learn.evaluate import Trained, load_policy
from redline.learn.grow import grow
from redline.learn.improvement import Improvement, total_gain
from redline.learn.improving import adopt_in, improve_in
from redline.learn.judge import Arena, Judge, Judgement
from redline.learn.policy import Policy
from redline.learn.session import Session
from redline.learn.stored import from_json
from redline.learn.train import Trainer, make_policy, spread_seed
from redline.learn.trust import require_trusted
from redline.metrics import MetricsLog, load_metrics
from redline.runs import (
    BREAKDOWN,
    CHECKPOINTS,
    CONFIG,
    RESULT,
    STAGE_FOLDERS,
    STAGES,
    STEP,
    Run,
    as_written,
    within,
)
from redline.signature import signed
from redline.threads import use_threads
from redline.timing.breakdown import Breakdown, merge
from redline.version import __version__

Say = Callable[[str], None]
COUNTS = ("step", "update", "episodes")
"""Columns of the metrics that go on counting from stage to stage."""


@dataclass(frozen=True)
class Guard:
    """A test at the end of a stage: what it began with goes on, unless the result does better."""

    episodes: int = 4096
    """Episodes to compare on."""
    lengths: tuple[int, ...] = ()
    """Episode lengths that count, each with the return up to there; none counts the whole episode."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options of the env that are otherwise there than in training."""


@dataclass(frozen=True)
class PlanStage:
    """One part of a training plan: PPO, improvement by rollouts, or going back to an earlier policy that adopts."""

    name: str
    config: TrainConfig
    """What to train on and how; its seed is worked out from that of the plan."""
    improve: Improvement | None = None
    """Improve by rollouts instead of PPO."""
    back_to: int = 0
    """Go back to the policy after so many stages, and have it adopt what the present one does better."""
    heat: float = 1.0
    """The actor's outputs are multiplied by this at the start: below 1, the policy is less decided, and tries more."""
    guard: Guard | None = None

    @property
    def steps(self) -> int:
        """Env steps of PPO."""
        return 0 if self.improve is not None else self.config.total_steps or 0


def smaller(stages: list[PlanStage], total_steps: int) -> list[PlanStage]:
    """The same plan in so many steps of PPO; rollouts shrink with them."""
    share = total_steps / max(1, sum(stage.steps for stage in stages))
    return [_scaled(stage, share) for stage in stages]


def _scaled(stage: PlanStage, share: float) -> PlanStage:
    def part(count: int) -> int:
        return max(4, min(count, round(count * share)))

    steps = max(1, round(stage.steps * share)) if stage.steps else stage.config.total_steps
    guard = stage.guard and dataclasses.replace(stage.guard, episodes=part(stage.guard.episodes))
    how = stage.improve and dataclasses.replace(
        stage.improve, episodes=part(stage.improve.episodes), states=part(stage.improve.states),
        judging=part(stage.improve.judging), deciding=part(stage.improve.deciding), tries=part(stage.improve.tries),
        lessons=part(stage.improve.lessons), least_visits=min(stage.improve.least_visits, part(stage.improve.least_visits)),
    )  # fmt: skip
    return dataclasses.replace(
        stage, config=dataclasses.replace(stage.config, total_steps=steps), improve=how, guard=guard
    )


class Chain:
    """A plan on its way: a run folder whose stages follow one another."""

    def __init__(self, run: Run, saving: Saving, warn: Say, say: Say, trust: bool = False) -> None:
        """A run that this user has not made is refused if it names code, unless `trust` says that this is fine."""
        require_trusted(run.config, run.path, trust)
        self.run, self.saving, self._warn, self._say = run, saving, warn, say
        with as_written(run.path / CONFIG):
            self.preset = str(run.config["preset"])
            self.stages = [from_json(PlanStage, each, "stage") for each in run.config["stages"]]
            self.stages[-1]
        self._trust = trust
        for number in range(len(self.stages)):
            self.folder(number)  # refuses names that lead elsewhere
        self.done = _stages_done(run)

    @property
    def config(self) -> TrainConfig:
        """The settings of the last stage."""
        return self.stages[-1].config

    @property
    def step(self) -> int:
        """Env steps of the stages that are over."""
        return sum(each["steps"] for each in self.done)

    def left(self) -> Iterator[tuple[int, PlanStage]]:
        """The stages that are still to come, with their numbers."""
        yield from list(enumerate(self.stages))[len(self.done) :]

    def folder(self, number: int) -> Path:
        """The run folder of a stage."""
        return within(self.run.path / STAGE_FOLDERS, f"{number + 1}-{self.stages[number].name}")

    def session(self, number: int) -> Session:
        """A stage of PPO, begun or gone on with."""
        folder, stage = self.folder(number), self.stages[number]
        if any((folder / CHECKPOINTS).glob(f"{STEP}*")):
            return Session.resume(folder, self.saving, self._warn, self._trust)
        shutil.rmtree(folder, ignore_errors=True)
        trainer = Trainer(stage.config)
        self._begin_with(trainer.policy, len(self.done))
        trainer.policy.scale_outputs(stage.heat)
        return Session.begin(Run.at(folder, config_to_json(stage.config)), trainer, self.saving, self._warn)

    def finish(self, number: int, session: Session, seconds: float) -> None:
        """Keep the result of a stage of PPO, unless what it began with does better."""
        stage, policy = self.stages[number], session.trainer.policy
        verdict = self._verdict(number, policy)
        kept = verdict is None or verdict.gain > 0
        self._close(
            number, policy if kept else self._as_of(stage, len(self.done)),
            {
                "kind": "ppo", "seconds": seconds, "steps": session.trainer.step, "episodes": session.trainer.episodes,
                "kept": kept, **({} if verdict is None else dataclasses.asdict(verdict)),
            },
        )  # fmt: skip

    def improve(self, number: int) -> None:
        """A stage of improvement by rollouts, begun or gone on with."""
        stage = self.stages[number]
        assert stage.improve is not None
        shutil.rmtree(self.folder(number), ignore_errors=True)
        run = Run.at(self.folder(number), config_to_json(stage.config))
        arena = self._arena(stage, {})
        policy = self._as_of(stage, stage.back_to or len(self.done))
        how, seed = stage.improve, stage.config.seed
        if stage.back_to:
            gains = adopt_in(run, policy, self._as_of(stage, len(self.done)), arena, how, seed, self._say)
        else:
            gains = improve_in(run, policy, arena, how, seed, self._say)
        self._close(
            number, policy,
            {
                "kind": "adopt" if stage.back_to else "improve", "steps": 0, "episodes": 0,
                "seconds": run.read_json(BREAKDOWN)["total_seconds"],
                "kept": any(each.taken for each in gains), "switches": sum(each.taken for each in gains),
                "before": gains[0].before, "after": gains[0].before + total_gain(gains), "stderr": gains[0].stderr,
            },
        )  # fmt: skip

    def _as_of(self, stage: PlanStage, count: int) -> Policy:
        """The policy after the first `count` stages, for the env of `stage`."""
        env = self._arena(stage, {}).make(1)
        policy = make_policy(env, stage.config, spread_seed(stage.config.seed, 4)[1])
        self._begin_with(policy, count)
        return policy

    def result(self) -> Trained:
        """The policy after the latest stage that is over."""
        return self._result(len(self.done))

    def _result(self, count: int) -> Trained:
        """The policy after the first `count` stages."""
        return load_policy(self.folder(count - 1) / RESULT, self._trust)

    def _begin_with(self, policy: Policy, count: int) -> None:
        """Have a fresh policy begin with what was learned in the first `count` stages."""
        if count:
            before = self._result(count).policy
            grow(policy, before.arrays(), getattr(before.encoding, "names", ()))

    def _verdict(self, number: int, policy: Policy) -> Judgement | None:
        """How the result of a stage does beside what it began with."""
        stage = self.stages[number]
        if stage.guard is None or not self.done:
            return None
        guard, seed = stage.guard, spread_seed(stage.config.seed, 5)[4]
        judge = Judge(self._arena(stage, guard.env_options), guard.episodes, seed, guard.lengths)
        return judge.compare(self._as_of(stage, len(self.done)), policy)

    def _arena(self, stage: PlanStage, more: dict[str, Any]) -> Arena:
        return Arena(stage.config.env, {**stage.config.env_options, **more}, use_threads(stage.config.threads)[0])

    def _close(self, number: int, policy: Policy, facts: dict[str, Any]) -> None:
        """Write down what a stage came to, and its policy."""
        config = self.stages[number].config
        arrays = {f"policy.{name}": array for name, array in policy.arrays().items()}
        values = {"config": signed(config_to_json(config)), "version": __version__, "preset": self.preset}
        step = self.step + int(facts["steps"])
        # a plan that is killed between these finds the result of the stage before, and does this one's end again
        checkpoint.save(self.folder(number) / RESULT, step, arrays, values, 1)
        checkpoint.save(self.run.checkpoints, step, arrays, values, self.saving.keep)
        self.done.append({"name": self.stages[number].name, "folder": self.folder(number).name, **facts})
        self.run.write_json(STAGES, {"preset": self.preset, "stages": self.done})
        self._gather()

    def _gather(self) -> None:
        """Metrics and times of all stages so far, as those of one run."""
        runs = [Run.open(self.folder(number)) for number in range(len(self.done))]
        times = [Breakdown.from_json(each.read_json(BREAKDOWN)) for each in runs if (each.path / BREAKDOWN).exists()]
        self.run.write_json(BREAKDOWN, merge(times).to_json())
        self.run.metrics.unlink(missing_ok=True)
        with MetricsLog(self.run.metrics, warn=self._warn) as log:
            before = dict.fromkeys(COUNTS, 0)
            for number, run in enumerate(runs, 1):
                rows = _rows(load_metrics(run.metrics)) if run.metrics.exists() else []
                for row in rows:
                    log.append({**row, **_added(before, row), "stage": number})
                before = _added(before, rows[-1]) if rows else before


def _stages_done(run: Run) -> list[dict[str, Any]]:
    """What the stages so far came to."""
    if not (run.path / STAGES).exists():
        return []
    with as_written(run.path / STAGES):
        done: list[dict[str, Any]] = [dict(each) for each in run.read_json(STAGES)["stages"]]
        if not all(type(each[count]) is int and each[count] >= 0 for each in done for count in ("steps", "episodes")):
            raise ValueError("steps and episodes are counts")
    return done


def plan_config(preset: str, stages: list[PlanStage]) -> dict[str, Any]:
    """The config of a run in stages: that of the last one, and all of them."""
    return {
        **config_to_json(stages[-1].config),
        "preset": preset,
        "stages": [dataclasses.asdict(stage) for stage in stages],
    }


def seeded(stages: list[PlanStage], seed: int) -> list[PlanStage]:
    """Stages with seeds of their own, all from that of the plan."""
    seeds = spread_seed(seed, len(stages))
    return [
        dataclasses.replace(stage, config=dataclasses.replace(stage.config, seed=each))
        for stage, each in zip(stages, seeds, strict=True)
    ]


def _rows(metrics: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    return [{name: float(column[k]) for name, column in metrics.items()} for k in range(len(metrics["step"]))]


def _added(counts: dict[str, int], row: dict[str, Any]) -> dict[str, int]:
    return {name: count + int(row[name]) for name, count in counts.items()}
