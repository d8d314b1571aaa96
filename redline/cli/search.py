"""`redline search`: which repair order defends best?"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.cli.console import Watcher, out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.search_plan import SearchOptions, SearchPlan, make_search, plan_of
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.learn.trust import require_trusted
from redline.report.verdict import in_words, with_interval
from redline.runs import BEST, RANKING, SUMMARY, Run
from redline.search import KIND, workflows_of, worlds_with_workflows
from redline.signals import Interrupt, exit_code_of
from redline.threads import cores

if TYPE_CHECKING:
    from redline.search.search import Search


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


ABOUT = "Find the repair order whose best obedient defender loses least, and say how sure that is."


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
    say(f"Searching in {folder.path}: {plan.total_episodes:,} episodes, {options.parallel_workflows} at once")
    if options.parallel_workflows > cores() and options.runner != "ray":
        say(f"{options.parallel_workflows} workflows at once on {cores()} cores: they will get in each other's way.")
    search = make_search(folder, plan)
    with Interrupt().listening() as interrupt, Watcher(output) as watcher:
        for pick in search:
            told = f"pick {pick.iteration + 1}  reward {pick.result.env_reward:8.2f}  {pick.used:,} episodes"
            watcher.show(pick.used / plan.total_episodes, told)
            if interrupt:
                break
    how = f"Continue with: redline search --resume {shlex.quote(str(folder.path))}"
    if interrupt:
        search.close()
        warn_on_stderr(f"redline: interrupted after {search.used} episodes. {how}")
        return interrupt.exit_code
    try:
        summary = _finish(folder, search, plan)
    except KeyboardInterrupt as error:
        warn_on_stderr(f"redline: interrupted while ranking. Nothing is lost. {how}")
        return exit_code_of(error)
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


def _finish(folder: Run, search: Search, plan: SearchPlan) -> dict[str, Any]:
    """Score every trained workflow and the baselines, name the best, train it on, write the report."""
    from redline.report.search import write_search_report
    from redline.search.ranking import name_best

    options, episode_steps, started = plan.options, plan.settings.max_steps, time.monotonic()
    searched = search.clock.seconds
    ranking = search.method.rank(search, plan.settings, options.eval_episodes, options.seed)
    best = ranking["best"]
    if best is not None:
        best["defender"] = _defender(search, best, plan)
        name_best(folder, best)
    search.close()
    folder.write_json(RANKING, ranking)
    known = search.method.known
    summary = {
        "run": str(folder.path),
        "episodes": search.used,
        "steps": search.used * episode_steps,
        "search_episodes": search.used - (best["defender"]["trained_on"] if best else 0),
        "picks": search.iteration,
        "workflows": len(known),
        "infeasible": sum(not each.passed for each in known.values()),
        "seconds": search.clock.seconds,
        "wall_seconds": searched + time.monotonic() - started,
        "steps_per_second": search.used * episode_steps / search.clock.seconds if search.clock.seconds else None,
        "best": best,
        "mean": best["mean"] if best else None,
        "stderr": best["stderr"] if best else None,
        "baselines": ranking["baselines"],
    }
    folder.write_json(SUMMARY, summary)  # which the report reads
    summary["report"] = str(write_search_report(folder))
    folder.write_json(SUMMARY, summary)
    return summary


def _defender(search: Search, best: dict[str, Any], plan: SearchPlan) -> dict[str, Any]:
    """Train the best order's policy with what is left of the budget; its score in fresh episodes."""
    from redline.search.ranking import score_defender

    known = search.method.finish(search, best)
    if known is not None:
        best["checkpoint"] = known.checkpoint
    scored = score_defender(search.run, best["checkpoint"], plan.options.eval_episodes, plan.options.seed)
    return scored | {"trained_on": known.episodes if known else 0}


def _print(summary: dict[str, Any], folder: Run) -> None:
    from rich import box
    from rich.table import Table

    ranking = folder.read_json(RANKING)
    title = "Trained workflows, best first (±: 95 % interval)"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("order", "mean return", "trainings", "compliance", "episodes", ""):
        table.add_column(column, justify="left" if column in ("order", "") else "right")
    for entry in ranking["workflows"][:10]:
        mark = "" if entry["passed"] else "not obeyed"
        done = f"{entry.get('trainings', 1)}"
        table.add_row(
            entry["order"], _score(entry), done, f"{entry['compliance']:.2f}", f"{entry['trained_episodes']:,}", mark
        )
    table.add_section()
    for entry in ranking["baselines"]:
        table.add_row(f"baseline: {entry['name']}", _score(entry), "", "", "", "")
    out.print(table)
    best = summary["best"]
    found = (
        f"{in_words(ranking, len(workflows_of(str(folder.config.get('env')))))}"
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


def _score(entry: dict[str, Any]) -> str:
    return with_interval(entry["mean"], entry["stderr"])
