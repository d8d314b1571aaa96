"""Checkpoints whose arrays hold what no training put there, with checksums that are right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.train import trainer_for
from redline.worlds.registry import make_env

ENVS = (
    "cage2", "cage2?red_agent=RedMeanderAgent&observation=history", "cage2?observation=table+scan",
    "cage2?observation=memory", "cage2?red_agent=RedMeanderAgent&observation=truth",
    "cage4?steps=40", "cage4?red_agent=DiscoveryFSRed&steps=30", "cage4?steps=40&face=memory",
    "petri:jobshop/ft06", "petri:cluster/S-0?wafers=3",
    "petri:cluster/J-0?wafers=3&arms=2&cleaning=on&idle_cleaning=on&swap_action=on",
    "nasim:small", "nasim:tiny?fully_obs=true", "world:examples.elevator:WORLD",
)  # fmt: skip
Arrays = dict[str, np.ndarray]
ENGINE = "engine."


class Subject:
    """A tiny training run on an env, and moments of it to go on from."""

    def __init__(self, env: str) -> None:
        name, _, query = env.partition("?")
        options: dict[str, Any] = dict(part.split("=") for part in query.split("&") if part)
        for key in options.keys() & {"wafers", "steps"}:
            options[key] = int(options[key])
        if "fully_obs" in options:
            options["fully_obs"] = True
        ppo = PPOConfig(elite=2 if name.startswith("petri") else 0, epochs=1)
        self.trainer = trainer_for(
            TrainConfig(
                name, options, num_envs=3, num_steps=12, total_steps=10**9, hidden=(4,), threads=1, reuse=1, ppo=ppo
            )
        )
        self.moments: list[tuple[Arrays, dict[str, Any]]] = []
        for _ in range(8):
            self.trainer.update()
            self.moments.append(self.trainer.snapshot())
        batch = make_env(name, 3, encoded=True, **options)
        self._forms = {name: array.dtype for name, array in batch.state_arrays().items()}

    def try_one(self, rng: random.Random) -> bool:
        """Go on from a moment that was changed. Returns whether that was let through; a refusal must be in one line."""
        arrays, values = rng.choice(self.moments)
        prefix = rng.choice((ENGINE, ENGINE, ""))
        name = rng.choice([name for name in arrays if name.startswith(prefix)])
        try:
            self.trainer.restore({**arrays, name: self._changed(rng, name, arrays[name])}, values)
            self.trainer.update()
        except RedlineError as error:
            assert "\n" not in str(error), error
            return False
        return True

    def _changed(self, rng: random.Random, name: str, array: np.ndarray) -> np.ndarray:
        kind = rng.random()
        raw = bytearray(np.ascontiguousarray(array).tobytes())
        if kind < 0.2:
            form = array.dtype if array.dtype != np.bool_ else np.dtype(np.uint8)
            return np.frombuffer(rng.randbytes(len(raw)), form).reshape(array.shape)
        if kind < 0.3:
            return array.reshape(-1)[: rng.randint(0, array.size)].copy()
        if kind < 0.35:
            return array.astype(rng.choice((np.float32, np.int64, np.uint8)))
        form = self._forms.get(name.removeprefix(ENGINE))
        for _ in range(rng.choice((1, 1, 2, 8))):
            if form is not None and form.names and len(raw) >= form.itemsize:
                self._poke_field(rng, raw, form)
            else:
                self._poke(rng, raw, 0, len(raw), rng.choice((1, 2, 4, 4, 8)))
        found = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape).copy()
        if array.dtype == np.bool_:
            found = found.view(np.uint8).clip(0, 1).astype(np.bool_)  # as a file that was read
        return found

    def _poke_field(self, rng: random.Random, raw: bytearray, form: np.dtype) -> None:
        """Another number in any field of any record, each as likely however large it is."""
        assert form.fields is not None
        field, offset = form.fields[rng.choice(list(form.fields))][:2]
        first = rng.randrange(len(raw) // form.itemsize) * form.itemsize + offset
        self._poke(rng, raw, first, first + field.itemsize, field.base.itemsize)

    def _poke(self, rng: random.Random, raw: bytearray, first: int, last: int, size: int) -> None:
        """A number of so many bytes, small or extreme, somewhere between."""
        if last - first < size:
            return
        place = first + rng.randrange((last - first) // size) * size
        limit = 2 ** (8 * size - 1)
        value = rng.choice(
            (0, 1, 2, 3, 5, 7, 8, 12, 13, 100, 137, -1, -2, limit - 1, -limit, rng.randrange(-limit, limit))
        )
        raw[place : place + size] = max(-limit, min(limit - 1, value)).to_bytes(size, "little", signed=True)
