"""An elevator as one would write it first: people are tuples in lists, chance is Python's own."""

import random

import redline

FLOORS, CROWD, RATE, MOST_STEPS = 5, 6, 0.3, 200
UP, DOWN, OPEN = range(3)


class Elevator:
    """Each step the car moves a floor or opens its doors, and everybody in the building has waited a step longer."""

    def reset(self, seed):
        self.random, self.floor, self.clock = random.Random(seed), 0, 0
        self.waiting, self.riding = [], []  # people: where they come from and where they want to go
        return self.observe()

    def step(self, action):
        self.newcomer = self.draw_newcomer()
        if action == OPEN:
            entering = [person for person in self.waiting if person[0] == self.floor]
            self.waiting = [person for person in self.waiting if person[0] != self.floor]
            self.riding = [person for person in self.riding if person[1] != self.floor] + entering
        else:
            self.floor += 1 if action == UP else -1
        if self.newcomer is not None:
            self.waiting.append(self.newcomer)
        overcrowded = any(sum(origin == floor for origin, _ in self.waiting) > CROWD for floor in range(FLOORS))
        cost = len(self.waiting) + len(self.riding) + (500 if overcrowded else 0)
        self.clock += 1
        return self.observe(), -cost / 10, overcrowded, not overcrowded and self.clock == MOST_STEPS

    def draw_newcomer(self):
        if self.random.random() >= RATE:
            return None
        upstairs = self.random.randrange(1, FLOORS)
        return (0, upstairs) if self.random.random() < 0.5 else (upstairs, 0)  # they enter the house or leave it

    def observe(self):
        calls = [any(origin == floor for origin, _ in self.waiting) for floor in range(FLOORS)]
        buttons = [any(target == floor for _, target in self.riding) for floor in range(FLOORS)]
        return [self.floor, *calls, *buttons]

    def allowed(self):
        _, *pressed = self.observe()
        return [self.floor < FLOORS - 1, self.floor > 0, pressed[self.floor] or pressed[FLOORS + self.floor]]


def record(path="elevator.npz", episodes=20):
    """Write random episodes down: what was done, what chance decided, and what came of it."""
    original, recorder = Elevator(), redline.Recorder()
    for seed in range(episodes):
        recorder.begin(original.reset(seed))
        terminated = truncated = False
        while not (terminated or truncated):
            action = original.random.choice([a for a, allowed in enumerate(original.allowed()) if allowed])
            obs, reward, terminated, truncated = original.step(action)
            choice = dict(zip(("origin", "target"), original.newcomer or (-1, 0), strict=True))
            recorder.step(action, obs, reward, terminated, truncated, original.allowed(), choice)
    recorder.save(path)


if __name__ == "__main__":
    record()
