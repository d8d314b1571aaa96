"""How others train: the same work done by a CleanRL-style loop and Stable-Baselines3, for comparison in one run.

Each peer gets our compiled simulator as its env, so that what is compared is the training. Networks, batch sizes, epochs
and minibatches are the same for all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from redline.errors import RedlineError, install
from redline.learn.config import TrainConfig
from redline.learn.heads.masking import MASKED
from redline.worlds.registry import make_env

MINIBATCHES = 4
"""CleanRL's own default; whole-batch updates of 51,200 steps would cost both peers memory and time."""

Contestant = Callable[[], int]
"""Runs one update and returns the env steps it took."""


def cleanrl_style(config: TrainConfig) -> Contestant:
    """A single-file loop as CleanRL writes it: eager PyTorch, one forward pass a step, shuffled minibatches."""
    env = make_env(config.env, config.num_envs, **config.env_options)
    first, infos = env.reset(seed=config.seed)
    obs = torch.as_tensor(first, dtype=torch.float32)
    agent = _Agent(obs.shape[1], env.single_action_space.n, config.hidden)  # type: ignore[attr-defined]
    optimizer = torch.optim.Adam(agent.parameters(), lr=config.ppo.learning_rate, eps=1e-5)
    state: dict[str, Any] = {"obs": obs, "mask": _mask(infos)}

    def update() -> int:
        batch, state["obs"], state["mask"] = _cleanrl_collect(agent, env, state["obs"], state["mask"], config)
        _cleanrl_learn(agent, optimizer, batch, config)
        return config.num_envs * config.num_steps

    return update


class _Agent(nn.Module):
    def __init__(self, obs_size: int, num_actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.actor = self._mlp(obs_size, hidden, num_actions)
        self.critic = self._mlp(obs_size, hidden, 1)

    @staticmethod
    def _mlp(size: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(size, width), nn.Tanh()]
            size = width
        return nn.Sequential(*layers, nn.Linear(size, outputs))


def _mask(infos: dict[str, Any]) -> Tensor | None:
    """Which actions are allowed, where the env says so."""
    return torch.as_tensor(infos["action_mask"]) if "action_mask" in infos else None


def _allowed(logits: Tensor, mask: Tensor | None) -> Categorical:
    return Categorical(logits=logits if mask is None else logits.masked_fill(~mask, MASKED))


def _cleanrl_collect(
    agent: _Agent, env: Any, obs: Tensor, mask: Tensor | None, config: TrainConfig
) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
    shape = (config.num_steps, config.num_envs)
    batch = {name: torch.zeros(shape) for name in ("log_probs", "values", "rewards", "dones")}
    batch["obs"], batch["actions"] = torch.zeros((*shape, obs.shape[1])), torch.zeros(shape, dtype=torch.int64)
    if mask is not None:
        batch["mask"] = torch.ones((*shape, mask.shape[1]), dtype=torch.bool)
    for t in range(config.num_steps):
        with torch.no_grad():
            policy = _allowed(agent.actor(obs), mask)
            actions = policy.sample()
            batch["log_probs"][t] = policy.log_prob(actions)
            batch["values"][t] = agent.critic(obs).flatten()
        batch["obs"][t], batch["actions"][t] = obs, actions
        if mask is not None:
            batch["mask"][t] = mask
        next_obs, rewards, terminated, truncated, infos = env.step(actions.numpy())
        mask = _mask(infos)
        batch["rewards"][t] = torch.as_tensor(rewards * config.ppo.reward_scale, dtype=torch.float32)
        batch["dones"][t] = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        obs = torch.as_tensor(next_obs, dtype=torch.float32)
    with torch.no_grad():
        following = agent.critic(obs).flatten()
    credit = torch.zeros(config.num_envs)
    batch["advantages"] = torch.zeros(shape)
    for t in reversed(range(config.num_steps)):
        live = 1.0 - batch["dones"][t]
        surprise = batch["rewards"][t] + config.ppo.gamma * following * live - batch["values"][t]
        credit = surprise + config.ppo.gamma * config.ppo.gae_lambda * live * credit
        batch["advantages"][t], following = credit, batch["values"][t]
    batch["returns"] = batch["advantages"] + batch["values"]
    return batch, obs, mask


def _cleanrl_learn(
    agent: _Agent, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor], config: TrainConfig
) -> None:
    flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items()}
    size, ppo = len(flat["actions"]), config.ppo
    for _ in range(ppo.epochs):
        for part in torch.randperm(size).split(size // MINIBATCHES):
            policy = _allowed(agent.actor(flat["obs"][part]), flat["mask"][part] if "mask" in flat else None)
            ratio = (policy.log_prob(flat["actions"][part]) - flat["log_probs"][part]).exp()
            advantages = flat["advantages"][part]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            clipped = ratio.clamp(1 - ppo.clip, 1 + ppo.clip)
            policy_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
            value_loss = 0.5 * ((agent.critic(flat["obs"][part]).flatten() - flat["returns"][part]) ** 2).mean()
            loss = policy_loss - ppo.entropy * policy.entropy().mean() + ppo.value * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), ppo.max_grad_norm)
            optimizer.step()


def stable_baselines3(config: TrainConfig) -> Contestant:
    """SB3's PPO on our vector env."""
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.logger import Logger
    except ImportError as error:
        raise RedlineError(f"Stable-Baselines3 is not installed. Try: {install('peers')}") from error
    from redline.sb3 import Sb3VecEnv

    ours = make_env(config.env, config.num_envs, **config.env_options)
    if "action_mask" in ours.reset(seed=config.seed)[1]:
        raise RedlineError(f"Stable-Baselines3's PPO knows no action masks, so it cannot play {config.env}.")
    env = Sb3VecEnv(ours, seed=config.seed)
    steps, ppo = config.num_envs * config.num_steps, config.ppo
    nets = {"pi": list(config.hidden), "vf": list(config.hidden)}
    model = PPO(
        "MlpPolicy", env, n_steps=config.num_steps, batch_size=steps // MINIBATCHES, n_epochs=ppo.epochs,
        learning_rate=ppo.learning_rate, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip,
        ent_coef=ppo.entropy, vf_coef=ppo.value, max_grad_norm=ppo.max_grad_norm, seed=config.seed, device="cpu",
        policy_kwargs={"net_arch": nets},
    )  # fmt: skip
    model.set_logger(Logger(folder=None, output_formats=[]))  # its own would leave a folder behind with every update
    model.learn(0)  # sets up what a first learn needs

    def update() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return update


def peer_at(place: str) -> Callable[[TrainConfig], Contestant]:
    """The peer that `module:function` names: the function takes a config and returns a contestant."""
    module, _, function = place.partition(":")
    try:
        found: Callable[[TrainConfig], Contestant] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise RedlineError(f"--peer {place} cannot be imported: {error}.") from error
    return found


PEERS: dict[str, Callable[[TrainConfig], Contestant]] = {
    "CleanRL-style loop": cleanrl_style,
    "Stable-Baselines3": stable_baselines3,
}
