"""Stable-Baselines3's PPO on CAGE-2 envs that Gymnasium makes one by one.

Run it with `python examples/sb3_single.py --total-steps 100000`, after `pip install 'redline[peers]'`.
"""

import argparse
from functools import partial

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import redline.envs  # noqa: F401  (tells Gymnasium about redline/Cage2-v0)

NUM_ENVS = 4
STEPS_PER_EPISODE = 30


def main() -> None:
    parser = argparse.ArgumentParser(description="Train SB3's PPO on single CAGE-2 envs.")
    parser.add_argument("--total-steps", type=int, default=100_000, help="env steps to train for")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # for so small a network, threads that wait for each other cost more than they win

    make = partial(gym.make, "redline/Cage2-v0", red_agent="B_lineAgent", max_steps=STEPS_PER_EPISODE)
    env = make_vec_env(make, n_envs=NUM_ENVS, seed=0)
    model = PPO("MlpPolicy", env, n_steps=512, batch_size=256, seed=0, device="cpu")

    before, _ = evaluate_policy(model, env, n_eval_episodes=50, deterministic=False)
    model.learn(arguments.total_steps)
    after, _ = evaluate_policy(model, env, n_eval_episodes=50, deterministic=False)
    print(f"Mean episode reward before training: {before:.1f}")
    print(f"Mean episode reward after {model.num_timesteps} steps: {after:.1f}")


if __name__ == "__main__":
    main()
