"""Steps all envs together and asks the policy once per step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from redline.errors import RedlineError
from redline.rollout import Acting, Outcome, Rollout
from redline.timing.stopwatch import Stopwatch


class Lockstep:
    """Collects from any `VectorEnv` that resets an ended episode in the same step."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise RedlineError(
                f"{env} does not reset ended episodes in the same step. Make it with AutoresetMode.SAME_STEP."
            )
        self.env = env
        self._obs, infos = env.reset(seed=seed)
        self._masks = _masks_in(infos)
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, np.int64)

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        rollout = Rollout.empty(num_steps, self.env.num_envs)
        finished: list[dict[str, np.ndarray]] = []
        with watch.span("policy"):
            policy.begin(num_steps)
        for t in range(num_steps):
            with watch.span("policy"):
                decision = policy.act(self._obs, self._masks)
            with watch.span("env"):
                outcome = Outcome(*self.env.step(decision.actions))
            with watch.span("record"):
                rollout.write(t, decision, outcome)
                self._count(outcome, finished)
                cut = outcome.truncated & ~outcome.terminated
            if cut.any():  # these episodes would have gone on without us
                with watch.span("policy"):
                    rollout.next_values[t, cut] = policy.value(outcome.final_obs(cut))
            self._obs, self._masks = outcome.obs, _masks_in(outcome.infos)
        with watch.span("policy"):
            rollout.link_values(policy.value(self._obs))
            rollout.observations, rollout.masks = policy.observations()
        if finished:
            whole = {name: np.concatenate([each[name] for each in finished]) for name in finished[0]}
            rollout.episode_returns, rollout.episode_lengths = whole.pop("return"), whole.pop("length")
            rollout.episode_metrics = whole
        return rollout

    def _count(self, outcome: Outcome, finished: list[dict[str, np.ndarray]]) -> None:
        self._returns += outcome.rewards
        self._lengths += 1
        ended = outcome.terminated | outcome.truncated
        if ended.any():
            more = {name: values[ended] for name, values in outcome.infos.get("episode_metrics", {}).items()}
            finished.append({"return": self._returns[ended], "length": self._lengths[ended], **more})
            self._returns[ended] = 0.0
            self._lengths[ended] = 0

    def snapshot(self) -> dict[str, np.ndarray] | None:
        """Everything needed to go on from here, if the env can tell."""
        if not hasattr(self.env, "snapshot"):
            return None
        masks = {} if self._masks is None else {"masks": self._masks.copy()}
        return {**self.env.snapshot(), **masks, "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._obs = self.env.restore(snapshot)  # type: ignore[attr-defined]
        self._masks = snapshot.get("masks")
        self._returns[:], self._lengths[:] = snapshot["returns"], snapshot["lengths"]

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def _masks_in(infos: dict[str, Any]) -> np.ndarray | None:
    """Masks bool [N, actions], if the env gives any; Gymnasium's own envs write them as int8."""
    masks = infos.get("action_mask")
    return None if masks is None else np.asarray(masks, np.bool_)
