"""Steps all envs together and asks the policy once per step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from redline.engines.tally import Tally
from redline.errors import RedlineError
from redline.rollout import Acting, Outcome, Rollout
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes


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
        self._tally = Tally(env.num_envs)
        self._times: WorkerTimes | None = getattr(env, "times", None)
        self._stepping = "wait" if getattr(env, "remote", False) else "env"

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        rollout = Rollout.empty(num_steps, self.env.num_envs, policy.version)
        self._tally.begin()
        acting, stepping, recording = watch.span("policy"), watch.span(self._stepping), watch.span("record")
        with acting:
            policy.begin(num_steps)
        for t in range(num_steps):
            with acting:
                decision = policy.act(self._obs, self._masks)
            with stepping:
                outcome = Outcome(*self.env.step(decision.actions))
                if self._times is not None:
                    self._times.credit(watch)
            with recording:
                rollout.write(t, decision, outcome)
                lost = outcome.infos.get("lost")
                self._tally.step(t, outcome, lost)
                cut = outcome.truncated & ~outcome.terminated
                if lost is not None:
                    rollout.forget(self._tally.forget(t, lost))
                    cut &= ~lost
            if cut.any():  # these episodes would have gone on without us
                with acting:
                    rollout.next_values[t, cut] = policy.value(outcome.final_obs(cut))
            self._obs, self._masks = outcome.obs, _masks_in(outcome.infos)
        with acting:
            rollout.link_values(policy.value(self._obs))
            rollout.observations, rollout.masks = policy.observations()
        with recording:
            self._tally.write(rollout)
        return rollout

    def snapshot(self) -> dict[str, np.ndarray] | None:
        """Everything needed to go on from here, if the env can tell."""
        state = self.env.snapshot() if hasattr(self.env, "snapshot") else None
        if state is None:
            return None
        masks = {} if self._masks is None else {"masks": self._masks.copy()}
        return {**state, **masks, **self._tally.snapshot()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._obs = self.env.restore(snapshot)  # type: ignore[attr-defined]
        self._masks = snapshot.get("masks")
        self._tally.restore(snapshot)

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def _masks_in(infos: dict[str, Any]) -> np.ndarray | None:
    """Masks bool [N, actions], if the env gives any; Gymnasium's own envs write them as int8."""
    masks = infos.get("action_mask")
    return None if masks is None else np.asarray(masks, np.bool_)
