"""Train on an env of your own, in worker processes, with a run folder. A notebook as a script: `# %%` begins a cell.

Run it with `python examples/own_env.py --run-dir /tmp/thermostat`.
"""

# %% The env: keep a room at 20 degrees
import argparse

import gymnasium as gym
import numpy as np

import redline


class Thermostat(gym.Env):
    """Heat, wait or cool. The weather drifts; every degree off costs."""

    observation_space = gym.spaces.Box(-60.0, 60.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    action_names = ("cool", "wait", "heat")

    def __init__(self, steps: int = 50) -> None:
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.weather = self.np_random.uniform(10, 30, 2)
        self.clock = 0
        return self._seen(), {}

    def step(self, action):
        self.clock += 1
        self.weather += self.np_random.normal()
        self.room += 2.0 * (action - 1) + 0.1 * (self.weather - self.room)
        return self._seen(), -abs(self.room - 20.0), False, self.clock >= self.steps, {}

    def _seen(self):
        return np.clip([self.room - 20.0, self.weather - 20.0], -60, 60).astype(np.float32)


# %% Train in two workers, then come back to the policy from its folder
def main() -> None:
    parser = argparse.ArgumentParser(description="Train on an env of one's own.")
    parser.add_argument("--total-steps", type=float, default=100_000, help="env steps to train for")
    parser.add_argument("--run-dir", default="runs/thermostat", help="a new folder for the run")
    arguments = parser.parse_args()

    with redline.train(
        lambda: Thermostat(), total_steps=arguments.total_steps, run_dir=arguments.run_dir, engine="shared", workers=2
    ) as training:
        before = redline.evaluate(training.agent, episodes=50)["mean"]
        training.finish()
    agent = redline.load(arguments.run_dir, env=Thermostat)
    after = redline.evaluate(agent, episodes=50)["mean"]
    print(f"Mean return before training {before:.1f}, after {agent.step:,} steps {after:.1f}")
    for degrees in (-3.0, 0.0, 3.0):
        obs = np.array([degrees, 0.0], np.float32)
        print(f"{degrees:+.0f} degrees: {agent.action_names[agent.act(obs)]}")


if __name__ == "__main__":
    main()
