"""A world from its rules: write how one env begins, plays a step and is seen, and get everything else.

The rules are plain functions marked with `redline.rule`, over a record that holds one env. `Rules` names them; `RulesEnv`
is the batch that plays them, compiled or interpreted.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np

from redline.compiled.announce import announce_compilation
from redline.compiled.rng import seed_streams
from redline.compiled.speed import at_speed, kernel, rule
from redline.errors import RedlineError
from redline.worlds.batch import BatchEnv, Infos, SingleEnv, any_seed
from redline.worlds.encoding import Encoding
from redline.worlds.options import made_options
from redline.worlds.play_on import Playing, playing_on, see_words, see_words_and_mask
from redline.worlds.recordings import Recordings, verify_recordings
from redline.worlds.results import StepResults
from redline.worlds.world import Command, World

Rule = Callable[..., Any]


@rule
def allow_all(env, settings, mask, i):
    """Leaves a mask as it is: where all actions are always allowed, there is none."""


@rule
def draw_nothing(env, settings):
    """Leaves nothing to chance beforehand."""


@dataclass(frozen=True)
class Rules:
    """What a compiled world is made of. Every function gets the record of one env and the settings.

    `begin(env, settings)` begins an episode. `play(env, action, settings)` plays a step and returns the reward and
    whether the episode is over. `observe(env, settings, obs, i)` writes row `i` of the stored observations, and
    `allow(env, settings, mask, i)` that of the mask, where not all actions are always allowed. Whatever is left to
    chance is drawn by `uniform(env)`, from the env's own stream in its field `rng`.

    A world that replays recordings keeps what it draws apart: `chance(env, settings)` writes the draws of the coming
    step into fields of the record, for `play` to read. A replay writes what chance decided in the original there.
    """

    record: np.dtype
    """One env: a structured dtype with a field `rng` of type uint64."""
    num_actions: int
    encoding: Encoding
    """The form in which `observe` writes."""
    begin: Rule
    play: Rule
    observe: Rule
    allow: Rule | None = None
    chance: Rule | None = None
    settings: NamedTuple | tuple[Any, ...] = ()
    """Numbers and arrays that never change within an env: all that the options of the world come to."""
    max_steps: int = 0
    """Episodes are truncated after so many steps; 0 never does."""
    action_names: tuple[str, ...] = ()
    low: float = -np.inf
    high: float = np.inf
    """The range of an observation's numbers, where they are floats."""
    metrics: tuple[str, ...] = ()
    """Fields of the record to tell of every episode that ends."""

    def __post_init__(self) -> None:
        """Refuse rules that cannot be played."""
        if self.record.names is None or "rng" not in self.record.names or self.record["rng"] != np.uint64:
            raise RedlineError("The record of a world needs a field ('rng', np.uint64): each env draws from its own.")
        for name in self.metrics:
            if name not in self.record.names:
                raise RedlineError(
                    f"The record of the world has no field {name!r}. It has {', '.join(self.record.names)}."
                )
        if self.num_actions < 1 or self.max_steps < 0:
            raise RedlineError(
                f"A world of {self.num_actions} actions and episodes of {self.max_steps} steps cannot be played. "
                "Try 2 actions, and 0 steps for episodes that are never cut off."
            )
        for name in ("begin", "play", "observe", "allow", "chance"):
            _require_marked(name, getattr(self, name))
        if self.action_names and len(self.action_names) != self.num_actions:
            raise RedlineError(f"{len(self.action_names)} names cannot be given to {self.num_actions} actions.")


def _require_marked(name: str, function: Rule | None) -> None:
    """Refuse a function that kernels could not call."""
    if isinstance(function, types.FunctionType) and not getattr(numba.config, "DISABLE_JIT", False):
        raise RedlineError(f"The function {function.__name__} ({name}) is no rule: write @redline.rule above it.")


MOST_STEPS = 1 << 62
TALLY = np.dtype([("score", np.float64), ("length", np.int64), ("last_score", np.float64), ("last_length", np.int64)])
"""What is counted of each env: its present episode, and the one before it."""


class Loops(NamedTuple):
    """The kernels that play rules in a slice of envs."""

    reset: Rule
    look: Rule
    step: Rule
    play_on: Rule


class RuledEnvs(NamedTuple):
    """All that a step needs, and where it leaves what comes of it; arrays over envs."""

    state: np.ndarray
    before: np.ndarray  # records of the episodes that ended last, as they were then
    tally: np.ndarray
    settings: Any
    max_steps: int
    obs: np.ndarray
    mask: np.ndarray
    final_obs: np.ndarray


@rule
def tell(envs, i, told, place):
    """The record of the episode that ended last in env `i`."""
    told[place] = envs.before[i]


@functools.cache
def loops(begin: Rule, chance: Rule, play: Rule, observe: Rule, allow: Rule) -> Loops:
    """The kernels that play these rules."""
    see = see_words if allow is allow_all else see_words_and_mask

    @kernel
    def reset(state, tally, first, last, settings, obs, mask):
        for i in range(first, last):
            begin(state[i], settings)
            tally[i].score, tally[i].length = 0.0, 0
            observe(state[i], settings, obs, i)
            allow(state[i], settings, mask, i)

    @kernel
    def look(state, first, last, settings, obs, mask):
        for i in range(first, last):
            observe(state[i], settings, obs, i)
            allow(state[i], settings, mask, i)

    @rule
    def advance(envs, i, action, autoreset, dictated):
        state, tally, settings, obs = envs.state, envs.tally, envs.settings, envs.obs
        if not dictated:
            chance(state[i], settings)
        reward, over = play(state[i], action, settings)
        tally[i].score += reward
        tally[i].length += 1
        cut = not over and tally[i].length == envs.max_steps
        observe(state[i], settings, obs, i)
        if over or cut:
            tally[i].last_score, tally[i].last_length = tally[i].score, tally[i].length
            envs.before[i] = state[i]
            for k in range(obs.shape[1]):
                envs.final_obs[i, k] = obs[i, k]
            if autoreset:
                begin(state[i], settings)
                tally[i].score, tally[i].length = 0.0, 0
                observe(state[i], settings, obs, i)
        allow(state[i], settings, envs.mask, i)
        return reward, over, cut

    @kernel
    def step(envs, first, last, actions, autoreset, dictated, rewards, terminated, truncated):
        for i in range(first, last):
            rewards[i], terminated[i], truncated[i] = advance(envs, i, int(actions[i]), autoreset, dictated)

    @rule
    def advance_by_itself(envs, i, action):
        return advance(envs, i, action, True, False)

    return Loops(reset, look, step, playing_on(advance_by_itself, tell, see))


class RulesEnv(BatchEnv):
    """Many episodes of a world that is made from its rules.

    Where chance is `dictated`, nothing is drawn in a step: whoever plays writes into `state` what chance decides.
    """

    dictated = False

    def __init__(
        self, num_envs: int, rules: Rules, *, turbo: bool = True, encoded: bool = False, autoreset: bool = True
    ) -> None:
        self.rules = rules
        super().__init__(
            num_envs, rules.num_actions, rules.encoding,
            encoded=encoded, masked=rules.allow is not None, autoreset=autoreset,
        )  # fmt: skip
        self.action_names = rules.action_names
        kernels = loops(
            rules.begin, rules.chance or draw_nothing, rules.play, rules.observe, rules.allow or allow_all
        )  # fmt: skip
        self._loops = Loops(*(at_speed(each, turbo) for each in kernels))
        self.state = np.zeros(num_envs, rules.record).view(np.recarray)
        self.state.rng = seed_streams(any_seed(), num_envs)
        self.ended_state = self.state.copy()
        """Records of the episodes that ended last, as they were then."""
        self._tally = np.zeros(num_envs, TALLY).view(np.recarray)
        self._rows, self._final_rows = (array.reshape(num_envs, -1) for array in (self.obs, self.final_obs))
        self._envs = RuledEnvs(
            self.state, self.ended_state, self._tally, rules.settings, rules.max_steps,
            self._rows, self.mask, self._final_rows,
        )  # fmt: skip
        announce_compilation(kernels.step, "rules of this world", 10)
        if turbo and autoreset and rules.encoding.dtype == np.int64:
            self.playing = Playing(self._loops.play_on, self._envs, self._words(), rules.record, self._told)

    def _words(self) -> np.ndarray:
        """Room for what is looked up: the observations themselves, or a copy with masks behind them."""
        mask_words = -(-self.mask.shape[1] // 8)
        return self._rows if not mask_words else np.zeros((self.num_envs, self._rows.shape[1] + mask_words), np.int64)

    @property
    def streams(self) -> np.ndarray:
        """The random streams of the envs."""
        return self.state.rng

    def observation_range(self) -> tuple[float, float]:
        """As the rules say."""
        return self.rules.low, self.rules.high

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`."""
        self._loops.reset(self.state, self._tally, first, last, self.rules.settings, self._rows, self.mask)

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one step in envs `first` up to `last`."""
        self._loops.step(self._envs, first, last, actions, self.autoreset, self.dictated, *results)

    def look(self) -> None:
        """Write observations and masks anew, after `state` was written into."""
        self._loops.look(self.state, 0, self.num_envs, self.rules.settings, self._rows, self.mask)

    def require_allowed(self, actions: np.ndarray) -> None:
        """Refuse actions that a mask forbids."""
        if self.rules.allow is not None:
            allowed = self.mask[np.arange(self.num_envs), actions]
            if not allowed.all():
                i = int(np.flatnonzero(~allowed)[0])
                given, other = (self._named(int(a)) for a in (actions[i], self.mask[i].argmax()))
                raise RedlineError(
                    f"Env {i} does not allow action {given} now: choose by infos['action_mask'], e.g. {other}."
                )

    def _named(self, action: int) -> str:
        return f"{action} ({self.action_names[action]})" if self.action_names else str(action)

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """Return and length of the ended episodes, and the fields that the rules want told."""
        tally = self._tally
        infos: Infos = {
            "episode": {"r": np.where(ended, tally.last_score, 0.0), "l": np.where(ended, tally.last_length, 0)}
        }
        if self.rules.metrics:
            told = self._told(self.ended_state)
            infos["episode_metrics"] = {name: np.where(ended, values, 0.0) for name, values in told.items()}
        return infos

    def _told(self, ended: np.ndarray) -> dict[str, np.ndarray]:
        """The fields of records that the rules want told."""
        return {name: ended[name].astype(np.float64) for name in self.rules.metrics}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Records and tallies."""
        return {"records": self.state, "tally": self._tally}


def rules_world(name: str, about: str, rules: Callable[[Any], Rules], options: type, **more: Any) -> World:
    """A world that is made from its rules: `rules` gives them for an instance of `options`, a frozen dataclass.

    Everything else that a world may have (see `World`) can be given by name. It replays recordings in the form that
    `redline.worlds.recordings` describes.
    """

    def batch(num_envs: int, name: str, **given: Any) -> RulesEnv:
        faces = {key: given.pop(key) for key in ("turbo", "encoded", "autoreset") if key in given}
        return RulesEnv(num_envs, rules(made_options(options, given)), **faces)

    def single(name: str, **given: Any) -> SingleEnv:
        render_mode = given.pop("render_mode", None)
        return SingleEnv(batch(1, name, autoreset=False, **given), render_mode)

    verify = Command(Recordings, functools.partial(verify_recordings, batch))
    return World(**{"verify": verify, **more}, name=name, about=about, single=single, batch=batch, options=options)
