"""Episodes of trained policies and of simple players, recorded to be watched."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from redline.compiled.rng import actor_seed
from redline.errors import RedlineError, told_by
from redline.learn.evaluate import Trained
from redline.learn.team_policy import TeamPolicy
from redline.learn.team_watching import TeamPolicyPlayer, watch_team
from redline.learn.watching import MOST_STEPS, PolicyPlayer, WatchedEpisode, watch
from redline.processes import ends_in_time
from redline.report.film import Play, play_of
from redline.runs import CHECKPOINTS
from redline.worlds.batch import encoding_of
from redline.worlds.encoding import Encoding
from redline.worlds.naming import with_query
from redline.worlds.registry import make_env, make_single, world_of
from redline.worlds.team import TeamEnv

PICTURES = "rgb_array"


def watch_trained(
    trained: Trained,
    seed: int,
    deterministic: bool = False,
    env: str | None = None,
    who: str = "",
    changed: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Play, WatchedEpisode]:
    """An episode of a trained policy, in its own env or in another that has the same observations and actions.

    `who` is what to call it, where that is not the name of its run; `changed` are options of the env that are to differ.
    """
    config = trained.config
    name, options = (config.env, {**config.env_options, **changed}) if env is None else with_query(env, changed)
    if isinstance(trained.policy, TeamPolicy):
        return _watch_team(trained, trained.policy, name, options, seed, deterministic, who or name_of(trained))
    play, made, unseen = _stage(name, options, trained)
    try:
        player = PolicyPlayer(trained.policy, seed, deterministic)
        found = watch(made, name, player, seed, who=who or name_of(trained), note=play.note, options=options)
        return play, replace(found, unseen=unseen)
    finally:
        ends_in_time(made.close)


def watch_player(
    env: str, player: str, seed: int, changed: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Play, WatchedEpisode]:
    """An episode of one of a world's simple players; `changed` are options of the env that are to differ."""
    name, options = with_query(env, changed)
    team = world_of(name).agents
    made: Any
    play, made = _team_stage(name, options, encoded=False) if team else _stage(name, options, None)[:2]
    try:
        if play.player is None:
            raise RedlineError(
                f"{name} has no players of its own. Pass the folder of a run on it: redline play runs/NAME"
            )
        chosen: Any = play.player(player, env, seed, made)
        show: Any = watch_team if team else watch
        return play, show(made, name, chosen, seed, who=player, note=play.note, options=options)
    finally:
        ends_in_time(made.close)


def watch_several(trained: Trained, most: int, seconds: float, seed: int) -> tuple[Play, list[WatchedEpisode]]:
    """Up to `most` episodes, seeded one after the other, as many as end within a time; one at least."""
    began = time.monotonic()
    episodes: list[WatchedEpisode] = []
    if isinstance(trained.policy, TeamPolicy):
        play, episode = watch_trained(trained, seed)
        return play, [episode]
    play, made, _ = _stage(trained.config.env, trained.config.env_options, trained, pictures=False)
    compiled = world_of(trained.config.env).compiled  # which may have to be done first, and is quick after that
    until = math.inf if compiled else began + 3 * seconds
    try:
        while len(episodes) < most and (not episodes or time.monotonic() - began < seconds):
            player = PolicyPlayer(trained.policy, seed + len(episodes))
            episodes.append(
                watch(
                    made, trained.config.env, player, seed + len(episodes),
                    who=name_of(trained), note=play.note, options=trained.config.env_options, until=until,
                )
            )  # fmt: skip
    finally:
        ends_in_time(made.close)
    return play, episodes


def _watch_team(
    trained: Trained, policy: TeamPolicy, name: str, options: dict[str, Any], seed: int, deterministic: bool, who: str
) -> tuple[Play, WatchedEpisode]:
    play, env = _team_stage(name, options, encoded=True)
    for group, own in zip(policy.groups, policy.policies, strict=True):
        _require_same(own.encoding, env.agent_encoding(env.agents[group.members[0]]), name, trained.config.env)
    player = TeamPolicyPlayer(policy, actor_seed(seed), MOST_STEPS, env.idle, deterministic)
    return play, watch_team(env, name, player, seed, who=who, note=play.note, options=options)


def _team_stage(name: str, options: dict[str, Any], encoded: bool) -> tuple[Play, TeamEnv]:
    """How the env's world shows episodes, and an env of one for a team."""
    env = make_env(name, 1, encoded=encoded, **options)
    assert isinstance(env, TeamEnv)
    return play_of(world_of(name)), env


def name_of(trained: Trained) -> str:
    """The name of the run that a policy comes from."""
    path = trained.path.absolute()
    return path.parent.parent.name if path.parent.name == CHECKPOINTS else path.name


def _stage(
    name: str, options: dict[str, Any], trained: Trained | None, pictures: bool = True
) -> tuple[Play, gym.Env, str]:
    """How the env's world shows episodes, and an env to play one in: one that makes pictures of itself, if it can.

    The third is why it does not, though it says that it can.
    """
    world = world_of(name)
    if world.agents:
        raise RedlineError(f"{name} is played by a team of {len(world.agents)}, and this policy plays for one agent.")
    encoded = {"encoded": True} if world.compiled and trained is not None else {}
    made = make_single(name, **options, **encoded)
    if trained is not None:
        _require_fit(trained, made, name)
    if pictures and not world.compiled and PICTURES in made.metadata.get("render_modes", ()):
        try:
            drawn = make_single(name, **{**options, "render_mode": PICTURES})
            drawn.reset(seed=0)
            drawn.render()
        except Exception as error:  # whatever a picture needs and does not find: the episode goes on without
            why = told_by(error)
            return play_of(world), made, f"There are no pictures, because {name} could not draw itself ({why})."
        ends_in_time(made.close)
        made = drawn
    return play_of(world), made, ""


def _require_fit(trained: Trained, env: gym.Env, name: str) -> None:
    _require_same(trained.policy.encoding, encoding_of(env, env.observation_space), name, trained.config.env)


def _require_same(wanted: Encoding, found: Encoding, name: str, trained_in: str) -> None:
    if (found.shape, found.dtype, found.size) != (wanted.shape, wanted.dtype, wanted.size):
        raise RedlineError(
            f"{name} shows {found.size} numbers; the policy was trained on {wanted.size}, in {trained_in}. "
            "Name an env with the same options."
        )
