"""What a workflow search is asked to do, and the search that does it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from redline.errors import RedlineError, unknown
from redline.learn.config import PPOConfig, TrainConfig, at_least
from redline.learn.stored import from_json
from redline.runs import BEST, POLICIES, Run
from redline.search import KIND, workflows_of
from redline.worlds.workflows import Workflows

if TYPE_CHECKING:
    from redline.search.equivalence import Judging
    from redline.search.paired import Paired
    from redline.search.search import Budget, Order, Search
    from redline.search.training import Task


TAIL = 5
"""The score of a training is that of its last updates, so many."""
JUDGED = 100
"""Episodes of each policy that tell which workflows are alike."""


@dataclass(frozen=True)
class SearchOptions:
    """The search and its budget."""

    env: Annotated[str, "positional"] = ""
    """The world whose workflows are searched; redline envs lists them."""
    total_episodes: int = 100_000
    """Episodes of the whole search."""
    episodes_per_update: int = 200
    """Episodes between two PPO updates."""
    max_episodes_per_workflow: int = 10_000
    """Most episodes spent on one workflow, over all its trainings."""
    min_updates: int = 10
    """Updates of one training."""
    start_episodes: int | None = None
    """Episodes of a start, which learns with nothing to obey; 0 trains every workflow from scratch.
    Default: a fifth of all, 20,000 at most."""
    tolerance: float = 0.02
    """Stop when the answer is expected to lose less than this share of its score against the true best."""
    compliance_threshold: float = 0.9
    """Mean compliance of an update's episodes at which a workflow counts as obeyed."""
    parallel_workflows: int = 1
    """Workflows trained at once."""
    runner: str = ""
    """Where they are trained: here, processes or ray. By default processes where there are several at once."""
    ray_address: str | None = None
    """Address of a Ray cluster for --runner ray; a local one is started otherwise."""
    n_workers: int = 0
    """Episodes played side by side; 0 plays all episodes of an update at once."""
    engine: str = "vector"
    """How episodes are collected."""
    exhaustive: bool = False
    """Train all workflows with an equal budget instead of searching; the ranking then judges the search."""
    eval_episodes: int = 1000
    """Episodes each trained workflow is scored on at the end."""
    seed: int = 0
    """All randomness follows from it."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        from redline.engines import ENGINES
        from redline.search.parallel import RUNNERS

        at_least(1, total_episodes=self.total_episodes, episodes_per_update=self.episodes_per_update)
        at_least(1, max_episodes_per_workflow=self.max_episodes_per_workflow, min_updates=self.min_updates)
        at_least(1, parallel_workflows=self.parallel_workflows)
        at_least(0, n_workers=self.n_workers, seed=self.seed)
        at_least(1, eval_episodes=self.eval_episodes)
        if self.runner and self.runner not in RUNNERS:
            raise unknown("runner", self.runner, RUNNERS)
        at_least(0, start_episodes=self.start_episodes or 0)
        needed = self.start + self.min_updates * self.episodes_per_update
        if not self.exhaustive and self.start and needed > self.total_episodes:
            raise RedlineError(
                f"A start of {self.start} episodes and one training need {needed}, but --total-episodes is "
                f"{self.total_episodes}. Try --total-episodes {5 * needed}."
            )
        if not 0.0 <= self.tolerance < 1.0:
            raise RedlineError(f"--tolerance {self.tolerance:g} is not a share of the score. Try --tolerance 0.02.")
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if not 0.0 <= self.compliance_threshold <= 1.0:
            raise RedlineError(
                f"--compliance-threshold {self.compliance_threshold:g} is not a share. Try 0.9 (0 to 1)."
            )
        if self.total_episodes < self.episodes_per_update:
            raise RedlineError(
                f"--total-episodes {self.total_episodes} is less than one update of {self.episodes_per_update} episodes. "
                f"Try --total-episodes {100 * self.episodes_per_update}."
            )
        if self.n_workers and self.episodes_per_update % self.n_workers:
            raise RedlineError(
                f"{self.episodes_per_update} episodes cannot be shared evenly by {self.n_workers} workers. "
                f"Try --n-workers {_divisor_below(self.episodes_per_update, self.n_workers)}."
            )

    @property
    def start(self) -> int:
        """Episodes of a start: whole updates."""
        wanted = min(20_000, self.total_episodes // 5) if self.start_episodes is None else self.start_episodes
        return wanted // self.episodes_per_update * self.episodes_per_update

    def trainer(self, episode_steps: int) -> TrainConfig:
        """The settings all workflows are trained with, in episodes of so many steps."""
        num_envs = self.n_workers or self.episodes_per_update
        return TrainConfig(
            env=self.env,
            total_steps=10**12,
            num_envs=num_envs,
            num_steps=episode_steps * self.episodes_per_update // num_envs,
            engine=self.engine,
            threads=1,
            ppo=PPOConfig(anneal=False),
        )


@dataclass(frozen=True)
class SearchPlan:
    """A search: its options, the world's workflows, and the world's settings for them."""

    options: SearchOptions
    workflows: Workflows
    settings: Any  # an instance of `workflows.settings`

    @property
    def total_episodes(self) -> int:
        """Episodes of the whole search."""
        if not self.options.exhaustive:
            return self.options.total_episodes
        starts = self.trainings_each * self.options.start
        return starts + len(self.workflows) * self.options.max_episodes_per_workflow

    @property
    def trainings_each(self) -> int:
        """Trainings that a workflow may have."""
        episodes = self.options.min_updates * self.options.episodes_per_update
        return max(1, self.options.max_episodes_per_workflow // episodes)

    @property
    def config(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"kind": KIND, **dataclasses.asdict(self.options), **dataclasses.asdict(self.settings)}


def _divisor_below(size: int, wanted: int) -> int:
    return max(d for d in range(1, min(size, wanted) + 1) if size % d == 0)


def plan_of(config: dict[str, Any]) -> SearchPlan:
    """The search that a run folder's config tells of."""
    workflows = workflows_of(str(config.get("env")))
    options = from_json(SearchOptions, config)
    return SearchPlan(options, workflows, from_json(workflows.settings, config))


def make_search(folder: Run, plan: SearchPlan) -> Search:
    """The search that goes on in the folder."""
    from redline.search.parallel import make_runner
    from redline.search.search import Search
    from redline.search.training import train_workflow

    options = plan.options
    name = options.runner or ("processes" if options.parallel_workflows > 1 else "here")
    return Search(
        run=folder,
        workflows=plan.workflows,
        budget=_budget(plan),
        method=_paired(plan),
        runner=make_runner(name, options.parallel_workflows, options.ray_address),
        make_task=partial(_paired_task, folder, plan),
        train=train_workflow,
        parallel=options.parallel_workflows,
    )


def _paired(plan: SearchPlan) -> Paired:
    from redline.search.paired import Paired
    from redline.search.top_two import InTurn, TopTwo

    options = plan.options
    picker = InTurn if options.exhaustive else TopTwo
    return Paired(
        picker=picker(plan.workflows.distances, options.seed, plan.trainings_each),
        start_updates=options.start // options.episodes_per_update,
        updates_each=options.min_updates,
        threshold=options.compliance_threshold,
        tolerance=options.tolerance,
        impartial=options.exhaustive,
        make_judgement=partial(_judgement, plan),
    )


def _paired_task(folder: Run, plan: SearchPlan, order: Order) -> Task:
    """A training of its replicate's random numbers, with nothing to obey where it is a start."""
    from redline.search.training import Task

    options, is_start = plan.options, order.workflow_id < 0
    names = "" if is_start else plan.workflows.spelled(order.workflow_id)
    seed = _seeds(plan, max(order.replicate, 0))[0 if is_start else 1]
    name = "starts" if is_start else names.replace(",", "-")
    part = str(order.replicate) if order.own is None else BEST
    return Task(
        workflow_id=order.workflow_id,
        config=_config(plan, names, seed),
        threshold=options.compliance_threshold,
        updates=order.max_updates,
        folder=str(folder.path / POLICIES / name / part),
        own=order.own,
        other=order.other,
        episode_steps=plan.settings.max_steps,
        iteration=order.iteration,
        tail=TAIL,
    )


def _judgement(plan: SearchPlan, start: str) -> Judging:
    from redline.search.equivalence import Judging

    workflows, settings = plan.workflows, plan.settings
    seed = _seeds(plan, 0)[0]
    options = [workflows.env_options(settings, workflows.spelled(id)) for id in range(len(workflows))]
    return Judging(_config(plan, "", seed), start, options, JUDGED, settings.max_steps, seed)


def _seeds(plan: SearchPlan, replicate: int) -> list[int]:
    """Of a replicate's start, and of every training in it."""
    from redline.learn.train import spread_seed

    return spread_seed(plan.options.seed * 100_003 + replicate, 2)


def _config(plan: SearchPlan, names: str, seed: int) -> dict[str, Any]:
    from redline.search.training import workflow_config

    base = plan.options.trainer(plan.settings.max_steps)
    return workflow_config(base, plan.workflows.env_options(plan.settings, names), seed)


def _budget(plan: SearchPlan) -> Budget:
    from redline.search.search import Budget

    options = plan.options
    return Budget(plan.total_episodes, options.episodes_per_update)
