"""The promises of a compiled world, one test each."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from redline.engines import Collecting, engines_to_try, make_engine
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.runs import CHECKPOINTS, REPORT
from redline.testing.scripted import Scripted, Step, columns
from redline.timing.stopwatch import Stopwatch
from redline.worlds.batch import BatchEnv, Infos
from redline.worlds.registry import make_env, make_single, world_of

SEED = 5
NUM_ENVS = 3


class _Parametrised(Protocol):
    """The part of pytest's `Metafunc` that is used here."""

    fixturenames: list[str]

    def parametrize(self, argnames: str, argvalues: Iterable[str]) -> None:
        """Run the test once for each value."""


class WorldContract:
    """Everything that Redline relies on in a compiled world. Inherit from it and name the envs to try."""

    names: tuple[str, ...] = ()
    """Names of envs, options behind them: each is tried. They are made by name, as workers make theirs."""
    trained: tuple[str, ...] | None = None
    """Those to try with all engines, to train and to score: the first, where nothing is said."""
    steps: int = 40
    """Steps to play: long enough for an episode to end now and then."""

    def pytest_generate_tests(self, metafunc: _Parametrised) -> None:
        """Tell pytest what to run each test with."""
        trained = self.names[:1] if self.trained is None else self.trained
        values = {"name": self.names, "trained_name": trained, "engine": engines_to_try(address=None)}
        for argument in metafunc.fixturenames:
            if argument in values:
                metafunc.parametrize(argument, values[argument])

    def make(self, name: str, num_envs: int = NUM_ENVS, **options: Any) -> BatchEnv:
        """A batch of envs of that name."""
        env = make_env(name, num_envs, **options)
        assert isinstance(env, BatchEnv), f"{name} is of no compiled world: its batch is a {type(env).__name__}."
        return env

    # Answers

    def test_answers_have_the_promised_shapes_and_types(self, name: str) -> None:
        """Spaces hold what is observed and allowed, whatever is played."""
        env = self.make(name)
        assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        obs, infos = env.reset(seed=SEED)
        for t in range(self.steps):
            assert obs in env.observation_space, f"{obs} is not in {env.observation_space}"
            assert all(row in env.single_observation_space for row in obs)
            _require_mask(env, infos)
            obs, rewards, terminated, truncated, infos = env.step(chosen(env, t))
            assert (rewards.shape, rewards.dtype) == ((NUM_ENVS,), np.float64)
            assert np.isfinite(rewards).all(), f"rewards {rewards} cannot be learned from"
            for flags in (terminated, truncated):
                assert (flags.shape, flags.dtype) == ((NUM_ENVS,), np.bool_)
            assert not (terminated & truncated).any(), "an episode ends in one way only"

    def test_an_answer_is_not_overwritten_by_the_next_one(self, name: str) -> None:
        """What was handed out belongs to whoever got it."""
        env = self.make(name)
        first, infos = env.reset(seed=SEED)
        answers = [(first, infos), *(env.step(chosen(env, t)) for t in range(self.steps))]
        assert_same([plain(answer) for answer in answers], self.played(self.make(name)))

    def test_an_ended_episode_begins_again_in_the_same_step(self, name: str) -> None:
        """Its last observation, return and length are told, and the next episode has begun."""
        env = self.make(name)
        env.reset(seed=SEED)
        returns, lengths, ends = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, int), 0
        for t in range(20 * self.steps):
            obs, rewards, terminated, truncated, infos = env.step(chosen(env, t))
            returns, lengths, ended = returns + rewards, lengths + 1, terminated | truncated
            assert ended.any() == ("final_obs" in infos) == ("episode" in infos)
            if ended.any():
                _require_told(infos, obs, ended, returns, lengths)
                returns[ended], lengths[ended], ends = 0, 0, ends + int(ended.sum())
            if ends >= NUM_ENVS:
                return
        raise AssertionError(f"only {ends} episodes of {name} ended in {20 * self.steps} steps: raise `steps`")

    # Seeds and neighbours

    def test_equal_seeds_play_equal_episodes(self, name: str) -> None:
        """In the same env again, in another, and however the seed is written."""
        env = self.make(name)
        first = self.played(env)
        assert_same(self.played(env), first)
        assert_same(self.played(env, seed=np.int64(SEED)), first)
        assert_same(self.played(self.make(name), seed=[SEED + i for i in range(NUM_ENVS)]), first)

    def test_an_env_does_not_notice_its_neighbours(self, name: str) -> None:
        """Env i of seed s plays what env 0 of seed s + i plays alone."""
        crowd, alone = self.make(name), self.make(name, 1)
        crowd.reset(seed=SEED)
        alone.reset(seed=SEED + 2)
        for t in range(self.steps):
            actions = chosen(crowd, t)
            among, by_itself = crowd.step(actions), alone.step(actions[2:])
            for part, its in zip(among[:4], by_itself[:4], strict=True):
                assert_same(plain(part[2]), plain(its[0]))

    def test_a_reset_mask_leaves_the_other_envs_alone(self, name: str) -> None:
        """Only the envs that are named begin anew, with their own seeds."""
        env, twin, alone = self.make(name), self.make(name), self.make(name, 1)
        for each in (env, twin):
            self.played(each, num_steps=3)
        mask = np.array([False, True, False])
        obs, _ = env.reset(seed=[11, 12, 13], options={"reset_mask": mask})
        before, _ = twin.reset(options={"reset_mask": np.zeros(NUM_ENVS, np.bool_)})
        assert (obs[~mask] == before[~mask]).all()
        assert (obs[1] == alone.reset(seed=12)[0][0]).all()
        for t in range(self.steps):
            actions = chosen(env, t)
            its = alone.step(actions[1:2])
            actions_of_others = np.where(mask, chosen(twin, t), actions)
            for part, others, own in zip(env.step(actions)[:4], twin.step(actions_of_others)[:4], its[:4], strict=True):
                assert (part[~mask] == others[~mask]).all()
                assert (part[1] == own[0]).all()

    # Snapshots

    def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened(self, name: str) -> None:
        """In the same env and in a new one, bit for bit."""
        env = self.make(name)
        obs = self.played(env, num_steps=self.steps // 2)[-1][0]
        snapshot = env.snapshot()
        rest = self.going_on(env)
        for other in (env, self.make(name)):
            assert_same(plain(other.restore(snapshot)), obs)
            assert_same(self.going_on(other), rest)

    def test_a_snapshot_that_does_not_fit_is_refused(self, name: str) -> None:
        """One of more envs, or with a part missing."""
        env = self.make(name)
        env.reset(seed=SEED)
        snapshot = env.snapshot()
        for part in snapshot:
            broken = {other: array for other, array in snapshot.items() if other != part}
            refusal(lambda broken=broken: env.restore(broken))  # type: ignore[misc]
        refusal(lambda: self.make(name, NUM_ENVS + 1).restore(snapshot))

    # One set of rules, several faces

    def test_compiled_and_interpreted_rules_play_the_same(self, name: str) -> None:
        """Bit for bit."""
        assert_same(self.played(self.make(name, turbo=False)), self.played(self.make(name)))

    def test_encoded_observations_decode_to_those_that_are_handed_out(self, name: str) -> None:
        """What is stored says as much as what is seen."""
        plain_env, encoded = self.make(name), self.make(name, encoded=True)
        (obs, _), (stored, _) = plain_env.reset(seed=SEED), encoded.reset(seed=SEED)
        for t in range(self.steps):
            assert stored in encoded.observation_space
            assert (encoded.encoding.decode(stored) == obs.reshape(len(obs), -1)).all()
            actions = chosen(plain_env, t)
            obs, *results, infos = plain_env.step(actions)
            stored, *same_results, encoded_infos = encoded.step(actions)
            assert_same(plain(tuple(results)), plain(tuple(same_results)))
            if "final_obs" in infos:
                ended, last = infos["_final_obs"], encoded.encoding.decode(encoded_infos["final_obs"])
                assert (last[ended] == infos["final_obs"].reshape(len(obs), -1)[ended]).all()

    def test_the_single_env_plays_what_the_batch_plays(self, name: str) -> None:
        """Through several episodes: without a seed its random stream goes on, as it does in the batch."""
        batch, single = self.make(name, 1), make_single(name)
        (all_obs, infos), (obs, info) = batch.reset(seed=SEED), single.reset(seed=SEED)
        for t in range(2 * self.steps):
            assert (all_obs[0] == obs).all()
            assert_same(plain(info.get("action_mask")), plain(infos.get("action_mask", [None])[0]))
            [action] = chosen(batch, t)
            all_obs, rewards, terminated, truncated, infos = batch.step(np.array([action]))
            obs, reward, is_terminated, is_truncated, info = single.step(action)
            assert (rewards[0], terminated[0], truncated[0]) == (reward, is_terminated, is_truncated)
            told = {key: float(values[0]) for key, values in infos.get("episode_metrics", {}).items()}
            assert info.get("episode_metrics", {}) == told
            if is_terminated or is_truncated:
                assert (infos["final_obs"][0] == obs).all()
                obs, info = single.reset()

    def test_gymnasium_finds_nothing_wrong_with_it(self, name: str) -> None:
        """Its own checker, kept to actions that are allowed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about wrappers, and spaces without bounds
            check_env(_Obedient(make_single(name)), skip_render_check=True)

    # What is refused

    def test_actions_that_do_not_fit_are_refused_and_change_nothing(self, name: str) -> None:
        """Of another shape or type, out of range, or forbidden by the mask."""
        env = self.make(name)
        env.reset(seed=SEED)
        before = env.snapshot()
        right = chosen(env, 0)
        wrong = [right.astype(float), right[:1], np.full(NUM_ENVS, env.num_actions), np.full(NUM_ENVS, -1)]
        for actions in (*wrong, *_forbidden(env, right)):
            refusal(lambda actions=actions: env.step(actions))  # type: ignore[misc]
        assert all((array == before[part]).all() for part, array in env.snapshot().items())

    def test_a_step_needs_a_reset(self, name: str) -> None:
        """There is no episode before."""
        assert "reset" in refusal(lambda: self.make(name).step(np.zeros(NUM_ENVS, np.int64)))

    def test_an_option_that_does_not_exist_is_refused(self, name: str) -> None:
        """In one line."""
        refusal(lambda: self.make(name, no_such_option=1))

    # Engines and training

    def test_every_engine_plays_the_same_episodes(self, trained_name: str, engine: str) -> None:
        """The same as the obvious one."""
        for life, expected in zip(
            lives(engine, trained_name, self.steps), lives("serial", trained_name, self.steps), strict=True
        ):
            shared = min(len(life), len(expected))
            assert shared >= self.steps
            assert life[:shared] == expected[:shared]

    def test_a_policy_is_trained_resumed_scored_and_reported(self, trained_name: str, tmp_path: Path) -> None:
        """By the commands. A run that is resumed ends as if it had not been stopped."""
        run = tmp_path / "run"
        small = ("--num-envs", "8", "--num-steps", "10", "--minibatches", "1", "--total-steps", "240")
        command("train", trained_name, *small, "--run-dir", run, "--eval-episodes", "4", "--checkpoint-seconds", "1e-9")
        shutil.copytree(run, tmp_path / "copy")
        oldest = min((tmp_path / "copy" / CHECKPOINTS).iterdir())
        command("train", "--resume", oldest, "--eval-episodes", "0")
        assert_same(_weights(tmp_path / "copy"), _weights(run))
        command("eval", run, *_few_episodes(trained_name))
        command("report", run)
        assert (run / REPORT).read_text().startswith("<!")

    def test_the_world_is_told_of(self, trained_name: str) -> None:
        """`redline envs` knows the name, and every option has a text."""
        for world in command("envs", trained_name).get("envs", ()):
            assert all(option["about"] for option in world["options"]), "write a text below each option"

    # How they play

    def played(self, env: BatchEnv, seed: Any = SEED, num_steps: int | None = None) -> list[Any]:
        """All that an env answers from a reset on, as plain values."""
        return [plain(env.reset(seed=seed)), *self.going_on(env, num_steps)]

    def going_on(self, env: BatchEnv, num_steps: int | None = None) -> list[Any]:
        """All that an env answers from now on."""
        return [plain(env.step(chosen(env, t))) for t in range(self.steps if num_steps is None else num_steps)]


class _Obedient(gym.Wrapper[np.ndarray, np.integer, np.ndarray, np.integer]):
    """Takes an allowed action where a forbidden one is asked for."""

    def step(self, action: np.integer) -> Any:
        mask = self.env.get_wrapper_attr("action_masks")()
        return self.env.step(action if mask[action] else np.int64(mask.argmax()))


def chosen(env: BatchEnv, t: int) -> np.ndarray:
    """An allowed action for each env: equal for equal masks, and mostly another in each step and env."""
    masks = env.action_masks()
    weights = np.random.default_rng(t).random(masks.shape)
    return np.argmax(np.where(masks, weights, -1.0), axis=1)


def plain(answer: Any) -> Any:
    """Nested lists and dicts, which compare with `==`. Rows of `final_obs` that no mask vouches for are left out."""
    if isinstance(answer, dict):
        kept = {key: value[answer["_final_obs"]] if key == "final_obs" else value for key, value in answer.items()}
        return {key: plain(value) for key, value in kept.items()}
    return [plain(part) for part in answer] if isinstance(answer, tuple) else np.asarray(answer).tolist()


def assert_same(got: Any, expected: Any, where: str = "") -> None:
    """Fail at the first place where two nested answers differ, and say which it is."""
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        for k, (mine, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(mine, other, f"{where}[{k}]")
    elif isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        for key in got:
            assert_same(got[key], expected[key], f"{where}[{key!r}]")
    elif got != expected:
        raise AssertionError(f"the answers differ at {where or 'once'}: {got}, and {expected}")


def refusal(call: Callable[[], object]) -> str:
    """The one line with which something is refused."""
    try:
        call()
    except RedlineError as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError("this should have been refused, with a RedlineError")


def command(*arguments: str | Path) -> dict[str, Any]:
    """What a command prints as JSON; it must not fail."""
    from redline.cli import main

    said, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        code = main([*map(str, arguments), "--json"])
    assert code == 0, f"redline {' '.join(map(str, arguments))}: {complaints.getvalue()}"
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


@functools.cache
def lives(engine: str, name: str, num_steps: int) -> list[list[Step]]:
    """What each env lives through under an engine, acted in by a script; the obvious engine plays longest."""
    made = make_engine(engine, name, NUM_ENVS, SEED, {}, Collecting(workers=2))
    try:
        policy = Scripted(make_env(name, 1).action_space.nvec[0])  # type: ignore[attr-defined]
        rollouts = [made.collect(policy, num_steps, Stopwatch()) for _ in range(5 if engine == "serial" else 2)]
    finally:
        made.close()
    whole: list[list[Step]] = [[] for _ in range(NUM_ENVS)]
    for rollout in rollouts:
        for life, column in zip(whole, columns(rollout), strict=True):
            life.extend(column)
    return whole


def _require_mask(env: BatchEnv, infos: Infos) -> None:
    """Masks are there in every answer or in none, and allow something."""
    masks = env.action_masks()
    assert ("action_mask" in infos) == bool(env.mask.shape[1])
    assert (masks.shape, masks.dtype) == ((NUM_ENVS, env.num_actions), np.bool_)
    assert masks.any(axis=1).all(), "an env allows no action at all"
    if "action_mask" in infos:
        assert (infos["action_mask"] == masks).all()


def _require_told(infos: Infos, obs: np.ndarray, ended: np.ndarray, returns: np.ndarray, lengths: np.ndarray) -> None:
    """What is told of ended episodes is true."""
    assert infos["final_obs"].shape == obs.shape
    assert infos["_final_obs"].tolist() == infos["_episode"].tolist() == ended.tolist()
    np.testing.assert_allclose(infos["episode"]["r"][ended], returns[ended], atol=1e-6)
    assert infos["episode"]["l"].tolist() == np.where(ended, lengths, 0).tolist()
    assert all(values.shape == ended.shape for values in infos.get("episode_metrics", {}).values())


def _forbidden(env: BatchEnv, right: np.ndarray) -> list[np.ndarray]:
    """Actions of which the first is one that its env does not allow, if there is any."""
    forbidden = np.flatnonzero(~env.action_masks()[0])
    return [np.concatenate([forbidden[:1], right[1:]])] if len(forbidden) else []


def _few_episodes(name: str) -> tuple[str, ...]:
    """The option of `redline eval` that keeps it short, where the world's own scoring has it."""
    scoring = world_of(name).command("score")
    takes = {"episodes"} if scoring is None else {field.name for field in dataclasses.fields(scoring.options)}
    return ("--episodes", "4") if "episodes" in takes else ()


def _weights(run: Path) -> dict[str, list[Any]]:
    """The policy that a run ended with."""
    arrays = checkpoint.load(checkpoint.resolve(run)).arrays
    return {name: array.tolist() for name, array in arrays.items() if name.startswith("policy")}
