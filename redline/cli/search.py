"""`redline search`: which repair order defends best?"""

from __future__ import annotations

import dataclasses
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from redline.cli.console import Watcher, out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.worlds import say_to
from redline.errors import RedlineError, unknown
from redline.files import warn_on_stderr
from redline.learn.config import PPOConfig, TrainConfig, at_least
from redline.learn.stored import from_json
from redline.learn.trust import require_trusted
from redline.runs import BEST, POLICIES, RANKING, SUMMARY, Run
from redline.search import KIND, workflows_of, worlds_with_workflows
from redline.threads import cores
from redline.worlds.workflows import Workflows

if TYPE_CHECKING:
    from redline.search.search import Search


@dataclass(frozen=True)
class SearchOptions:
    """The search and its budget."""

    env: tyro.conf.Positional[str] = ""
    """The world whose workflows are searched; redline envs lists them."""
    total_episodes: int = 100_000
    """Episodes of the whole search."""
    episodes_per_update: int = 200
    """Episodes between two PPO updates."""
    max_episodes_per_workflow: int = 10_000
    """Most episodes spent on one workflow, over all its picks."""
    min_updates: int = 10
    """Updates a pick trains at least, so that what it reports is a policy that has learned something."""
    compliance_threshold: float = 0.9
    """Mean compliance of an update's episodes at which a workflow counts as obeyed."""
    patience: int = 12
    """Updates without better compliance after which a pick is given up."""
    beta: float = 2.0
    """How much uncertainty counts in a pick: UCB = mean + beta * std."""
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
        at_least(1, patience=self.patience, parallel_workflows=self.parallel_workflows)
        at_least(0, n_workers=self.n_workers, seed=self.seed)
        at_least(1, eval_episodes=self.eval_episodes)
        if self.runner and self.runner not in RUNNERS:
            raise unknown("runner", self.runner, RUNNERS)
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
        if self.beta < 0:
            raise RedlineError(f"--beta {self.beta:g} would shun what is unknown. Try --beta 2.")
        if self.n_workers and self.episodes_per_update % self.n_workers:
            raise RedlineError(
                f"{self.episodes_per_update} episodes cannot be shared evenly by {self.n_workers} workers. "
                f"Try --n-workers {_divisor_below(self.episodes_per_update, self.n_workers)}."
            )

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
class SearchFolder:
    """Where the search goes."""

    runs: Path = Path("runs")
    """Folder that gets a new folder for each search."""
    run_dir: Path | None = None
    """Use exactly this folder instead."""
    resume: Path | None = None
    """Go on with this search, with its own settings."""
    trust: bool = False
    """Go on with what the search names, such as a world of its own, though it was not made by you."""


@dataclass(frozen=True)
class SearchPlan:
    """A search: its options, the world's workflows, and the world's settings for them."""

    options: SearchOptions
    workflows: Workflows
    settings: Any  # an instance of `workflows.settings`

    @property
    def total_episodes(self) -> int:
        """Episodes of the whole search."""
        if self.options.exhaustive:
            return len(self.workflows) * self.options.max_episodes_per_workflow
        return self.options.total_episodes

    @property
    def config(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"kind": KIND, **dataclasses.asdict(self.options), **dataclasses.asdict(self.settings)}


ABOUT = "Find the repair order whose best obedient defender loses least: GP-UCB over all of them."


def _divisor_below(size: int, wanted: int) -> int:
    return max(d for d in range(1, min(size, wanted) + 1) if size % d == 0)


def run(arguments: list[str]) -> int:
    """Parse, search, rank, report."""
    name = _world_named(arguments)
    workflows = workflows_of(name)
    parts = {
        "search": SearchOptions(env=name),
        "settings": workflows.settings,
        "folder": SearchFolder,
        "output": Output,
    }
    kind = combine(ABOUT, **parts)
    command: Any = parse("search", kind, arguments)
    plan = SearchPlan(command.search, workflows, command.settings)
    folder, plan = _open(plan, command.folder)
    with folder.locked():
        return _search(folder, plan, command.output)


def _world_named(arguments: list[str]) -> str:
    """The world whose workflows are searched: the first argument, another that names one, or the first there is."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0]
    known = worlds_with_workflows()
    return next((each for each in arguments if each in known), known[0])


def _search(folder: Run, plan: SearchPlan, output: Output) -> int:
    options = plan.options
    say = say_to(output)
    say(f"Searching in {folder.path}: {options.total_episodes:,} episodes, {options.parallel_workflows} at once")
    if options.parallel_workflows > cores() and options.runner != "ray":
        say(f"{options.parallel_workflows} workflows at once on {cores()} cores: they will get in each other's way.")
    started = time.monotonic()
    search = _make_search(folder, plan)
    from redline.learn.session import Interrupt

    with Interrupt().listening() as interrupt, Watcher(output) as watcher:
        for pick in search:
            told = f"pick {pick.iteration + 1}  reward {pick.result.env_reward:8.2f}  {pick.used:,} episodes"
            watcher.show(pick.used / plan.total_episodes, told)
            if interrupt:
                break
    search.close()
    if interrupt:
        path = shlex.quote(str(folder.path))
        warn_on_stderr(
            f"redline: interrupted after {search.used} episodes. Continue with: redline search --resume {path}"
        )
        return interrupt.exit_code
    summary = _finish(folder, search, plan, time.monotonic() - started)
    if output.json:
        print_json(summary)
    else:
        _print(summary, folder)
    return 0


def _open(asked: SearchPlan, where: SearchFolder) -> tuple[Run, SearchPlan]:
    """The folder of the search, and what is searched: as asked, or as the folder that goes on says."""
    if where.resume is None:
        run = Run.at(where.run_dir, asked.config) if where.run_dir else Run.create(where.runs, "search", asked.config)
        return run, asked
    found = Run.open(where.resume)
    if found.config.get("kind") != KIND:
        raise RedlineError(
            f"{found.path} holds a run of another kind, not a workflow search. Pass the folder of a search."
        )
    require_trusted(found.config, found.path, where.trust)
    plan = plan_of(found.config)
    untouched = SearchPlan(SearchOptions(env=asked.options.env), asked.workflows, asked.workflows.settings())
    if asked.config not in (untouched.config, plan.config):
        raise RedlineError(
            f"{found.path} is a search with other settings. Leave them out to go on with its own, or start a new search."
        )
    return found, plan


def plan_of(config: dict[str, Any]) -> SearchPlan:
    """The search that a run folder's config tells of."""
    workflows = workflows_of(str(config.get("env")))
    return SearchPlan(from_json(SearchOptions, config), workflows, from_json(workflows.settings, config))


def _make_search(folder: Run, plan: SearchPlan) -> Search:
    from redline.learn.train import spread_seed
    from redline.learn.workflow import Gate, Task, train_workflow, workflow_config
    from redline.search.parallel import make_runner
    from redline.search.search import Budget, Order, Search
    from redline.search.ucb import GPUCB, OneByOne

    options, workflows = plan.options, plan.workflows
    base = options.trainer(plan.settings.max_steps)

    def make_task(order: Order) -> Task:
        names = workflows.spelled(order.workflow_id)
        seed = spread_seed(options.seed * 100_003 + order.iteration, 1)[0]
        gate = Gate(
            options.compliance_threshold,
            options.patience,
            options.min_updates,
            order.max_updates,
            not options.exhaustive,
        )
        return Task(
            workflow_id=order.workflow_id,
            config=workflow_config(base, workflows.env_options(plan.settings, names), seed),
            gate=gate,
            folder=str(folder.path / POLICIES / names.replace(",", "-")),
            own=order.own,
            other=None if options.exhaustive else order.other,
            episode_steps=plan.settings.max_steps,
            iteration=order.iteration,
        )

    runner = options.runner or ("processes" if options.parallel_workflows > 1 else "here")
    return Search(
        run=folder,
        workflows=workflows,
        budget=Budget(
            plan.total_episodes, options.episodes_per_update, options.max_episodes_per_workflow, options.min_updates
        ),
        ucb=OneByOne(len(workflows)) if options.exhaustive else GPUCB(workflows.distances, options.seed, options.beta),
        runner=make_runner(runner, options.parallel_workflows, options.ray_address),
        make_task=make_task,
        train=train_workflow,
        parallel=options.parallel_workflows,
    )


def _finish(folder: Run, search: Search, plan: SearchPlan, seconds: float) -> dict[str, Any]:
    """Score every trained workflow and the baselines, name the best, write the report."""
    from redline.report.search import write_search_report
    from redline.search.ranking import name_best, rank

    options, episode_steps = plan.options, plan.settings.max_steps
    ranking = rank(folder, plan.workflows, plan.settings, search.known, options.eval_episodes, options.seed)
    best = ranking["best"]
    if best is not None:
        name_best(folder, best)
    folder.write_json(RANKING, ranking)
    summary = {
        "run": str(folder.path),
        "episodes": search.used,
        "steps": search.used * episode_steps,
        "picks": search.iteration,
        "workflows": len(search.known),
        "infeasible": sum(not known.passed for known in search.known.values()),
        "seconds": search.seconds,
        "wall_seconds": seconds,
        "steps_per_second": search.used * episode_steps / search.seconds if search.seconds else None,
        "best": best,
        "mean": best["mean"] if best else None,
        "stderr": best["stderr"] if best else None,
        "baselines": ranking["baselines"],
        "report": str(write_search_report(folder)),
    }
    folder.write_json(SUMMARY, summary)
    return summary


def _print(summary: dict[str, Any], folder: Run) -> None:
    from rich import box
    from rich.table import Table

    ranking = folder.read_json(RANKING)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Trained workflows, best first", title_justify="left")
    for column in ("order", "mean return", "compliance", "episodes", ""):
        table.add_column(column, justify="left" if column in ("order", "") else "right")
    for entry in ranking["workflows"][:10]:
        mark = "" if entry["passed"] else "not obeyed"
        score = f"{entry['mean']:.2f} ±{entry['stderr']:.2f}"
        table.add_row(entry["order"], score, f"{entry['compliance']:.2f}", f"{entry['trained_episodes']:,}", mark)
    table.add_section()
    for entry in ranking["baselines"]:
        table.add_row(f"baseline: {entry['name']}", f"{entry['mean']:.2f} ±{entry['stderr']:.2f}", "", "", "")
    out.print(table)
    best = summary["best"]
    found = (
        f"Best: [bold]{best['order']}[/bold], {best['mean']:.2f} ± {best['stderr']:.2f} over {best['episodes']:,} episodes."
        f"\nNext: redline eval {shlex.quote(str(Path(summary['run']) / BEST))}"
        if best
        else "None of them was obeyed, so there is no best one. Try more episodes, or a lower --compliance-threshold."
    )
    out.print(
        f"\n{summary['episodes']:,} episodes, {summary['picks']} picks of {summary['workflows']} workflows "
        f"({summary['infeasible']} not obeyed) in {summary['seconds']:.1f} s; with scoring and report "
        f"{summary['wall_seconds']:.1f} s.\n"
        f"Run folder: {summary['run']}\nReport:     {summary['report']}\n{found}",
        soft_wrap=True,
    )
