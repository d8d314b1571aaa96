"""How PPO is trained in JAX: collecting and learning in one jitted function, as PureJaxRL does it.

The env is our compiled simulator, which the function calls back once a step. Networks, batch sizes, epochs and
minibatches are those of the other peers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from redline.bench.peers import MINIBATCHES
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.heads.masking import MASKED
from redline.worlds.registry import make_env

BETA_1, BETA_2, EPS = 0.9, 0.999, 1e-5


class JaxSeen(NamedTuple):
    """What the envs show: arrays [N, ...]."""

    obs: Any  # float32 [N, numbers]
    mask: Any  # bool [N, actions]


class JaxSteps(NamedTuple):
    """What was collected: arrays [T, N, ...], or [n, ...] in a minibatch."""

    seen: JaxSeen
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    live: Any
    advantages: Any
    returns: Any


class JaxAdam(NamedTuple):
    """Weights and what Adam remembers of their gradients."""

    weights: Any
    means: Any
    squares: Any
    count: Any


class JaxRun(NamedTuple):
    """All that one update hands to the next."""

    optimizer: JaxAdam
    seen: JaxSeen
    key: Any


def jitted(config: TrainConfig, minibatches: int) -> Callable[[], int]:
    """One update at a call; returns the env steps it took."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # or a callback may wait for what waits for it
    envs = _JaxEnvs(config)
    key, weights_key = jax.random.split(jax.random.PRNGKey(config.seed))
    sizes = [envs.first.obs.shape[1], *config.hidden]
    weights = {
        "actor": _layers(weights_key, [*sizes, envs.num_actions]),
        "critic": _layers(jax.random.fold_in(weights_key, 1), [*sizes, 1]),
    }
    nothing = jax.tree.map(jnp.zeros_like, weights)
    going = JaxRun(JaxAdam(weights, nothing, nothing, jnp.zeros((), jnp.int32)), envs.first, key)
    update = jax.jit(lambda going: _update(going, envs, config, minibatches))
    state = [going]

    def run() -> int:
        state[0] = jax.block_until_ready(update(state[0]))
        return config.num_envs * config.num_steps

    return run


class _JaxEnvs:
    """Our simulator as JAX calls it back."""

    def __init__(self, config: TrainConfig) -> None:
        self._env = make_env(config.env, config.num_envs, **config.env_options)
        self._scale = np.float32(config.ppo.reward_scale)
        self.num_actions = int(self._env.single_action_space.n)  # type: ignore[attr-defined]
        self.first = self._seen(*self._env.reset(seed=config.seed))
        one = jax.ShapeDtypeStruct((config.num_envs,), jnp.float32)
        self._shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.first), one, one

    def step(self, actions: Any) -> tuple[JaxSeen, Any, Any]:
        """What follows on actions: what is seen, rewards, and 1 where the episode goes on."""
        told: tuple[JaxSeen, Any, Any] = io_callback(self._step, self._shapes, actions, ordered=True)
        return told

    def _step(self, actions: Any) -> tuple[JaxSeen, np.ndarray, np.ndarray]:
        obs, rewards, terminated, truncated, infos = self._env.step(np.asarray(actions, np.int64))
        live = np.logical_not(np.logical_or(terminated, truncated)).astype(np.float32)
        return self._seen(obs, infos), (rewards * self._scale).astype(np.float32), live

    def _seen(self, obs: np.ndarray, infos: dict[str, Any]) -> JaxSeen:
        mask = infos.get("action_mask")
        everything = np.ones((1, self.num_actions), np.bool_)
        return JaxSeen(obs.astype(np.float32), everything if mask is None else mask.copy())


def _layers(key: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    orthogonal = jax.nn.initializers.orthogonal(2**0.5)
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(orthogonal(each, (before, after), jnp.float32), jnp.zeros(after)) for each, before, after in pairs]


def _through(layers: list[tuple[Any, Any]], numbers: Any) -> Any:
    for weight, bias in layers[:-1]:
        numbers = jnp.tanh(numbers @ weight + bias)
    weight, bias = layers[-1]
    return numbers @ weight + bias


def _log_probs(weights: Any, seen: JaxSeen) -> Any:
    logits = _through(weights["actor"], seen.obs)
    return jax.nn.log_softmax(jnp.where(seen.mask, logits, MASKED))


def _update(going: JaxRun, envs: _JaxEnvs, config: TrainConfig, minibatches: int) -> JaxRun:
    """Collect once and learn from it."""
    key, acting, shuffling = jax.random.split(going.key, 3)
    seen, steps = _collect(going.optimizer.weights, going.seen, acting, envs, config)
    count = config.num_steps * config.num_envs
    flat = jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:1], config.num_envs, *x.shape[2:])), steps)
    flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), flat)

    def epoch(optimizer: JaxAdam, key: Any) -> tuple[JaxAdam, None]:
        order = jax.random.permutation(key, count)[: count - count % minibatches].reshape(minibatches, -1)
        return jax.lax.scan(lambda each, rows: (_learn(each, flat, rows, config.ppo), None), optimizer, order)

    optimizer, _ = jax.lax.scan(epoch, going.optimizer, jax.random.split(shuffling, config.ppo.epochs))
    return JaxRun(optimizer, seen, key)


def _collect(weights: Any, seen: JaxSeen, key: Any, envs: _JaxEnvs, config: TrainConfig) -> tuple[JaxSeen, JaxSteps]:
    def step(seen: JaxSeen, key: Any) -> tuple[JaxSeen, tuple[Any, ...]]:
        log_probs = _log_probs(weights, seen)
        actions = jax.random.categorical(key, log_probs)
        chosen = jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
        values = _through(weights["critic"], seen.obs)[:, 0]
        following, rewards, live = envs.step(actions)
        return following, (seen, actions, chosen, values, rewards, live)

    last, told = jax.lax.scan(step, seen, jax.random.split(key, config.num_steps))
    before, actions, log_probs, values, rewards, live = told
    advantages = _advantages(values, rewards, live, _through(weights["critic"], last.obs)[:, 0], config.ppo)
    return last, JaxSteps(before, actions, log_probs, values, rewards, live, advantages, advantages + values)


def _advantages(values: Any, rewards: Any, live: Any, last: Any, ppo: PPOConfig) -> Any:
    def back(carry: tuple[Any, Any], step: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], Any]:
        (credit, following), (value, reward, live) = carry, step
        credit = reward + ppo.gamma * following * live - value + ppo.gamma * ppo.gae_lambda * live * credit
        return (credit, value), credit

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (values, rewards, live), reverse=True)[1]


def _learn(optimizer: JaxAdam, flat: JaxSteps, rows: Any, ppo: PPOConfig) -> JaxAdam:
    """One step of Adam on a minibatch."""
    part = jax.tree.map(lambda x: x[rows], flat)
    gradient = jax.grad(_loss)(optimizer.weights, part, ppo)
    norm = jnp.sqrt(sum(jnp.sum(each**2) for each in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda each: each * jnp.minimum(1.0, ppo.max_grad_norm / (norm + 1e-6)), gradient)
    count = optimizer.count + 1
    means = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, optimizer.means, gradient)
    squares = jax.tree.map(lambda s, g: BETA_2 * s + (1 - BETA_2) * g * g, optimizer.squares, gradient)
    pace, correction = ppo.learning_rate / (1 - BETA_1**count), jnp.sqrt(1 - BETA_2**count)
    weights = jax.tree.map(
        lambda w, m, s: w - pace * m / (jnp.sqrt(s) / correction + EPS), optimizer.weights, means, squares
    )  # fmt: skip
    return JaxAdam(weights, means, squares, count)


def _loss(weights: Any, part: JaxSteps, ppo: PPOConfig) -> Any:
    log_probs = _log_probs(weights, part.seen)
    ratio = jnp.exp(jnp.take_along_axis(log_probs, part.actions[:, None], 1)[:, 0] - part.log_probs)
    advantages = (part.advantages - part.advantages.mean()) / (part.advantages.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - ppo.clip, 1 + ppo.clip)
    policy_loss = jnp.maximum(-advantages * ratio, -advantages * clipped).mean()
    value_loss = 0.5 * ((_through(weights["critic"], part.seen.obs)[:, 0] - part.returns) ** 2).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return policy_loss - ppo.entropy * entropy + ppo.value * value_loss


def jax_style(config: TrainConfig) -> Callable[[], int]:
    """Collecting and learning in one function: `redline bench train ENV --peer benchmarks.jax_peer:jax_style`."""
    return jitted(config, MINIBATCHES)
