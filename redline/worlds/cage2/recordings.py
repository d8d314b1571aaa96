"""Replay recorded episodes of the original simulator and compare every step.

A recording holds Blue's actions and the five kinds of random choice; everything else must come out of our own rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redline.compiled.speed import at_speed
from redline.errors import RedlineError
from redline.worlds.cage2.rules import kernel
from redline.worlds.cage2.rules.observe import encoding_of
from redline.worlds.cage2.rules.scenario import (
    B_LINE,
    HOSTS,
    MEANDER,
    NUM_ACTIONS,
    NUM_HOSTS,
    RULES,
    Scenario,
    describe_action,
)
from redline.worlds.cage2.rules.state import new_state
from redline.worlds.recordings import load_arrays

Arrays = dict[str, np.ndarray]

_SHAPES: dict[str, str] = {  # arrays a recording must have; E episodes, T steps
    "red_agent": "E", "green_agent": "E", "length": "E",
    "blue_action": "ET", "reward": "ET", "obs": "ET52", "red": "ET9", "green": "ET3", "access": "ET13",
}  # fmt: skip
_OPTIONAL: dict[str, str] = {
    "blue_success": "ET", "malware": "ET13", "decoys": "ET13", "red_ports": "ET13", "red_masks": "ET4", "ot": "ET2",
    "agent": "ET6", "smtp_dead": "ET13", "obs_cw2": "ET52",
}  # fmt: skip


class RedColumns(NamedTuple):
    """The columns of `red`: Red's action, what became of it, and the choices that were drawn."""

    kind: int
    target: int
    success: int
    exploit: int
    other: int
    top: int
    outcome: int
    detected: int
    escalation: int


class GreenColumns(NamedTuple):
    """The columns of `green`."""

    kind: int
    host: int
    success: int


_RED = RedColumns(*range(len(RedColumns._fields)))
_GREEN = GreenColumns(*range(len(GreenColumns._fields)))
_PLAYED = ("blue_action", "red", "green", "length", "red_agent", "green_agent")
"""What rules are fed with."""
_RED_RESULTS = ("kind", "target", "success", "exploit", "outcome", "escalation")
"""Columns of `red` that must come out of our rules; the others are choices that we are fed."""


@dataclass(frozen=True)
class Mismatch:
    """The first value that differs from the recording."""

    episode: int
    step: int
    what: str
    place: str
    expected: int | float
    got: int | float
    blue_action: str

    def __str__(self) -> str:
        place = f" of {self.place}" if self.place else ""
        return (
            f"episode {self.episode}, step {self.step} (Blue: {self.blue_action}): {self.what}{place}: "
            f"expected {self.expected:g}, got {self.got:g}"
        )


@dataclass
class ReplayVerdict:
    """The differences that a replay found."""

    rules: str
    episodes: int
    steps: int
    mismatches: int
    """Steps that differ from the recording in anything compared."""
    by_array: dict[str, int] = field(default_factory=dict)
    """Steps that differ, per array."""
    first: Mismatch | None = None


def load_traces(path: Path) -> Arrays:
    """The arrays of a recording, checked for completeness, shape and range."""
    traces = load_arrays(path)
    _check(path, traces)
    return traces


def _check(path: Path, traces: Arrays) -> None:
    missing = [name for name in _SHAPES if name not in traces]
    if missing:
        raise RedlineError(f"{path} is not a CAGE-2 recording: it lacks {', '.join(missing)}.")
    if traces["blue_action"].ndim != 2:
        raise RedlineError(f"{path}: blue_action has shape {traces['blue_action'].shape}; it must be episodes x steps.")
    num_episodes, num_steps = traces["blue_action"].shape
    for name, letters in {**_SHAPES, **_OPTIONAL}.items():
        if name in traces:
            _check_array(path, name, traces[name], _shape(letters, num_episodes, num_steps))
    length = traces["length"]
    if num_episodes and (length.min() < 0 or length.max() > num_steps):
        raise RedlineError(f"{path}: an episode claims {length.max()} steps, but only {num_steps} are recorded.")
    valid = np.arange(num_steps) < length[:, None]
    if not valid.any():
        raise RedlineError(f"{path} holds no steps to compare: {num_episodes} episodes, all of length 0.")
    actions = traces["blue_action"][valid]
    if actions.size and (actions.min() < 0 or actions.max() >= NUM_ACTIONS):
        raise RedlineError(
            f"{path}: Blue actions must be 0 to {NUM_ACTIONS - 1}, found {actions.min()} to {actions.max()}."
        )
    _check_choices(path, traces["red"][valid], traces["green"][valid])
    rules = str(traces.get("rules", np.array("final")))
    if rules not in RULES:
        raise RedlineError(f"{path} was recorded under rules {rules!r}; known are {', '.join(RULES)}.")
    if not np.isin(traces["red_agent"], (0, 1, 2)).all():
        raise RedlineError(f"{path}: red_agent must be 0 (B_line), 1 (Meander) or 2 (Sleep).")
    if not np.isin(traces["green_agent"], (0, 1)).all():
        raise RedlineError(f"{path}: green_agent must be 0 (Sleep) or 1 (GreenAgent).")


_CHOICES = {
    "script_host": (-1, NUM_HOSTS - 1),
    "script_other": (-1, 7),
    "script_top": (-1, 1),
    "script_detected": (-1, 1),
    "script_green_host": (-1, NUM_HOSTS - 1),
}
"""The smallest and the largest number of each recorded choice; -1 is none."""


def _check_choices(path: Path, red: np.ndarray, green: np.ndarray) -> None:
    """Refuse choices that are none: rules take them as they are."""
    columns = {
        "script_host": red[:, _RED.target], "script_other": red[:, _RED.other], "script_top": red[:, _RED.top],
        "script_detected": red[:, _RED.detected], "script_green_host": green[:, _GREEN.host],
    }  # fmt: skip
    for name, values in columns.items():
        low, high = _CHOICES[name]
        if values.min() < low or values.max() > high:
            what = name.removeprefix("script_").replace("_", " ")
            raise RedlineError(f"{path}: a recorded {what} is {values.min()} to {values.max()}, not {low} to {high}.")


def _shape(letters: str, num_episodes: int, num_steps: int) -> tuple[int, ...]:
    head = {"E": num_episodes, "T": num_steps}
    axes = [head[letter] for letter in letters if letter in head]
    width = letters.lstrip("ET")
    return tuple([*axes, int(width)] if width else axes)


def _check_array(path: Path, name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise RedlineError(f"{path}: {name} has shape {array.shape}; it must be {shape} to go with blue_action.")
    whole = name in _PLAYED
    if array.dtype.kind not in ("iu" if whole else "iufb"):
        raise RedlineError(f"{path}: {name} holds {array.dtype}; it must hold {'whole ' if whole else ''}numbers.")


def replay(traces: Arrays, rules: str | None = None, turbo: bool = True) -> ReplayVerdict:
    """Play every recorded episode by our rules and count the steps that come out differently."""
    return _Replay(traces, rules or str(traces.get("rules", np.array("final"))), turbo).run()


class _Replay:
    """One pass over a recording: plays, compares, and keeps the score."""

    def __init__(self, traces: Arrays, rules: str, turbo: bool) -> None:
        self._traces, self._turbo = traces, turbo
        num_episodes, num_steps = traces["blue_action"].shape
        self._valid = np.arange(num_steps) < traces["length"][:, None]
        self._wrong = np.zeros_like(self._valid)
        self._verdict = ReplayVerdict(rules, num_episodes, int(self._valid.sum()), 0)

    def run(self) -> ReplayVerdict:
        compared = [name for name in ("obs", "reward", "access", "red", *_OPTIONAL) if name in self._traces]
        self._play("official", [name for name in compared if name != "obs_cw2"])
        if "obs_cw2" in self._traces:
            self._play("cw2", ["obs_cw2"])
        self._verdict.mismatches = int(self._wrong.sum())
        return self._verdict

    def _play(self, wrapper: str, compared: list[str]) -> None:
        scenario = Scenario(rules=self._verdict.rules, wrapper=wrapper, max_steps=0)
        for green in np.unique(self._traces["green_agent"]):  # whether Green is there is a setting of the whole batch
            episodes = np.flatnonzero(self._traces["green_agent"] == green)
            player = _Player(self._traces, episodes, scenario, bool(green), self._turbo)
            for t in range(self._valid.shape[1]):
                got = player.step(t)
                for name in compared:
                    expected = self._traces[name][episodes, t].reshape(len(episodes), -1)
                    if name == "red":
                        expected = expected[:, [getattr(_RED, result) for result in _RED_RESULTS]]
                    self._compare(name, episodes, t, expected, got[name])
                if wrapper == "official":  # the other wrapper only looks at the same choices again
                    self._compare("choice", episodes, t, np.zeros((len(episodes), 1)), got["choice"])

    def _compare(self, name: str, episodes: np.ndarray, t: int, expected: np.ndarray, got: np.ndarray) -> None:
        """Count the episodes that differ in step `t`; keep the earliest mismatch of the first episode that has one."""
        differs = (expected != got) & self._valid[episodes, t][:, None]
        bad = differs.any(axis=1)
        if not bad.any():
            return
        verdict = self._verdict
        verdict.by_array[name] = verdict.by_array.get(name, 0) + int(bad.sum())
        self._wrong[episodes[bad], t] = True
        row, column = (int(k) for k in np.argwhere(differs)[0])
        episode = int(episodes[row])
        if verdict.first is None or (episode, t) < (verdict.first.episode, verdict.first.step):
            what, place = _describe(name, column)
            action = describe_action(int(self._traces["blue_action"][episode, t]))
            values = expected[row, column].item(), got[row, column].item()
            verdict.first = Mismatch(episode, t, what, place, *values, action)


def _describe(name: str, column: int) -> tuple[str, str]:
    """The name of an array's column, and the host it belongs to."""
    if name in ("obs", "obs_cw2"):
        return f"{name} {('A1', 'A0', 'C1', 'C0')[column % 4]}", HOSTS[column // 4]
    if name in ("access", "malware", "decoys", "red_ports", "smtp_dead"):
        return name, HOSTS[column]
    if name == "red":
        return f"red {_RED_RESULTS[column]}", ""
    if name == "choice":
        return "a recorded random choice that the rules do not offer", ""
    return name, "" if name in ("reward", "blue_success") else f"column {column}"


class _Player:
    """Plays a group of recorded episodes side by side, their random choices dictated."""

    def __init__(self, traces: Arrays, episodes: np.ndarray, scenario: Scenario, green: bool, turbo: bool) -> None:
        self._traces, self._episodes = traces, episodes
        count = len(episodes)
        self._settings = scenario.settings()._replace(green=green)
        self._encoding = encoding_of(scenario)
        self._step: Callable[..., Any] = at_speed(kernel.step, turbo)
        self.state = new_state(count, seed=0)
        self.state.scripted = 1
        self.state.red_agent = traces["red_agent"][episodes]
        self._packed = np.zeros((count, *self._encoding.shape), np.int64)
        self._rewards = np.zeros(count)
        self._ended = np.zeros(count, np.bool_)
        self._final = np.zeros_like(self._packed), np.zeros(count, np.int32)
        at_speed(kernel.reset, turbo)(self.state, 0, count, self._settings, self._packed)

    def step(self, t: int) -> Arrays:
        """Play step `t` and return everything that can be compared, as [episodes, columns]."""
        red, green = self._traces["red"][self._episodes, t], self._traces["green"][self._episodes, t]
        state = self.state
        state.script_host, state.script_other = red[:, _RED.target], red[:, _RED.other]
        state.script_top, state.script_detected = red[:, _RED.top], red[:, _RED.detected]
        state.script_green_kind, state.script_green_host = green[:, _GREEN.kind] == 1, green[:, _GREEN.host]
        state.impossible = 0
        actions = self._traces["blue_action"][self._episodes, t].clip(0, NUM_ACTIONS - 1).astype(np.int64)
        self._step(
            state, 0, len(state), actions, self._settings, self._packed, self._rewards, self._ended, *self._final
        )
        return self._results()

    def _results(self) -> Arrays:
        state, obs = self.state, self._encoding.decode(self._packed)
        scanned = (state.ports > 0) @ (1 << np.arange(NUM_HOSTS))
        results = {
            "obs": obs,
            "obs_cw2": obs,
            "reward": self._rewards.astype(np.float32),
            "access": access(state),
            "blue_success": state.blue_success,
            "red": np.stack([state[f"red_{result}"] for result in _RED_RESULTS], axis=1),
            "malware": host_bits(state.malware),
            "decoys": state.decoys,
            "red_ports": state.ports,
            "red_masks": np.stack([scanned, state.known_hosts, state.known_names, state.known_subnets], axis=1),
            "ot": np.stack([state.ot, state.knows_ot], axis=1),
            "agent": _agent_memory(state),
            "smtp_dead": host_bits(state.dead_mail),
            "choice": state.impossible,
        }
        return {name: np.asarray(array).reshape(len(state), -1) for name, array in results.items()}


def host_bits(mask: np.ndarray) -> np.ndarray:
    """int8 [N, 13] of host masks [N]."""
    return ((np.asarray(mask)[:, None] >> np.arange(NUM_HOSTS)) & 1).astype(np.int8)


def access(state: np.recarray) -> np.ndarray:
    """Red's access int8 [N, 13]: 0 none, 1 user, 2 root."""
    root, user = host_bits(state.root), host_bits(state.seen | state.unseen)
    return np.where(root == 1, 2, user).astype(np.int8)


def _agent_memory(state: np.recarray) -> np.ndarray:
    """The Red agents' memories as recordings have them, int16 [N, 6]."""
    memory = np.zeros((len(state), 6), np.int16)
    b_line = state.red_agent == B_LINE
    memory[b_line, :3] = np.stack([state.stage, state.issued, state.target], axis=1)[b_line]
    meander = state.red_agent == MEANDER
    sets = np.stack([state.scanned, state.exploited, state.escalated, state.mapped, state.swept], axis=1)
    memory[meander, :5] = sets[meander]
    memory[meander, 5] = -1
    return memory
