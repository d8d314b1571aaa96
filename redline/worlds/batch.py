"""The Gymnasium faces of compiled worlds: `BatchEnv` plays many episodes at once, `SingleEnv` one.

A world says how its envs begin and play, in arrays that the batch owns. Everything else that Gymnasium and the engines
ask for (spaces, seeds, reset masks, checks, snapshots) is here, once for all worlds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.compiled.rng import seed_streams
from redline.errors import RedlineError, unknown
from redline.worlds.encoding import Encoding, Plain
from redline.worlds.observations import space_encoding
from redline.worlds.play_on import Answers, Ends, Going, PlayedColumns, Playing
from redline.worlds.results import StepResults
from redline.worlds.world import Named

if TYPE_CHECKING:
    from redline.report.film import Play

Infos = dict[str, Any]


class BatchEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many episodes of a compiled world stepped together by one call.

    An episode that ends begins again in the same step; `infos["final_obs"]` holds its last observation,
    `infos["episode"]` its return and length and `infos["episode_metrics"]` what else there is to say of it. Where only
    some actions are allowed, `infos["action_mask"]` bool [N, actions] tells which. With `encoded` observations are
    handed out as they are stored, and `encoding` turns them into numbers.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
    action_names: tuple[str, ...] = ()
    playing: Playing | None = None
    """How envs play on by themselves, in a world that offers it."""
    agents: tuple[str, ...] = ()
    """Names of those who act together, where there are several: see `TeamEnv`."""

    def __init__(
        self,
        num_envs: int,
        num_actions: int,
        stored: Encoding,
        *,
        encoded: bool = False,
        masked: bool = False,
        autoreset: bool = True,
    ) -> None:
        if num_envs < 1:
            raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
        self.num_envs, self.num_actions, self.autoreset = num_envs, num_actions, autoreset
        self.stored = stored
        self.encoding = stored if encoded else stored.decoded
        self.observation_names: tuple[str, ...] = tuple(getattr(stored.decoded, "names", ()))
        self.single_action_space = gym.spaces.Discrete(num_actions)
        self.single_observation_space = self._observation_space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.obs = np.zeros((num_envs, *stored.shape), stored.dtype)
        self.final_obs = np.zeros_like(self.obs)
        self.mask = np.zeros((num_envs, num_actions if masked else 0), np.bool_)
        self._begun = False

    # What a world fills in

    @property
    def streams(self) -> np.ndarray:
        """The random streams uint64 [N] of the envs: a view."""
        raise NotImplementedError

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`; writes `obs` and `mask`."""
        raise NotImplementedError

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one step in envs `first` up to `last`; writes `results`, `obs` and `mask`, and `final_obs` where one ends."""
        raise NotImplementedError

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """`episode` and whatever else there is to say about the episodes that ended in this step."""
        raise NotImplementedError

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The arrays [N, ...] that hold the envs, by name: views, which `restore` writes into."""
        raise NotImplementedError

    def require_allowed(self, actions: np.ndarray) -> None:
        """Refuse actions that an env does not allow now."""

    def start_streams(self, seed: int | list[int | None], chosen: np.ndarray) -> None:
        """Start the random streams of the envs of a mask: env `i` from `seed + i`, or from its own where there is a list."""
        self.streams[chosen] = started_streams(seed, self.streams)[chosen]

    def checked(self, actions: np.ndarray) -> np.ndarray:
        """Actions as `play` takes them, refused if they do not fit."""
        return checked_actions(actions, self.num_envs, self.num_actions)

    # Where a world offers to play on

    def play_on(
        self, first: int, last: int, answers: Answers, going: Going, columns: PlayedColumns, ends: Ends, num_ends: int
    ) -> int:
        """Play envs `first` up to `last` on, each to the end of a collect or to news. Returns how many episodes ended."""
        assert self.playing is not None
        kernel, world, words, *_ = self.playing
        return int(kernel(world, words, first, last, answers, going, columns, ends, num_ends))

    def new_ends(self, room: int) -> Ends:
        """Room for so many episodes that end."""
        assert self.playing is not None
        return Ends(
            envs=np.zeros(room, np.int64),
            steps=np.zeros(room, np.int64),
            returns=np.zeros(room),
            lengths=np.zeros(room, np.int64),
            final_obs=np.zeros((room, int(np.prod(self.stored.shape))), self.stored.dtype),
            told=np.zeros(room, self.playing.told),
        )

    # What Gymnasium and the engines ask for

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Infos]:
        """Begin new episodes, in all envs or in those of `options["reset_mask"]`. Env `i` gets seed `seed + i`."""
        chosen = reset_mask(options, self.num_envs)
        if seed is not None:
            self.start_streams(seed, chosen)
        if chosen.all():
            self.begin(0, self.num_envs)
            self._begun = True
        else:
            for i in np.flatnonzero(chosen):
                self.begin(int(i), int(i) + 1)
        return self.shown(self.obs), self._masks()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Play one step in every env."""
        if not self._begun:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        actions = self.checked(actions)
        self.require_allowed(actions)
        results = StepResults.zeros(self.num_envs)  # new ones: what was handed out is never written into again
        self.play(0, self.num_envs, actions, results)
        infos = self._masks()
        ended = results.terminated | results.truncated
        if ended.any():
            final = self.final_obs if self.autoreset else self.obs
            infos |= {"final_obs": self.shown(final), "_final_obs": ended.copy(), "_episode": ended.copy()}
            infos |= self.ended_infos(ended)
        return self.shown(self.obs), *results, infos

    def shown(self, stored: np.ndarray) -> np.ndarray:
        """A copy of stored observations in the form that is handed out."""
        return stored.copy() if self.encoding is self.stored else self.stored.decode(stored)

    def masks(self) -> np.ndarray | None:
        """A copy of the masks bool [N, actions], where not all actions are always allowed."""
        return self.mask.copy() if self.mask.shape[1] else None

    def _masks(self) -> Infos:
        masks = self.masks()
        return {} if masks is None else {"action_mask": masks}

    def action_masks(self) -> np.ndarray:
        """The actions that are allowed now, bool [N, actions]."""
        if self.mask.shape[1]:
            return self.mask.copy()
        return np.ones((self.num_envs, self.num_actions), np.bool_)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        arrays = {name: _bytes(array).copy() for name, array in self.state_arrays().items()}
        return {**arrays, "obs": self.obs.copy(), **self._masks()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from a snapshot of an env with the same options and size; returns the observation it stopped at."""
        for name, array in self.snapshot().items():
            given = snapshot.get(name)
            if given is None or given.shape != array.shape or given.dtype != array.dtype:
                raise RedlineError(
                    f"A snapshot of {len(snapshot.get('obs', ()))} envs with other options cannot go on in "
                    f"{self.num_envs} envs: its {name} does not fit. Make the env as it was made then."
                )
        for name, array in self.state_arrays().items():
            _bytes(array)[:] = snapshot[name]
        self.obs[:] = snapshot["obs"]
        if self.mask.shape[1]:
            self.mask[:] = snapshot["action_mask"]
        self._begun = True
        return self.shown(self.obs)

    def single_info(self, infos: Infos) -> Infos:
        """The infos of a batch of one, as a `SingleEnv` tells them."""
        info: Infos = {key: value[0] for key, value in infos.items() if key == "action_mask"}
        if "episode_metrics" in infos:
            info["episode_metrics"] = {name: float(values[0]) for name, values in infos["episode_metrics"].items()}
        return info

    def _observation_space(self) -> gym.spaces.Box:
        form = self.encoding
        if isinstance(form, Plain) and form.high:
            most = np.array(form.high, form.dtype).reshape(form.shape)
            return gym.spaces.Box(np.zeros_like(most), most, dtype=form.dtype.type)
        if np.issubdtype(form.dtype, np.floating):
            low, high = self.observation_range()
            return gym.spaces.Box(low, high, form.shape, form.dtype.type)
        info = np.iinfo(form.dtype)
        return gym.spaces.Box(info.min, info.max, form.shape, form.dtype.type)

    def observation_range(self) -> tuple[float, float]:
        """The least and the greatest number in an observation of floats."""
        return -np.inf, np.inf


class SeenStep(NamedTuple):
    """The latest step of an env, for whoever renders it."""

    action: int
    reward: float
    number: int
    """Steps since the beginning, this one included."""
    total: float
    """Rewards since then."""


class SingleEnv(gym.Env[np.ndarray, np.integer]):
    """One episode at a time. Seeded alike, it plays the same episode as any env of the batch.

    The batch of one does not begin again by itself, so that the last state stays readable. It renders as text (`ansi`)
    or, with resvg-py, as a picture (`rgb_array`), in the way that its world's `play` shows a step.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 5}
    show: Named[Play] | None = None
    """How a step is shown; what any env shows where a world says nothing."""

    def __init__(self, batch: BatchEnv, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown("render mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.batch, self.encoding = batch, batch.encoding
        self.observation_names = batch.observation_names
        self._seen: SeenStep | None = None
        self.action_names = batch.action_names
        self.action_space, self.observation_space = batch.single_action_space, batch.single_observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begin a new episode."""
        super().reset(seed=seed)
        obs, infos = self.batch.reset(seed=seed, options=options)
        self._seen = None
        return obs[0], self.batch.single_info(infos)

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, Infos]:
        """Play one step."""
        obs, rewards, terminated, truncated, infos = self.batch.step(np.array([action]))
        number, total = (0, 0.0) if self._seen is None else (self._seen.number, self._seen.total)
        self._seen = SeenStep(int(action), float(rewards[0]), number + 1, total + float(rewards[0]))
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), self.batch.single_info(infos)

    def render(self) -> Any:
        """The latest step as the render mode asks for it: text, or dots uint8 [height, width, 3]; None without a mode."""
        if self.render_mode is None:
            return None
        still: Named[Any] = Named(f"redline.report.stills:{self.render_mode}")
        return still(self, self.batch.stored.decode(self.batch.obs)[0], self._seen)

    def action_masks(self) -> np.ndarray:
        """The actions that are allowed now, bool [actions]."""
        return self.batch.action_masks()[0]


def encoding_of(env: Any, space: gym.Space | None = None) -> Encoding:
    """How the observations of any env are seen by a network."""
    found: Encoding | None = getattr(env, "encoding", None)
    if found is not None:
        return found
    return space_encoding(env.single_observation_space if space is None else space)


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """True bool [N] for the envs to reset: all, or those of `options["reset_mask"]`."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_:
        raise RedlineError(
            f"A reset mask of shape {mask.shape} and type {mask.dtype} does not fit {num_envs} envs: "
            "pass one truth value per env."
        )
    return mask


def started_streams(seed: int | list[int | None], current: np.ndarray) -> np.ndarray:
    """Where the random streams uint64 [N] start; an env whose seed is None goes on with its own."""
    num_envs = len(current)
    if isinstance(seed, int | np.integer):
        if seed < 0:
            raise RedlineError(f"A seed of {seed} cannot be used. Pass a whole number of at least 0.")
        return seed_streams(int(seed), num_envs)
    if len(seed) != num_envs:
        raise RedlineError(f"{len(seed)} seeds cannot be dealt to {num_envs} envs. Pass one number instead.")
    started = current.copy()
    for i, one in enumerate(seed):
        if one is not None:
            started[i] = seed_streams(int(one), 1)[0]
    return started


def any_seed() -> int:
    """A seed for envs that nobody gave one."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """Actions int64 [N], refused if they do not fit."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise RedlineError(
            f"Actions of shape {actions.shape} and type {actions.dtype} do not fit {num_envs} envs: "
            "pass one whole number per env."
        )
    if actions.min() < 0 or actions.max() >= num_actions:
        raise RedlineError(f"Actions must be 0 to {num_actions - 1}; got {actions.min()} to {actions.max()}.")
    return actions.astype(np.int64, copy=False)


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of an array over envs, uint8 [N, bytes]: a view."""
    bare = array.view(np.ndarray)
    width = bare.dtype.itemsize * int(np.prod(bare.shape[1:]))
    return bare.reshape(-1).view(np.uint8).reshape(len(bare), width) if width else np.zeros((len(bare), 0), np.uint8)
