"""The official protocol of CAGE-4: the sum of the first 498 rewards of an episode, over 100 episodes and more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table

from redline.compiled.rng import actor_seed
from redline.errors import RedlineError
from redline.learn.evaluate import Score, Subject, Trained, graded, score
from redline.learn.team_policy import TeamActor, TeamPolicy
from redline.worlds.batch import Infos
from redline.worlds.cage4.baselines import BASELINES, Team, make_baseline, options_for
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.rules.scenario import EnterpriseOptions
from redline.worlds.world import Answer, Command, Say

BATCH = 256  # episodes played side by side
ORIGINAL = {"sleep": (-6780, 370), "random": (-5130, 250), "react": (-3390, 310), "repair": (-1220, 55)}
"""Mean and standard error of all rewards in the original, 16 to 18 episodes each, with its own agents."""
PUBLISHED = -193.68
"""The best published score, of PPO on a graph network after 50,000 episodes."""


@dataclass(frozen=True)
class TeamProtocol:
    """How a team is scored."""

    episodes: int = 100
    """Episodes to play; the official protocol plays 100."""
    deterministic: bool = False
    """Always take the likeliest action of a trained team instead of drawing one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if not 1 <= self.episodes <= 10**9:
            raise RedlineError(f"--episodes {self.episodes} cannot be scored. Try --episodes 100.")


@dataclass(frozen=True)
class TeamScore:
    """How a team did: by the official protocol, which leaves the last reward out, and with all rewards."""

    policy: str
    official: Score
    all_rewards: Score


def score_team(
    name: str,
    team: Team | TeamPolicy,
    options: EnterpriseOptions,
    episodes: int,
    seed: int,
    deterministic: bool = False,
) -> TeamScore:
    """How a team does over a number of episodes; episode `i` is that of seed `seed + i`."""
    official, returns = [], []
    for start in range(0, episodes, BATCH):
        env = Cage4VectorEnv(
            min(BATCH, episodes - start), options, autoreset=False, encoded=_takes_stored(team, options)
        )
        act = _acting(team, env, actor_seed(seed + start), deterministic)
        obs, infos = env.reset(seed=seed + start)
        for _ in range(options.steps - 1):
            obs, _, _, _, infos = env.step(act(obs, infos))
        official.append(infos["episode_metrics"]["official"])
        returns.append(infos["episode"]["r"])
    return TeamScore(name, score(np.concatenate(official)), score(np.concatenate(returns)))


def _acting(
    team: Team | TeamPolicy, env: Cage4VectorEnv, seed: int, deterministic: bool
) -> Callable[[np.ndarray, Infos], np.ndarray]:
    """What a team does in envs: a trained one sleeps while an action of its own is under way."""
    if not isinstance(team, TeamPolicy):
        return lambda obs, infos: team(obs, infos["action_mask"], infos["acting"])
    actor = TeamActor(team, env.num_envs, seed, False, deterministic)
    actor.begin(env.options.steps)
    return lambda obs, infos: actor.act(obs, infos["action_mask"], infos["acting"], env.idle)[0]


def _takes_stored(team: Team | TeamPolicy, options: EnterpriseOptions) -> bool:
    """Whether a team sees observations as they are stored."""
    return isinstance(team, TeamPolicy) or options.face == "memory"


def grade(trained: Trained, episodes: int, seed: int) -> Answer:
    """The score at the end of training, by the official protocol."""
    assert isinstance(trained.policy, TeamPolicy)
    options = EnterpriseOptions(**trained.config.env_options)
    found = score_team("trained", trained.policy, options, episodes, seed).official
    return graded(found, {"protocol": "official"}, options.steps - 2)


def run(subject: Subject, options: TeamProtocol, say: Say) -> Answer:
    """Score the player that is named, or all simple ones."""
    settings = EnterpriseOptions(**subject.env_options)
    teams: list[tuple[str, Team | TeamPolicy, EnterpriseOptions]]
    if subject.trained is not None and isinstance(subject.trained.policy, TeamPolicy):
        teams = [(str(subject.trained.path), subject.trained.policy, settings)]
    else:
        names = BASELINES if subject.player is None else (subject.player,)
        teams = [(name, make_baseline(name, subject.seed), options_for(name, settings)) for name in names]
    scores = [
        score_team(name, team, own, options.episodes, subject.seed, options.deterministic) for name, team, own in teams
    ]
    rows = [_facts(each) for each in scores]
    first = rows[0] if len(rows) == 1 else {}
    title = f"{subject.env}: {options.episodes:,} episodes a row, mean ± standard error"
    lines: list[RenderableType] = [title, _table(scores, settings), _note(settings)]
    return Answer({**subject.about, "scores": rows, **first}, lines)


SCORE = Command(TeamProtocol, run)


def _facts(found: TeamScore) -> dict[str, Any]:
    return {"policy": found.policy, **asdict(found.official), "all_rewards": asdict(found.all_rewards)}


def _table(scores: list[TeamScore], options: EnterpriseOptions) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("team", no_wrap=True)
    table.add_column("official", justify="right", style="bold")
    table.add_column("all rewards", justify="right")
    table.add_column("original", justify="right", style="dim")
    for each in scores:
        theirs = ORIGINAL.get(each.policy) if replace(options, face="flat") == EnterpriseOptions() else None
        original = "–" if theirs is None else f"{theirs[0]:,} ±{theirs[1]}"
        table.add_row(each.policy, _text(each.official), _text(each.all_rewards), original)
    return table


def _text(found: Score) -> str:
    return f"{found.mean:,.1f} ±{found.stderr:.1f}"


def _note(options: EnterpriseOptions) -> str:
    return (
        f"Official: the sum of the first {options.steps - 2} rewards. Original: the same teams there, 16 to 18 "
        f"episodes, all rewards. For comparison: PPO on a graph network, as published, {PUBLISHED:g} (official)."
    )
