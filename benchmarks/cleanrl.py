"""PPO in one loop, as CleanRL writes it and with its settings: for flat observations, and Discrete or Box actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from redline.worlds.registry import make_single


@dataclass(frozen=True)
class LoopSettings:
    """What the loop is run with."""

    num_envs: int
    num_steps: int
    learning_rate: float
    epochs: int
    minibatches: int
    entropy: float
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    max_grad_norm: float = 0.5


DISCRETE = LoopSettings(4, 128, 2.5e-4, 4, 4, 0.01)
CONTINUOUS = LoopSettings(1, 2048, 3e-4, 10, 32, 0.0)


class LoopAgent(nn.Module):
    """Actor and critic of two layers each."""

    def __init__(self, inputs: int, actions: gym.Space) -> None:
        super().__init__()
        self.is_discrete = isinstance(actions, gym.spaces.Discrete)
        outputs = int(actions.n) if isinstance(actions, gym.spaces.Discrete) else int(np.prod(actions.shape or ()))
        self.actor, self.critic = _mlp(inputs, outputs, 0.01), _mlp(inputs, 1, 1.0)
        self.log_deviations = nn.Parameter(torch.zeros(outputs))

    def policy(self, obs: Tensor) -> Any:
        """The distribution over actions."""
        outputs = self.actor(obs)
        if self.is_discrete:
            return Categorical(logits=outputs)
        return Independent(Normal(outputs, self.log_deviations.exp().expand_as(outputs)), 1)


def _mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, size in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, size)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Loop:
    """Trains an agent on an env."""

    def __init__(self, env: str, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._name, self._seed = env, seed
        space = make_single(env).action_space
        self.settings = DISCRETE if isinstance(space, gym.spaces.Discrete) else CONTINUOUS
        self.envs = self._make(self.settings.num_envs, training=True)
        self.agent = LoopAgent(int(np.prod(self.envs.single_observation_space.shape or ())), space)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=self.settings.learning_rate, eps=1e-5)
        self.updates = max(1, steps // (self.settings.num_envs * self.settings.num_steps))

    def _make(self, count: int, training: bool) -> SyncVectorEnv:
        def one() -> gym.Env:
            env: gym.Env = gym.wrappers.FlattenObservation(make_single(self._name))
            if self.settings is CONTINUOUS:
                env = gym.wrappers.NormalizeObservation(gym.wrappers.ClipAction(env))
                if training:
                    env = gym.wrappers.NormalizeReward(env, gamma=self.settings.gamma)
                    env = gym.wrappers.TransformReward(env, lambda reward: max(-10.0, min(10.0, float(reward))))
            return env

        return SyncVectorEnv([one] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    def train(self) -> int:
        """Train to the end. Returns the env steps that took."""
        obs, _ = self.envs.reset(seed=self._seed)
        for update in range(self.updates):
            self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * (1 - update / self.updates)
            batch, obs = self._collect(obs)
            self._learn(batch)
        return self.updates * self.settings.num_envs * self.settings.num_steps

    def _collect(self, obs: np.ndarray) -> tuple[dict[str, Tensor], np.ndarray]:
        told: dict[str, list[Tensor]] = {
            key: [] for key in ("obs", "actions", "log_probs", "values", "rewards", "live")
        }
        for _ in range(self.settings.num_steps):
            seen = _seen(obs)
            with torch.no_grad():
                policy = self.agent.policy(seen)
                actions = policy.sample()
                step = (seen, actions, policy.log_prob(actions), self.agent.critic(seen).flatten())
            obs, rewards, terminated, truncated, _ = self.envs.step(actions.numpy())
            live = torch.as_tensor(~(terminated | truncated), dtype=torch.float32)
            for key, value in zip(told, (*step, torch.as_tensor(rewards, dtype=torch.float32), live), strict=True):
                told[key].append(value)
        batch = {key: torch.stack(values) for key, values in told.items()}
        with torch.no_grad():
            following = self.agent.critic(_seen(obs)).flatten()
        return _with_advantages(batch, following, self.settings), obs

    def _learn(self, batch: dict[str, Tensor]) -> None:
        flat, settings = {key: value.flatten(0, 1) for key, value in batch.items()}, self.settings
        size = len(flat["actions"])
        for _ in range(settings.epochs):
            for part in torch.randperm(size).split(size // settings.minibatches):
                loss = self._loss({key: value[part] for key, value in flat.items()})
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), settings.max_grad_norm)
                self.optimizer.step()

    def _loss(self, part: dict[str, Tensor]) -> Tensor:
        policy, clip = self.agent.policy(part["obs"]), self.settings.clip
        ratio = (policy.log_prob(part["actions"]) - part["log_probs"]).exp()
        advantages = (part["advantages"] - part["advantages"].mean()) / (part["advantages"].std() + 1e-8)
        policy_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
        values = self.agent.critic(part["obs"]).flatten()
        near = part["values"] + (values - part["values"]).clamp(-clip, clip)
        value_loss = torch.max((values - part["returns"]) ** 2, (near - part["returns"]) ** 2).mean()
        return policy_loss - self.settings.entropy * policy.entropy().mean() + 0.25 * value_loss

    def play(self, episodes: int, seed: int) -> list[float]:
        """Returns of fresh episodes, with actions drawn."""
        envs = self._make(1, training=False)
        if self.settings is CONTINUOUS:
            [fresh] = envs.get_attr("obs_rms")
            [known] = self.envs.get_attr("obs_rms")
            fresh.mean, fresh.var, fresh.count = known.mean, known.var, known.count
            envs.set_attr("update_running_mean", False)
        obs, _ = envs.reset(seed=seed)
        returns: list[float] = []
        running = 0.0
        while len(returns) < episodes:
            with torch.no_grad():
                actions = self.agent.policy(_seen(obs)).sample().numpy()
            obs, rewards, terminated, truncated, _ = envs.step(actions)
            running += float(rewards[0])
            if terminated[0] or truncated[0]:
                returns.append(running)
                running = 0.0
        envs.close()
        return returns


def _seen(obs: np.ndarray) -> Tensor:
    return torch.as_tensor(obs, dtype=torch.float32).clamp(-10, 10) if obs.dtype.kind == "f" else torch.as_tensor(obs)


def _with_advantages(batch: dict[str, Tensor], following: Tensor, settings: LoopSettings) -> dict[str, Tensor]:
    """The batch with advantages and returns."""
    credit, advantages = torch.zeros_like(following), torch.zeros_like(batch["rewards"])
    for t in reversed(range(len(advantages))):
        live = batch["live"][t]
        surprise = batch["rewards"][t] + settings.gamma * following * live - batch["values"][t]
        advantages[t] = credit = surprise + settings.gamma * settings.gae_lambda * live * credit
        following = batch["values"][t]
    return {**batch, "advantages": advantages, "returns": advantages + batch["values"]}
