"""A loop as it is written for the original's BlueFlatWrapper, unchanged: only the env is another one."""

from __future__ import annotations

import argparse

import numpy as np

from redline.worlds.cage4.parallel import Cage4ParallelEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # with the original: BlueFlatWrapper(CybORG(EnterpriseScenarioGenerator(…, steps=given.steps), seed=given.seed))
    env = Cage4ParallelEnv(seed=given.seed, steps=given.steps)
    rng = np.random.default_rng(given.seed + 1_000_003)
    for episode in range(given.episodes):
        observations, info = env.reset()
        rewards = []
        while env.agents:
            actions = {}
            for agent in env.agents:
                assert len(observations[agent]) == env.observation_space(agent).shape[0]
                actions[agent] = int(rng.choice(np.flatnonzero(info[agent]["action_mask"])))
            observations, reward, _, _, info = env.step(actions)
            rewards.append(np.mean(list(reward.values())))
        last = env.action_labels("blue_agent_0")[actions["blue_agent_0"]]
        print(
            f"Episode {episode}: score {sum(rewards[:-1]):.0f} in {len(rewards)} steps; blue_agent_0 ended with {last}"
        )


if __name__ == "__main__":
    main()
