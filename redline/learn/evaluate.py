"""Scoring: fresh episodes of a policy, in any env. Worlds that are scored in their own way build on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from redline.compiled.rng import actor_seed
from redline.engines import ENGINES, EngineSetup
from redline.engines.spec import Spec
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.policy import Policy
from redline.learn.restoring import refusing
from redline.learn.train import below, load_weights, make_policy
from redline.learn.trust import stored_config
from redline.processes import ends_in_time
from redline.rollout import Acting, remembering
from redline.runs import BEST, SCORES, SEARCH_STATE
from redline.timing.progress import tell
from redline.worlds.registry import make_env, world_of
from redline.worlds.world import Answer, Command, Say, World

MOST_ENVS = 64  # episodes played side by side in envs that step one by one


@dataclass(frozen=True)
class Score:
    """How a policy did over a number of episodes."""

    episodes: int
    mean: float
    stderr: float
    std: float


@dataclass(frozen=True)
class Trained:
    """A policy read from a run, and what it was trained on."""

    policy: Policy
    config: TrainConfig
    path: Path
    step: int
    decided: bool = False
    """Whether it was made to play its likeliest actions: the result of a preset."""


@dataclass(frozen=True)
class Subject:
    """Who is to be scored, in which env: a trained policy, or one of the world's own players, by name."""

    env: str
    env_options: dict[str, Any]
    seed: int
    trained: Trained | None = None
    player: str | None = None
    name: str = ""
    """What a trained policy is called, where it has a name."""

    @property
    def about(self) -> dict[str, Any]:
        """Who it is, as plain data."""
        if self.trained is None:
            return {"policy": self.player} if self.player else {}
        return {
            "policy": self.name or str(self.trained.path),
            "step": self.trained.step,
            "env": self.trained.config.env,
        }


def score(returns: np.ndarray) -> Score:
    """Mean and standard error of episode returns."""
    std = float(returns.std(ddof=1)) if len(returns) > 1 else float("nan")
    return Score(len(returns), float(returns.mean()), std / len(returns) ** 0.5, std)


def load_policy(path: Path, trust: bool = False) -> Trained:
    """The policy of a run (its newest checkpoint) or of one checkpoint.

    One that this user has not trained is refused if its config names code, unless `trust` says that this is fine.
    """
    if (path / SEARCH_STATE).exists():
        raise RedlineError(f"{path} is a workflow search. Its best policy is {path / BEST}, once the search is done.")
    found = checkpoint.load(checkpoint.resolve(path))
    config = stored_config(found.values.get("config"), found.path, trust)
    encoded = {"encoded": True} if world_of(config.env).compiled else {}
    env = make_env(config.env, 1, **config.env_options, **encoded)
    try:
        policy = make_policy(env, config, seed=0)
    finally:
        ends_in_time(env.close)
    with refusing(str(found.path)):
        load_weights(policy, below(found.arrays, "policy"))
    return Trained(policy, config, found.path, found.step, decided=found.values.get("preset") is not None)


def play(env: VectorEnv, policy: Acting, episodes: int, seed: int) -> np.ndarray:
    """Returns of `episodes` episodes, float64. Every env plays the same number, so short episodes are not favoured."""
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    obs, infos = env.reset(seed=seed)
    memory = remembering(policy)
    masks, running, returns = infos.get("action_mask"), np.zeros(env.num_envs), []
    step = 0
    while quota.any():
        tell(episodes - int(quota.sum()), episodes)
        if step % 1000 == 0:
            policy.begin(1000)
        obs, rewards, terminated, truncated, infos = env.step(policy.act(obs, masks).for_envs)
        masks, running, step = infos.get("action_mask"), running + rewards, step + 1
        ended = terminated | truncated
        if ended.any():
            if memory is not None:
                memory.forget(ended)
            counted = ended & (quota > 0) & ~infos.get("lost", np.False_)
            returns.append(running[counted])
            quota[counted] -= 1
            running[ended] = 0.0
    return np.round(np.concatenate(returns), 9)


def evaluate_env(trained: Trained, episodes: int, seed: int, deterministic: bool) -> np.ndarray:
    """Episode returns of a policy in the env it was trained on, played where it was trained: here, or in workers."""
    env = _make_envs(trained.config, min(episodes, MOST_ENVS), seed)
    try:
        return play(env, Actor(trained.policy, env.num_envs, actor_seed(seed), False, deterministic), episodes, seed)
    finally:
        env.close()


def _make_envs(config: TrainConfig, num_envs: int, seed: int) -> VectorEnv:
    """Envs as a config has them, of which actions are counted from 0; a vector env that was given has its own number."""
    spec = Spec.of(config.env, config.env_options)
    workers = config.engine in ENGINES and ENGINES[config.engine].has_workers
    step_together = ENGINES["shared" if workers else "vector"].step_together
    assert step_together is not None
    given = spec.vector
    return step_together(EngineSetup(spec, given.num_envs if given else num_envs, seed, config.collecting))


# Envs whose worlds have no way of scoring of their own


@dataclass(frozen=True)
class ReturnOptions:
    """How many episodes to play, and how."""

    episodes: int = 1000
    """Episodes to play."""
    deterministic: bool = False
    """Also play with the likeliest actions instead of drawn ones, beside the other; the score is theirs then."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if not 1 <= self.episodes <= 10**9:
            raise RedlineError(f"--episodes {self.episodes} cannot be scored. Try --episodes 1000.")


def score_returns(subject: Subject, options: ReturnOptions, say: Say) -> Answer:
    """The mean return of a policy."""
    if subject.trained is None:
        raise RedlineError(f"{subject.env} has no players of its own. Pass the folder of a run on it.")
    ways = {"drawn": False, "likeliest": True} if options.deterministic else {"drawn": False}
    found = {
        way: score(evaluate_env(subject.trained, options.episodes, subject.seed, deterministic))
        for way, deterministic in ways.items()
    }
    rows = [{"actions": way, **asdict(each)} for way, each in found.items()]
    lines = [
        f"{subject.env}, {way} actions: {each.mean:.2f} ± {each.stderr:.2f} over {each.episodes:,} episodes"
        for way, each in found.items()
    ]
    last = list(found.values())[-1]
    return Answer({**subject.about, **asdict(last), "scores": rows}, lines)


SCORE_RETURNS = Command(ReturnOptions, score_returns)


def scoring_of(world: World) -> Command:
    """How a world scores policies: in its own way, or by the mean return of fresh episodes."""
    return world.command("score") or SCORE_RETURNS


def grade_returns(trained: Trained, episodes: int, seed: int) -> Answer:
    """The score at the end of training: the mean return of fresh episodes."""
    return graded(score(evaluate_env(trained, episodes, seed, False)), {})


def graded(found: Score, more: dict[str, Any], length: int | None = None) -> Answer:
    """A score at the end of training; `more` tells the setting, `length` the steps of an episode where all are alike."""
    facts = {"mean": found.mean, "stderr": found.stderr, "eval_episodes": found.episodes}
    of_length = "" if length is None else f" of {length} steps"
    line = (
        f"Score: [bold]{found.mean:.2f} ± {found.stderr:.2f}[/bold] "
        f"(mean return of {found.episodes:,} fresh episodes{of_length} ± standard error)"
    )
    files = {SCORES: {"scores": [{**more, **asdict(found)}]}}
    return Answer(facts if length is None else {"eval_length": length, **facts}, [line], files=files)
