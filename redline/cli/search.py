"""`redline search`: which repair order defends best?"""

from __future__ import annotations

import dataclasses
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.console import Watcher, err, out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError, unknown
from redline.files import warn_on_stderr
from redline.learn.config import PPOConfig, TrainConfig, at_least
from redline.search import KIND
from redline.threads import cores

RANKING = "ranking.json"


@dataclass(frozen=True)
class SearchOptions:
    """What to search for, and with what budget."""

    env: tyro.conf.Positional[str] = "cage2"
    """cage2."""
    total_episodes: int = 100_000
    """Episodes of the whole search."""
    episodes_per_update: int = 200
    """Episodes between two PPO updates."""
    max_episodes_per_workflow: int = 10_000
    """Most episodes spent on one workflow, over all its picks."""
    min_updates: int = 10
    """Updates a pick trains at least, so that what it reports is a policy that has learned something."""
    red_agent: str = "B_lineAgent"
    """Red agent to defend against."""
    rules: str = "final"
    """Rule set: final or leaderboard."""
    max_steps: int = 100
    """Steps in an episode."""
    alignment_lambda: float = 30.0
    """Reward of a fully obedient episode."""
    compliance_bonus: float = 0.0
    """Extra reward of each obedient fix, as a multiple of lambda."""
    violation_penalty: float = 0.0
    """Extra cost of each disobedient fix, as a multiple of lambda."""
    count_foothold: bool = False
    """Count User0, which Red can never lose, as compromised: then `user` always is."""
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
    """Train all 120 workflows with an equal budget instead of searching; the ranking then judges the search."""
    eval_episodes: int = 1000
    """Episodes each trained workflow is scored on at the end."""
    seed: int = 0
    """All randomness follows from it."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        from redline.engines import ENGINES
        from redline.search.parallel import RUNNERS
        from redline.sims.cage2.scenario import Scenario

        at_least(1, total_episodes=self.total_episodes, episodes_per_update=self.episodes_per_update)
        at_least(1, max_episodes_per_workflow=self.max_episodes_per_workflow, min_updates=self.min_updates)
        at_least(1, max_steps=self.max_steps, patience=self.patience, parallel_workflows=self.parallel_workflows)
        at_least(0, n_workers=self.n_workers, seed=self.seed)
        at_least(1, eval_episodes=self.eval_episodes)
        if self.env != "cage2":
            raise unknown("env with workflows", self.env, ["cage2"])
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
        Scenario(**self.env_options())

    def env_options(self) -> dict[str, Any]:
        """The options of the env, without a workflow."""
        names = (
            "red_agent",
            "rules",
            "max_steps",
            "alignment_lambda",
            "compliance_bonus",
            "violation_penalty",
            "count_foothold",
        )
        return {name: getattr(self, name) for name in names}

    def trainer(self) -> TrainConfig:
        """The settings all workflows are trained with."""
        num_envs = self.n_workers or self.episodes_per_update
        return TrainConfig(
            env="cage2",
            env_options=self.env_options(),
            total_steps=10**12,
            num_envs=num_envs,
            num_steps=self.max_steps * self.episodes_per_update // num_envs,
            engine=self.engine,
            threads=1,
            ppo=PPOConfig(anneal=False),
        )


@dataclass(frozen=True)
class Folder:
    """Where the search goes."""

    runs: Path = Path("runs")
    """Folder that gets a new folder for each search."""
    run_dir: Path | None = None
    """Use exactly this folder instead."""
    resume: Path | None = None
    """Go on with this search, with its own settings."""


@dataclass(frozen=True)
class Command:
    """Find the repair order whose best obedient defender loses least: GP-UCB over all 120."""

    search: Annotated[SearchOptions, tyro.conf.arg(name="")] = dataclasses.field(default_factory=SearchOptions)
    folder: Annotated[Folder, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Folder)
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)


def _divisor_below(size: int, wanted: int) -> int:
    return max(d for d in range(1, min(size, wanted) + 1) if size % d == 0)


def run(arguments: list[str]) -> int:
    """Parse, search, rank, report."""
    command = parse("search", Command, arguments)
    folder, options = _open(command)
    with folder.locked():
        return _search(folder, options, command.output)


def _search(folder: Any, options: SearchOptions, output: Output) -> int:
    say = (lambda text: None) if output.quiet or output.json else (lambda text: err.print(text, soft_wrap=True))
    say(f"Searching in {folder.path}: {options.total_episodes:,} episodes, {options.parallel_workflows} at once")
    if options.parallel_workflows > cores() and options.runner != "ray":
        say(f"{options.parallel_workflows} workflows at once on {cores()} cores: they will get in each other's way.")
    started = time.monotonic()
    search = _make_search(folder, options)
    from redline.learn.session import Interrupt

    total = 120 * options.max_episodes_per_workflow if options.exhaustive else options.total_episodes
    with Interrupt().listening() as interrupt, Watcher(output) as watcher:
        for pick in search:
            told = f"pick {pick.iteration + 1}  reward {pick.result.env_reward:8.2f}  {pick.used:,} episodes"
            watcher.show(pick.used / total, told)
            if interrupt:
                break
    search.close()
    if interrupt:
        path = shlex.quote(str(folder.path))
        warn_on_stderr(
            f"redline: interrupted after {search.used} episodes. Continue with: redline search --resume {path}"
        )
        return interrupt.exit_code
    summary = _finish(folder, search, options, time.monotonic() - started)
    if output.json:
        print_json(summary)
    else:
        _print(summary, folder)
    return 0


def _open(command: Command) -> tuple[Any, SearchOptions]:
    from redline.runs import Run

    if command.folder.resume is None:
        data = {"kind": KIND, **dataclasses.asdict(command.search)}
        where = command.folder
        return (
            Run.at(where.run_dir, data) if where.run_dir else Run.create(where.runs, "search", data)
        ), command.search
    found = Run.open(command.folder.resume)
    if found.config.get("kind") != KIND:
        raise RedlineError(
            f"{found.path} holds a run of another kind, not a workflow search. Pass the folder of a search."
        )
    options = SearchOptions(**{k: v for k, v in found.config.items() if k != "kind"})
    if command.search not in (SearchOptions(), options):
        raise RedlineError(
            f"{found.path} is a search with other settings. Leave them out to go on with its own, or start a new search."
        )
    return found, options


def _make_search(folder: Any, options: SearchOptions) -> Any:
    from redline.learn.train import spread_seed
    from redline.learn.workflow import Gate, Task, train_workflow, workflow_config
    from redline.search.parallel import make_runner
    from redline.search.search import Budget, Order, Search
    from redline.search.ucb import GPUCB, OneByOne
    from redline.search.workflow import ALL_WORKFLOWS, TYPES

    base = options.trainer()
    total = 120 * options.max_episodes_per_workflow if options.exhaustive else options.total_episodes

    def make_task(order: Order) -> Task:
        workflow = ALL_WORKFLOWS[order.workflow_id]
        names = ",".join(TYPES[kind] for kind in workflow.order)
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
            config=workflow_config(base, names, seed),
            gate=gate,
            folder=str(folder.path / "policies" / names.replace(",", "-")),
            own=order.own,
            other=None if options.exhaustive else order.other,
            iteration=order.iteration,
        )

    runner = options.runner or ("processes" if options.parallel_workflows > 1 else "here")
    return Search(
        run=folder,
        budget=Budget(total, options.episodes_per_update, options.max_episodes_per_workflow, options.min_updates),
        ucb=OneByOne() if options.exhaustive else GPUCB(options.seed, options.beta),
        runner=make_runner(runner, options.parallel_workflows, options.ray_address),
        make_task=make_task,
        train=train_workflow,
        parallel=options.parallel_workflows,
    )


def _finish(folder: Any, search: Any, options: SearchOptions, seconds: float) -> dict[str, Any]:
    """Score every trained workflow and the baselines, name the best, write the report."""
    from redline.report.search import write_search_report
    from redline.search.ranking import name_best, rank

    ranking = rank(folder, search.known, options.eval_episodes, options.seed, options.env_options())
    best = ranking["best"]
    if best is not None:
        name_best(folder, best)
    folder.write_json(RANKING, ranking)
    summary = {
        "run": str(folder.path),
        "episodes": search.used,
        "steps": search.used * options.max_steps,
        "picks": search.iteration,
        "workflows": len(search.known),
        "infeasible": sum(not known.passed for known in search.known.values()),
        "seconds": search.seconds,
        "wall_seconds": seconds,
        "steps_per_second": search.used * options.max_steps / search.seconds if search.seconds else None,
        "best": best,
        "mean": best["mean"] if best else None,
        "stderr": best["stderr"] if best else None,
        "baselines": ranking["baselines"],
        "report": str(write_search_report(folder)),
    }
    folder.write_json("summary.json", summary)
    return summary


def _print(summary: dict[str, Any], folder: Any) -> None:
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
        f"\nNext: redline eval {shlex.quote(summary['run'] + '/best')}"
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
