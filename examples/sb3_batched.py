"""Stable-Baselines3's PPO on many CAGE-2 envs that one compiled kernel steps together.

Run it with `python examples/sb3_batched.py --total-steps 500000`, after `pip install 'redline[peers]'`.
"""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from redline import make_env
from redline.sb3 import Sb3VecEnv

NUM_ENVS = 256
STEPS_PER_EPISODE = 30


def main() -> None:
    parser = argparse.ArgumentParser(description="Train SB3's PPO on a batch of CAGE-2 envs.")
    parser.add_argument("--total-steps", type=int, default=500_000, help="env steps to train for")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # for so small a network, threads that wait for each other cost more than they win

    env = Sb3VecEnv(make_env("cage2", NUM_ENVS, red_agent="B_lineAgent", max_steps=STEPS_PER_EPISODE), seed=0)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=1024, learning_rate=1e-3, seed=0, device="cpu")

    before, _ = evaluate_policy(model, env, n_eval_episodes=NUM_ENVS, deterministic=False)
    model.learn(arguments.total_steps)
    after, _ = evaluate_policy(model, env, n_eval_episodes=NUM_ENVS, deterministic=False)
    print(f"Mean episode reward before training: {before:.1f}")
    print(f"Mean episode reward after {model.num_timesteps} steps: {after:.1f}")


if __name__ == "__main__":
    main()
