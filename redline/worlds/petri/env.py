"""Timed nets as Gymnasium envs: `PetriVectorEnv` plays many episodes at once, `PetriEnv` one."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.compiled.announce import announce_compilation
from redline.compiled.speed import at_speed
from redline.errors import RedlineError, unknown
from redline.worlds.batch import BatchEnv, Infos, SingleEnv, any_seed
from redline.worlds.encoding import plain
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.state import DONE, OUTCOMES, logged, new_finals, new_state
from redline.worlds.petri.rules.tables import arc_list, tabulate
from redline.worlds.results import StepResults
from redline.worlds.world import Named

ILLEGAL = ("refuse", "ignore")
_PARTS = {part: part for part in ("envs", "tokens", "places", "resources", "firings")} | {"queues": "notes"}
"""Parts of the state by the names that snapshots have for them."""


class PetriVectorEnv(BatchEnv):
    """Many episodes of a timed net stepped together by one compiled kernel.

    `infos["action_mask"]` says what is legal next, and `infos["episode_metrics"]` how an episode ended and when. An
    illegal action is refused, or changes nothing if ignored.
    """

    def __init__(
        self,
        num_envs: int,
        name: str | Net = "cluster/J-0",
        *,
        turbo: bool = True,
        encoded: bool = False,
        illegal: str = "refuse",
        log_size: int = 0,
        autoreset: bool = True,
        **options: Any,
    ) -> None:
        if illegal not in ILLEGAL:
            raise unknown("answer to illegal actions", illegal, ILLEGAL)
        self.instance = None if isinstance(name, Net) else parse_petri(name, **options)
        self.net = name if isinstance(name, Net) else self.instance.net  # type: ignore[union-attr]
        self._tables, sizes = tabulate(self.net)
        self._sizes = sizes
        numbers = plain((sizes.observation,), np.float32, self.net.observation_names)
        super().__init__(num_envs, sizes.actions, numbers, encoded=encoded, masked=True, autoreset=autoreset)
        self.illegal, self.action_names = illegal, self.net.action_names
        self.arcs = arc_list(self.net)  # int32 [E, 3]  transition, place, weight (negative if it is taken)
        self._step, self._turbo = at_speed(kernel.step, turbo), turbo
        self._task = kernel.STEP_ON if autoreset else kernel.STEP
        self.state = new_state(num_envs, sizes, any_seed(), log_size)
        self._finals = new_finals(num_envs, sizes)
        announce_compilation(self._step, "Petri net kernel", 10)

    def observation_range(self) -> tuple[float, float]:
        """All numbers are shares."""
        return 0.0, 1.0

    @property
    def streams(self) -> np.ndarray:
        """The random streams of the envs; a net itself draws nothing."""
        return self.state.envs.rng

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`."""
        kernel.reset(self._tables, self.state, first, last, self.obs, self.mask, True, self._turbo)

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one action in envs `first` up to `last`."""
        self._step(
            self._tables, self.state, first, last, self._task, actions, self.obs, self.mask,
            *results, self.final_obs, self._finals,
        )  # fmt: skip

    def require_allowed(self, actions: np.ndarray) -> None:
        """Refuse illegal actions, unless they are ignored."""
        if self.illegal == "refuse":
            legal = self.mask[np.arange(self.num_envs), actions]
            if not legal.all():
                raise RedlineError(self._complaint(int(np.flatnonzero(~legal)[0]), actions))

    def _complaint(self, i: int, actions: np.ndarray) -> str:
        names = self.action_names
        legal = ", ".join(f"{a} ({names[a]})" for a in np.flatnonzero(self.mask[i])[:5])
        given = f"{actions[i]} ({names[actions[i]]})"
        return f"Env {i} does not allow action {given} now: choose by infos['action_mask'], e.g. {legal}."

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """Return, length, outcome and times of the ended episodes."""
        finals, which = self._finals, np.flatnonzero(ended)
        counts = finals.counts.view(np.ndarray)[which]  # of those few that ended: a field of records is slow to get at
        metrics = {
            "completed": counts["outcome"] == DONE,
            "end_time": counts["clock"],
            "finished": counts["finished"],
            "outcome": counts["outcome"],
            "margin_min": counts["margin_min"],
            "margin_mean": counts["margin_sum"] / np.maximum(counts["margins"], 1),
        }
        if self.net.rules.scrap_place is not None:
            metrics["scrapped"] = counts["gone"]

        def told(values: np.ndarray, dtype: Any) -> np.ndarray:
            """Values of those that ended, among zeros for the others."""
            everyone = np.zeros((self.num_envs, *values.shape[1:]), dtype)
            everyone[which] = values
            return everyone

        return {
            "episode": {"r": told(finals.score[which], np.float64), "l": told(counts["steps"], np.int32)},
            "episode_metrics": {key: told(value, np.float64) for key, value in metrics.items()},
            "resource_seconds": told(finals.resource_seconds[which], np.int32),
            "place_seconds": told(finals.place_seconds[which], np.int32),
        }

    def state_arrays(self) -> dict[str, np.ndarray]:
        """All parts of the state."""
        return {name: getattr(self.state, part) for name, part in _PARTS.items()}

    def single_info(self, infos: Infos) -> Infos:
        """The legal actions and, where the episode ended, how it did."""
        info = super().single_info(infos)
        if "episode" in infos:
            info |= {key: float(value[0]) for key, value in infos["episode_metrics"].items()}
            info["outcome"] = OUTCOMES[int(info["outcome"])]
            info["episode"] = {key: value[0] for key, value in infos["episode"].items()}
        return info

    def marking(self) -> np.ndarray:
        """Tokens in each place, int32 [N, places]."""
        return self.state.places.marking.copy()

    def clocks(self) -> np.ndarray:
        """Time since reset, int32 [N]."""
        return self.state.envs.clock.copy()

    def firings(self, i: int) -> np.ndarray:
        """Start, end, transition and token of each firing of env `i` since reset, as far as `log_size` reaches."""
        return logged(self.state, i)


class PetriEnv(SingleEnv):
    """One episode at a time. `info["action_mask"]` bool [actions] says what is legal next."""

    batch: PetriVectorEnv
    show = Named("redline.worlds.petri.play:STILL")

    def __init__(self, name: str | Net = "cluster/J-0", *, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(PetriVectorEnv(1, name, autoreset=False, **options), render_mode)
        self.net, self.arcs = self.batch.net, self.batch.arcs

    def firings(self) -> np.ndarray:
        """Start, end, transition and token of each firing since reset, as far as `log_size` reaches."""
        return self.batch.firings(0)


def make_batch(num_envs: int, name: str, **options: Any) -> PetriVectorEnv:
    """Many envs, as the world makes them."""
    return PetriVectorEnv(num_envs, name, **options)


def make_single(name: str, **options: Any) -> PetriEnv:
    """One env, as the world makes it."""
    return PetriEnv(name, **options)
