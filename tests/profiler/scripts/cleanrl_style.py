"""PPO on CartPole in a single file, as CleanRL writes it. Prints the env steps taken and a checksum of the weights."""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 4, 64, 2, 4
GAMMA, LAM, CLIP = 0.99, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def get_value(self, obs):
        return self.critic(obs).flatten()

    def get_action_and_value(self, obs, actions=None):
        policy = Categorical(logits=self.actor(obs))
        actions = policy.sample() if actions is None else actions
        return actions, policy.log_prob(actions), policy.entropy(), self.get_value(obs)


def collect(agent, envs, obs):
    shape = (NUM_STEPS, NUM_ENVS)
    batch = {name: torch.zeros(shape) for name in ("log_probs", "values", "rewards", "dones")}
    batch["obs"], batch["actions"] = torch.zeros((*shape, 4)), torch.zeros(shape, dtype=torch.int64)
    for t in range(NUM_STEPS):
        with torch.no_grad():
            actions, batch["log_probs"][t], _, batch["values"][t] = agent.get_action_and_value(obs)
        batch["obs"][t], batch["actions"][t] = obs, actions
        following, rewards, terminated, truncated, _ = envs.step(actions.numpy())
        batch["rewards"][t] = torch.as_tensor(rewards)
        batch["dones"][t] = torch.as_tensor(np.logical_or(terminated, truncated))
        obs = torch.as_tensor(following)
    with torch.no_grad():
        next_values = agent.get_value(obs)
    credit, batch["advantages"] = torch.zeros(NUM_ENVS), torch.zeros(shape)
    for t in reversed(range(NUM_STEPS)):
        live = 1 - batch["dones"][t]
        credit = batch["rewards"][t] + GAMMA * next_values * live - batch["values"][t] + GAMMA * LAM * live * credit
        batch["advantages"][t], next_values = credit, batch["values"][t]
    return {name: values.flatten(0, 1) for name, values in batch.items()}, obs


def learn(agent, optimizer, batch):
    returns = batch["advantages"] + batch["values"]
    for _ in range(EPOCHS):
        for part in torch.randperm(NUM_STEPS * NUM_ENVS).chunk(MINIBATCHES):
            _, log_probs, entropy, values = agent.get_action_and_value(batch["obs"][part], batch["actions"][part])
            ratio = (log_probs - batch["log_probs"][part]).exp()
            gain = batch["advantages"][part]
            policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = policy_loss + 0.5 * ((values - returns[part]) ** 2).mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * NUM_ENVS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    for _ in range(args.updates):
        batch, obs = collect(agent, envs, obs)
        learn(agent, optimizer, batch)
    envs.close()
    checksum = sum(weights.double().sum().item() for weights in agent.parameters())
    print(args.updates * NUM_STEPS * NUM_ENVS, repr(checksum))


if __name__ == "__main__":
    main()
