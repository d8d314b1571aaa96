"""`redline eval`: score a policy on the official protocol."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.console import out, print_json
from redline.cli.eval_petri import Nets
from redline.cli.options import Output, parse
from redline.errors import RedlineError, unknown
from redline.learn.config import at_least
from redline.sims.cage2.scenario import GREEN_AGENTS, RED_AGENTS, RULES

_SHORT = {"B_lineAgent": "B_line", "RedMeanderAgent": "Meander", "SleepAgent": "Sleep"}


@dataclass(frozen=True)
class Eval:
    """Play fresh episodes with a trained policy (or a baseline) and print means and standard errors."""

    target: tyro.conf.Positional[str]
    """A run folder, one of its checkpoints, a baseline (see --policy), or a timed net, whose rules are then scored, e.g.
    petri:jobshop/ft06. With --policy: the env, cage2 or a timed net."""
    policy: str | None = None
    """A baseline to score: sleep, random, react-restore, or greedy:ORDER, which restores by the true state in that order.
    On timed nets a rule: insertion, SPT, MWR, MOR or FIFO."""
    episodes: int = 1000
    """Episodes in each setting; the official protocol plays 1,000."""
    lengths: tuple[int, ...] = (30, 50, 100)
    """Episode lengths; the official ones are 30, 50 and 100."""
    red_agent: str = "all"
    """Red agents to face, separated by commas, or all."""
    rules: str = "all"
    """Rule sets to play under: final, leaderboard, or all."""
    green_agent: str = "SleepAgent"
    """Green agent: SleepAgent, as the protocol has it, or GreenAgent."""
    deterministic: bool = False
    """Always take the likeliest action instead of drawing one."""
    seed: int = 0
    """Seed of the episodes."""
    nets: Annotated[Nets, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Nets)
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        at_least(0, seed=self.seed)
        if self.episodes < 1:
            raise RedlineError(f"--episodes {self.episodes} cannot be scored. Try --episodes 1000.")
        if not self.lengths or min(self.lengths) < 1:
            raise RedlineError(
                f"--lengths {','.join(map(str, self.lengths))} cannot be played. Try --lengths 30,50,100."
            )


def run(arguments: list[str]) -> int:
    """Parse, play, print."""
    command = parse("eval", Eval, arguments)
    command = dataclasses.replace(command, lengths=tuple(dict.fromkeys(command.lengths)))
    agents = _chosen("red agent", command.red_agent, RED_AGENTS)
    if command.green_agent not in GREEN_AGENTS:
        raise unknown("green agent", command.green_agent, GREEN_AGENTS)
    rule_sets = _chosen("rule set", command.rules, RULES)
    if command.target.startswith("petri:"):
        from redline.cli.eval_petri import eval_net

        _refuse_protocol(command, command.target)
        return eval_net(command.target, command.policy, command.nets, command.seed, command.output)
    from redline.baselines import BASELINES, GREEDY, is_baseline
    from redline.evaluate import as_json, evaluate_cage2, load_policy, scenario_of
    from redline.sims.cage2.scenario import Scenario, parse_order

    policy: Any
    about: dict[str, Any]
    name = command.target if command.policy is None else command.policy
    if command.policy is not None and command.target != "cage2":
        raise RedlineError(
            f"--policy {command.policy} is scored in an env, not in {command.target}. Try: redline eval cage2 …"
        )
    if command.policy is not None and not is_baseline(name):
        raise unknown("policy", name, BASELINES)
    if is_baseline(name):
        _refuse_nets(command, "cage2")
        policy, scenario, about = name, Scenario(), {"policy": name}
        if name.startswith(GREEDY):
            parse_order(name.removeprefix(GREEDY))
    else:
        if not Path(name).exists():
            raise RedlineError(
                f"There is no run or checkpoint {name}, and no baseline of that name. "
                f"Pass a run folder, or one of: {', '.join(BASELINES)}."
            )
        trained = load_policy(Path(name))
        about = {"policy": str(trained.path), "step": trained.step, "env": trained.config.env}
        if trained.config.env.startswith("petri:"):
            from redline.cli.eval_petri import eval_run

            _refuse_protocol(command, trained.config.env)
            return eval_run(trained, about, command.nets, command.seed, command.output)
        _refuse_nets(command, trained.config.env)
        if trained.config.env != "cage2":
            return _eval_other(trained, command, about)
        policy, scenario = trained.policy, scenario_of(trained.config)
    scenario = dataclasses.replace(scenario, green_agent=command.green_agent)
    scores = evaluate_cage2(
        policy, scenario, episodes=command.episodes, lengths=command.lengths, red_agents=agents, rule_sets=rule_sets,
        seed=command.seed, deterministic=command.deterministic,
    )  # fmt: skip
    if command.output.json:
        print_json({**about, "scores": as_json(scores), **_totals(scores)})
    else:
        _print(name, scores, command, agents, rule_sets, scenario)
    return 0


def _chosen(what: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if given == "all":
        return known
    names = tuple(name.strip() for name in given.split(","))
    for name in names:
        if name not in known:
            raise unknown(what, name, [*known, "all"])
    return names


def _totals(scores: list[Any]) -> dict[str, Any]:
    """Mean of all settings with its standard error, for those who want one number; and the official sum per rule set."""
    mean = sum(s.mean for s in scores) / len(scores)
    stderr = sum(s.stderr**2 for s in scores) ** 0.5 / len(scores)
    rule_sets = dict.fromkeys(s.rules for s in scores)
    return {
        "mean": mean,
        "stderr": stderr,
        "total": {r: sum(s.mean for s in scores if s.rules == r) for r in rule_sets},
    }


def _print(
    name: str, scores: list[Any], command: Eval, agents: tuple[str, ...], rule_sets: tuple[str, ...], scenario: Any
) -> None:
    from rich import box
    from rich.table import Table

    from redline.evaluate import PUBLISHED

    found = {(s.rules, s.red_agent, s.length): s for s in scores}
    settings = [(agent, length) for length in command.lengths for agent in agents]
    published = {team: each for team, each in PUBLISHED.items() if any(setting in each for setting in settings)}
    out.print(f"{name}: {command.episodes:,} episodes a cell, mean return ± standard error", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Red, steps", no_wrap=True)
    for rules in rule_sets:
        table.add_column(rules, justify="right", style="bold")
    for team in published:
        table.add_column(team, justify="right", style="dim")
    for agent, length in settings:
        ours = [
            f"{found[rules, agent, length].mean:.2f} ±{found[rules, agent, length].stderr:.2f}" for rules in rule_sets
        ]
        theirs = [f"{each[agent, length]:.2f}" if (agent, length) in each else "–" for each in published.values()]
        table.add_row(f"{_SHORT[agent]} {length}", *ours, *theirs)
    table.add_section()
    sums = [sum(found[rules, agent, length].mean for agent, length in settings) for rules in rule_sets]
    sums += [sum(each.get(setting, 0.0) for setting in settings) for each in published.values()]
    table.add_row("sum", *(f"{value:.2f}" for value in sums))
    out.print(table)
    out.print(
        "Columns final and leaderboard: our score under each rule set. Cardiff, Keeping it RL (KIRL) and Mindrake: the "
        "published leaderboard of 12 August 2022, to be compared with column leaderboard only. "
        f"Ours: {_describe(scenario)}.",
        soft_wrap=True,
    )


def _describe(scenario: Any) -> str:
    """What the policy sees and does, in words."""
    depth = f" of {scenario.history} tables" if scenario.observation == "history" else ""
    obeys = f", obeying {scenario.workflow.replace(',', ' > ')}" if scenario.workflow else ""
    green = "" if scenario.green_agent == "SleepAgent" else f", {scenario.green_agent}"
    return f"observation {scenario.observation}{depth}, wrapper {scenario.wrapper}, actions {scenario.actions}{green}{obeys}"


_PROTOCOL = ("lengths", "red_agent", "rules", "green_agent")


def _refuse_protocol(command: Eval, env: str, *options: str) -> None:
    """Say so when an option was given that means nothing for this env."""
    for name in options or (*_PROTOCOL, "episodes", "deterministic"):
        if getattr(command, name) != Eval.__dataclass_fields__[name].default:
            hint = "Try --samples 64." if name == "episodes" else "Leave it out."
            raise RedlineError(f"--{name.replace('_', '-')} is not for {env}. {hint}")


def _refuse_nets(command: Eval, env: str) -> None:
    """Likewise for options of timed nets."""
    for field in dataclasses.fields(Nets):
        if getattr(command.nets, field.name) != field.default:
            raise RedlineError(f"--{field.name.replace('_', '-')} is for timed nets, not for {env}. Leave it out.")


def _eval_other(trained: Any, command: Eval, about: dict[str, Any]) -> int:
    from redline.evaluate import evaluate_env, score

    _refuse_protocol(command, trained.config.env, *_PROTOCOL)
    found = score(evaluate_env(trained, command.episodes, command.seed, command.deterministic), "", "", 0)
    if command.output.json:
        print_json({**about, "episodes": found.episodes, "mean": found.mean, "stderr": found.stderr, "std": found.std})
    else:
        out.print(
            f"{trained.config.env}: {found.mean:.2f} ± {found.stderr:.2f} over {found.episodes:,} episodes",
            soft_wrap=True,
        )
    return 0
