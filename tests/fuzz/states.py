"""Checkpoints whose arrays hold what no training put there, with checksums that are right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.train import Trainer

ENVS = (
    "cage2", "cage2?red_agent=RedMeanderAgent&observation=history", "petri:jobshop/ft06", "petri:cluster/S-0?wafers=3",
    "petri:cluster/J-0?wafers=3&arms=2&cleaning=on&idle_cleaning=on&swap_action=on",
    "nasim:small", "nasim:tiny?fully_obs=true", "world:examples.elevator:WORLD",
)  # fmt: skip
Arrays = dict[str, np.ndarray]


class Subject:
    """A tiny training run on an env, and moments of it to go on from."""

    def __init__(self, env: str) -> None:
        name, _, query = env.partition("?")
        options = dict(part.split("=") for part in query.split("&") if part)
        typed: dict[str, Any] = {key: True if value == "true" else value for key, value in options.items()}
        if "wafers" in typed:
            typed["wafers"] = int(typed["wafers"])
        ppo = PPOConfig(elite=2 if name.startswith("petri") else 0, epochs=1)
        config = TrainConfig(
            name, typed, num_envs=3, num_steps=6, total_steps=10**9, hidden=(4,), threads=1, reuse=1, ppo=ppo
        )
        self.trainer = Trainer(config)
        self.moments: list[tuple[Arrays, dict[str, Any]]] = []
        for _ in range(8):
            self.trainer.update()
            self.moments.append(self.trainer.snapshot())

    def try_one(self, rng: random.Random) -> bool:
        """Go on from a moment that was changed. Returns whether that was let through; a refusal must be in one line."""
        arrays, values = rng.choice(self.moments)
        name = rng.choice([name for name in arrays if name.startswith(rng.choice(("engine", "engine", "")))])
        try:
            self.trainer.restore({**arrays, name: self._changed(rng, name, arrays[name])}, values)
            for _ in range(3):
                self.trainer.update()
        except RedlineError as error:
            assert "\n" not in str(error), error
            return False
        return True

    def _changed(self, rng: random.Random, name: str, array: np.ndarray) -> np.ndarray:
        kind = rng.random()
        raw = bytearray(np.ascontiguousarray(array).tobytes())
        if kind < 0.3:
            return np.frombuffer(rng.randbytes(len(raw)), array.dtype if array.dtype != np.bool_ else np.uint8).reshape(
                array.shape
            )
        if kind < 0.4:
            return array.reshape(-1)[: rng.randint(0, array.size)].copy()
        if kind < 0.45:
            return array.astype(rng.choice((np.float32, np.int64, np.uint8)))
        for _ in range(rng.choice((1, 1, 2, 8))):
            self._poke(rng, raw, array.dtype.itemsize)
        found = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape).copy()
        if array.dtype == np.bool_:
            found = found.view(np.uint8).clip(0, 1).astype(np.bool_)  # as a file that was read
        return found

    def _poke(self, rng: random.Random, raw: bytearray, itemsize: int) -> None:
        """A number of one to eight bytes, small or extreme, somewhere."""
        if not raw:
            return
        size = rng.choice((1, 2, 4, 4, 8))
        place = rng.randrange(len(raw)) // size * size
        value = rng.choice((0, 1, 2, 3, 5, 12, 13, 100, -1, -2, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1))))
        limit = 2 ** (8 * size - 1)
        raw[place : place + size] = max(-limit, min(limit - 1, value)).to_bytes(size, "little", signed=True)[
            : len(raw) - place
        ]
