"""Python envs with every kind of space, each so small that a policy learns it in a few thousand steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

Answer = tuple[Any, float, bool, bool, dict[str, Any]]


class Toy(gym.Env):
    """Shows four numbers, wants an answer to them, and ends after ten steps or, now and then, before."""

    observation_space: gym.Space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space: gym.Space
    steps = 10

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.clock = 0
        self.next()
        return self.shown(), self.told()

    def step(self, action: Any) -> Answer:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        reward = float(self.judge(action))
        self.clock += 1
        self.next()
        over = bool(self.np_random.random() < 0.05)
        return self.shown(), reward, over, self.clock >= self.steps, self.told()

    def next(self) -> None:
        self.numbers = self.np_random.uniform(-1, 1, 4).astype(np.float32)

    def shown(self) -> Any:
        return self.numbers

    def told(self) -> dict[str, Any]:
        return {}

    def judge(self, action: Any) -> float:
        raise NotImplementedError


class Shifted(Toy):
    """A Discrete space that does not begin at 0: 7 where the first number is positive, else 5."""

    action_space = gym.spaces.Discrete(3, start=5)

    def judge(self, action: Any) -> float:
        return float(action == (7 if self.numbers[0] > 0 else 5))


class Several(Toy):
    """A choice of two and one of three, each by a number of its own; the third of the second counts from 1."""

    action_space = gym.spaces.MultiDiscrete([2, 3], start=[0, 1])

    def judge(self, action: Any) -> float:
        right = (self.numbers[0] > 0, 1 + (self.numbers[1] > -0.3) + (self.numbers[1] > 0.3))
        return float(np.mean([action[c] == right[c] for c in range(2)]))


class SeveralMasked(Several):
    """Likewise, but one of the second three is forbidden, in turn; told by a method."""

    action_space = gym.spaces.MultiDiscrete([2, 3])

    def judge(self, action: Any) -> float:
        assert self.action_masks()[2 + action[1]]
        return super().judge(np.asarray(action) + np.array([0, 1]))

    def action_masks(self) -> np.ndarray:
        mask = np.ones(5, bool)
        mask[2 + self.clock % 3] = False
        return mask


class Switches(Toy):
    """Every bit is to say whether its number is positive."""

    action_space = gym.spaces.MultiBinary(4)

    def judge(self, action: Any) -> float:
        return float(np.mean(action == (self.numbers > 0)))


class SwitchesMasked(Switches):
    """Likewise, but the first bit must stay 0 in even steps."""

    def judge(self, action: Any) -> float:
        assert self.clock % 2 or action[0] == 0
        return super().judge(action)

    def told(self) -> dict[str, Any]:
        mask = np.ones(8, bool)
        mask[1] = self.clock % 2 == 1
        return {"action_mask": mask}


class Levers(Toy):
    """Numbers to be repeated as well as can be, two of them, within bounds that differ."""

    action_space = gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 3], np.float32))

    def judge(self, action: Any) -> float:
        wanted = self.numbers[0], 1.5 + self.numbers[1]
        return float(1 - np.abs(action - wanted).mean())


class Ground(gym.spaces.Dict):
    """A nested space of everything."""

    def __init__(self) -> None:
        super().__init__(
            {
                "sign": gym.spaces.Discrete(2, start=3),
                "rest": gym.spaces.Tuple((gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([2, 3]))),
                "wide": gym.spaces.Box(-5, 5, (2, 1), np.float64),
            }
        )


class Nested(Toy):
    """A Dict that holds a Tuple; the answer is in its first part."""

    observation_space = Ground()
    action_space = gym.spaces.Discrete(2)

    def next(self) -> None:
        self.seen = {
            "sign": np.int64(3 + self.np_random.integers(2)),
            "rest": (self.np_random.integers(0, 2, 2).astype(np.int8), self.np_random.integers(0, [2, 3])),
            "wide": self.np_random.normal(size=(2, 1)).clip(-5, 5),
        }

    def shown(self) -> Any:
        return self.seen

    def judge(self, action: Any) -> float:
        return float(action == self.seen["sign"] - 3)


class NestedMasked(Nested):
    """Likewise, and the Dict says that what was right in the step before is forbidden in every third."""

    observation_space = gym.spaces.Dict({**Ground().spaces, "action_mask": gym.spaces.MultiBinary(2)})

    def shown(self) -> Any:
        mask = np.ones(2, np.int8)
        mask[0] = self.clock % 3 > 0
        return {**self.seen, "action_mask": mask}

    def judge(self, action: Any) -> float:
        assert self.clock % 3 or action == 1
        return super().judge(action)


class Wheels(Toy):
    """Observations that are several choices: the answer is whether the first two are the same."""

    observation_space = gym.spaces.MultiDiscrete([3, 3], start=[1, 0])
    action_space = gym.spaces.Discrete(2)

    def next(self) -> None:
        self.wheels = self.np_random.integers(0, 3, 2)

    def shown(self) -> Any:
        return self.wheels + np.array([1, 0])

    def judge(self, action: Any) -> float:
        return float(action == (self.wheels[0] == self.wheels[1]))


class Pictures(Toy):
    """A bright dot and a dim one somewhere in a picture, side by side or above each other: which of the two?

    Where the pair stands says nothing, so no sum over pixels can tell.
    """

    observation_space = gym.spaces.Box(0, 255, (8, 8, 2), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def next(self) -> None:
        y, x = self.np_random.integers(0, 7, 2)
        self.upright = int(self.np_random.integers(2))
        self.picture = np.zeros((8, 8, 2), np.uint8)
        self.picture[y, x, 0] = 255
        self.picture[y + self.upright, x + 1 - self.upright, 0] = 255

    def shown(self) -> Any:
        return self.picture.astype(self.observation_space.dtype)

    def judge(self, action: Any) -> float:
        return float(action == self.upright)


class Memory(Toy):
    """Shows a number in the first step only, and wants to be told in every step whether it was positive."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    steps = 6

    def next(self) -> None:
        if self.clock == 0:
            self.sign = int(self.np_random.integers(2))

    def shown(self) -> Any:
        first = self.clock == 0
        return np.array([(2 * self.sign - 1) * first, first], np.float32)

    def judge(self, action: Any) -> float:
        return float(action == self.sign)


class Sentences(Toy):
    """Shows text, from which nothing can be learned."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Text(9)

    def shown(self) -> Any:
        return "nothing"
