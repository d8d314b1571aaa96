"""The official protocol of CAGE-2: scores by Red agent, episode length and rule set, beside the published board."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table

from redline.compiled.rng import actor_seed
from redline.errors import RedlineError, unknown
from redline.learn.acting import Actor
from redline.learn.evaluate import Score, Subject, Trained, graded, play, score
from redline.learn.policy import Policy
from redline.runs import SCORES
from redline.worlds.cage2.baselines import BASELINES, GREEDY, is_baseline, make_baseline
from redline.worlds.cage2.env import Cage2VectorEnv
from redline.worlds.cage2.rules.scenario import GREEN_AGENTS, RED_AGENTS, RULES, Scenario, parse_order
from redline.worlds.world import Answer, Command, Say

LENGTHS = (30, 50, 100)
"""Episode lengths of the official protocol."""
PLAIN: dict[str, Any] = {"alignment_lambda": 0.0, "tidy": 0.0, "restore_rebate": 0.0, "accidents": 0.0}
"""Scores are the environment's own reward: neither obedience nor tidiness counts, and nothing comes for nothing."""
BATCH = 1000  # episodes played side by side
_SHORT = {"B_lineAgent": "B_line", "RedMeanderAgent": "Meander", "SleepAgent": "Sleep"}

PUBLISHED: dict[str, dict[tuple[str, int], float]] = {
    name: {
        (agent, length): score
        for (length, agent), score in zip(
            [(length, agent) for length in LENGTHS for agent in RED_AGENTS[:2]], scores, strict=True
        )
    }
    for name, scores in {
        "Cardiff": (-3.47, -5.64, -6.41, -8.69, -13.76, -16.6),
        "KIRL-ens": (-3.48, -6.47, -5.85, -10.33, -11.39, -19.38),
        "Mindrake": (-3.53, -6.76, -6.2, -10.13, -12.78, -17.65),
        "KIRL-PPO": (-4.76, -8.03, -8.13, -12.91, -17.19, -22.94),
    }.items()
}
"""The leaderboard of 12 August 2022: 1,000 episodes an entry, rule set `leaderboard`.

Cardiff: CardiffUni (PPO and greedy decoys). KIRL: Keeping it RL (an ensemble of ensembles; plain PPO). Mindrake:
hierarchical PPO.
"""


@dataclass(frozen=True)
class SettingScore:
    """How a policy did in one setting."""

    rules: str
    red_agent: str
    length: int
    episodes: int
    mean: float
    stderr: float
    std: float


@dataclass(frozen=True)
class Protocol:
    """Settings to score in; each is played with every other."""

    episodes: int = 1000
    """Episodes in each setting; the official protocol plays 1,000."""
    lengths: tuple[int, ...] = LENGTHS
    """Episode lengths; the official ones are 30, 50 and 100."""
    red_agent: str = "all"
    """Red agents to face, separated by commas, or all."""
    rules: str = "all"
    """Rule sets to play under: final, leaderboard, or all."""
    green_agent: str = "SleepAgent"
    """Green agent: SleepAgent, as the protocol has it, or GreenAgent."""
    deterministic: bool = False
    """Always take the likeliest action instead of drawing one; the result of a preset always does."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if not 1 <= self.episodes <= 10**9:
            raise RedlineError(f"--episodes {self.episodes} cannot be scored. Try --episodes 1000.")
        if not self.lengths or min(self.lengths) < 1:
            raise RedlineError(
                f"--lengths {','.join(map(str, self.lengths))} cannot be played. Try --lengths 30,50,100."
            )
        if self.green_agent not in GREEN_AGENTS:
            raise unknown("green agent", self.green_agent, GREEN_AGENTS)
        chosen("red agent", self.red_agent, RED_AGENTS)
        chosen("rule set", self.rules, RULES)


def chosen(what: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names that an option lists, or all of them."""
    if given == "all":
        return known
    names = tuple(name.strip() for name in given.split(","))
    for name in names:
        if name not in known:
            raise unknown(what, name, [*known, "all"])
    return names


def evaluate_cage2(
    player: Policy | str,
    scenario: Scenario,
    *,
    episodes: int = 1000,
    lengths: Iterable[int] = LENGTHS,
    red_agents: Iterable[str] = RED_AGENTS,
    rule_sets: Iterable[str] = RULES,
    seed: int = 0,
    deterministic: bool = False,
) -> list[SettingScore]:
    """Scores of a policy (or of the baseline of that name) in every setting, as the challenge scores them."""
    scores = []
    for rules in rule_sets:
        for length in lengths:
            for agent in red_agents:
                setting = dataclasses.replace(scenario, rules=rules, max_steps=length, red_agent=agent, **PLAIN)
                found = score(_returns(player, setting, episodes, seed, deterministic))
                scores.append(SettingScore(rules, agent, length, **dataclasses.asdict(found)))
    return scores


def _returns(player: Policy | str, scenario: Scenario, episodes: int, seed: int, deterministic: bool) -> np.ndarray:
    num_envs = min(episodes, BATCH)
    if isinstance(player, str):
        plain = dataclasses.replace(scenario, observation="table", actions="all", workflow="")
        plain_env = Cage2VectorEnv(num_envs, plain)
        return play(plain_env, make_baseline(player, actor_seed(seed), plain_env), episodes, seed)
    env = Cage2VectorEnv(num_envs, scenario, encoded=True)
    return play(env, Actor(player, num_envs, actor_seed(seed), deterministic=deterministic), episodes, seed)


def grade(trained: Trained, episodes: int, seed: int) -> Answer:
    """The score at the end of training, in the setting that was trained on."""
    scenario = Scenario(**trained.config.env_options)
    found = evaluate_cage2(
        trained.policy, scenario, episodes=episodes, lengths=[scenario.max_steps or 100],
        red_agents=[scenario.red_agent], rule_sets=[scenario.rules], seed=seed,
    )[0]  # fmt: skip
    setting = {"rules": found.rules, "red_agent": found.red_agent, "length": found.length}
    return graded(Score(found.episodes, found.mean, found.stderr, found.std), setting, found.length)


def grade_protocol(trained: Trained, episodes: int, seed: int) -> Answer:
    """The whole protocol with the likeliest actions, under the rules that were trained on."""
    options = trained.config.env_options
    subject = Subject(trained.config.env, options, seed, trained)
    protocol = Protocol(episodes, rules=Scenario(**options).rules, deterministic=True)
    found = run(subject, protocol, lambda text: None)
    return Answer(
        {**found.data, "eval_episodes": episodes}, found.lines, files={SCORES: {"scores": found.data["scores"]}}
    )


def run(subject: Subject, options: Protocol, say: Say) -> Answer:
    """Play the protocol with a trained policy or a baseline."""
    player: Policy | str
    if subject.trained is not None:
        player, name = subject.trained.policy, subject.name or str(subject.trained.path)
        likeliest = options.deterministic or subject.trained.decided
    else:
        player = name = _required_baseline(subject)
        likeliest = options.deterministic
    lengths = tuple(dict.fromkeys(options.lengths))
    agents, rule_sets = chosen("red agent", options.red_agent, RED_AGENTS), chosen("rule set", options.rules, RULES)
    scenario = dataclasses.replace(Scenario(**subject.env_options), green_agent=options.green_agent)
    scores = evaluate_cage2(
        player, scenario, episodes=options.episodes, lengths=lengths, red_agents=agents, rule_sets=rule_sets,
        seed=subject.seed, deterministic=likeliest,
    )  # fmt: skip
    rows = [dataclasses.asdict(each) for each in scores]
    settings = [(agent, length) for length in lengths for agent in agents]
    how = "likeliest actions, " if likeliest else ""
    title = f"{name}: {how}{options.episodes:,} episodes a cell, mean return ± standard error"
    lines: list[RenderableType] = [title, _table(scores, settings, rule_sets), _note(scenario)]
    return Answer({**subject.about, "scores": rows, **_totals(scores)}, lines)


SCORE = Command(Protocol, run)


def _required_baseline(subject: Subject) -> str:
    name = subject.player
    if name is None:
        raise RedlineError(f"Nobody is named to play {subject.env}. Try: redline eval {subject.env} --policy sleep")
    if not is_baseline(name):
        raise unknown("policy", name, BASELINES)
    if name.startswith(GREEDY):
        parse_order(name.removeprefix(GREEDY))
    return name


def _totals(scores: Sequence[SettingScore]) -> dict[str, Any]:
    """Mean of all settings with its standard error, for those who want one number; and the official sum per rule set."""
    mean = sum(s.mean for s in scores) / len(scores)
    stderr = sum(s.stderr**2 for s in scores) ** 0.5 / len(scores)
    rule_sets = dict.fromkeys(s.rules for s in scores)
    return {
        "mean": mean,
        "stderr": stderr,
        "total": {r: sum(s.mean for s in scores if s.rules == r) for r in rule_sets},
    }


def _table(scores: Sequence[SettingScore], settings: list[tuple[str, int]], rule_sets: tuple[str, ...]) -> Table:
    found = {(s.rules, s.red_agent, s.length): s for s in scores}
    published = {team: each for team, each in PUBLISHED.items() if any(setting in each for setting in settings)}
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
    return table


def _note(scenario: Scenario) -> str:
    return (
        "Columns final and leaderboard: our score under each rule set. Cardiff, Keeping it RL (KIRL) and Mindrake: the "
        "published leaderboard of 12 August 2022, to be compared with column leaderboard only. "
        f"Ours: {_describe(scenario)}."
    )


def _describe(scenario: Scenario) -> str:
    """The policy's observation and actions, in words."""
    depth = f" of {scenario.history} tables" if scenario.observation == "history" else ""
    obeys = f", obeying {scenario.workflow.replace(',', ' > ')}" if scenario.workflow else ""
    green = "" if scenario.green_agent == "SleepAgent" else f", {scenario.green_agent}"
    return f"observation {scenario.observation}{depth}, wrapper {scenario.wrapper}, actions {scenario.actions}{green}{obeys}"
