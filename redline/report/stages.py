"""The stages of a run in its report: what each came to, and what improvement by rollouts found."""

from __future__ import annotations

from typing import Any

from redline.errors import RedlineError
from redline.report.draw import NOTHING, fixed, short
from redline.report.page import Section, note, table
from redline.runs import IMPROVEMENT, STAGE_FOLDERS, STAGES, Run, as_written, within
from redline.worlds.registry import make_env

HEADERS = ("stage", "kind", "env steps", "seconds", "score before", "after", "gain", "± standard error", "kept")
ABOUT = (
    "Score: mean over fresh episodes with the likeliest actions, before and after the stage on the same ones. Where "
    "several episode lengths count, it is the sum of the returns at each. A stage that does no better is not kept."
)
ROUND_HEADERS = ("stage", "states looked at", "part of all steps", "switches found", "taken", "gain")
SWITCH_HEADERS = ("stage", "instead of", "now", "gain where it is met", "times an episode")


def stage_sections(run: Run) -> list[Section]:
    """What each stage of a plan came to; nothing for a run without stages."""
    if not (run.path / STAGES).exists():
        return []
    with as_written(run.path / STAGES):
        return [Section("Stages", _body(run, run.read_json(STAGES)["stages"]))]


def _body(run: Run, stages: list[dict[str, Any]]) -> str:
    body = table(HEADERS, [_line(each) for each in stages]) + note(ABOUT)
    rounds = [(each["name"], found) for each in stages for found in _rounds(run, each)]
    if rounds:
        body += table(ROUND_HEADERS, [_round(name, found) for name, found in rounds])
        names = _action_names(run)
        switches = [_switch(name, each, names) for name, found in rounds for each in found["switches"][:5]]
        body += table(SWITCH_HEADERS, switches) + note("The switches that promised most, five of each round.")
    return body


def _line(stage: dict[str, Any]) -> list[object]:
    scores: list[object] = [NOTHING] * 4
    if "before" in stage:
        before, after = stage["before"], stage["after"]
        scores = [fixed(before), fixed(after), fixed(after - before), f"{stage['stderr']:.2f}"]
    kept = "yes" if stage["kept"] else "no"
    return [stage["folder"], stage["kind"], short(stage["steps"]), f"{stage['seconds']:.1f}", *scores, kept]


def _rounds(run: Run, stage: dict[str, Any]) -> list[dict[str, Any]]:
    path = within(run.path / STAGE_FOLDERS, stage["folder"])
    if not (path / IMPROVEMENT).exists():
        return []
    return list(Run.open(path).read_json(IMPROVEMENT)["rounds"])


def _round(name: str, found: dict[str, Any]) -> list[object]:
    gain = fixed(found["after"] - found["before"])
    return [name, found["states"], f"{found['covered']:.0%}", found["found"], found["taken"], gain]


def _switch(name: str, switch: dict[str, Any], names: tuple[str, ...]) -> list[object]:
    old, new = (names[switch[key]] if names else switch[key] for key in ("old", "new"))
    return [name, old, new, f"{switch['gain']:.2f} ± {switch['stderr']:.2f}", f"{switch['visits']:.2f}"]


def _action_names(run: Run) -> tuple[str, ...]:
    try:
        env = make_env(str(run.config["env"]), 1, **run.config["env_options"])
    except RedlineError:  # the package that brought this world is gone
        return ()
    return tuple(getattr(env, "action_names", ()))
