"""What Redline, Gymnasium, Stable-Baselines3 and Ray do when one of four envs fails: `python -m benchmarks.faults`.

Every case is a process of its own with a time limit. Env 1 does something wrong in its fifth step, once; the others are
fine. What is told: whether training goes on, with which error it stops, how long it hangs, and which processes are left
after its main process is gone. `python -m benchmarks.faults raise hang --peers gymnasium` runs some of them.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

LIMIT, START, GRACE, STEPS, NUM_ENVS = 60.0, 180.0, 5.0, 256, 4
"""Seconds after the fault, until envs play, and for processes to end; steps of each env."""
MARK = "REDLINE_FAULTS_MARK"
FAULTS = {
    "raise": "an env raises",
    "base": "an env raises a BaseException",
    "kill": "a worker is killed by SIGKILL",
    "exit": "an env calls os._exit",
    "hang": "an env hangs in a step",
    "close": "an env hangs in close()",
    "nan": "an env returns NaN",
    "shape": "an env returns another shape",
    "print": "an env prints to standard output",
    "child": "an env starts a process that stays",
    "interrupt": "Ctrl-C",
    "orphan": "SIGKILL of the main process",
}


class Odd(gym.Env[np.ndarray, int]):
    """Ten steps make an episode. The one that is told to does something wrong in its fifth step, once."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str = "", folder: str = "") -> None:
        self._fault, self._once, self._steps = fault, Path(folder, "once"), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play a step, or something else."""
        self._steps += 1
        obs = np.full(3, self._steps / 10, np.float32)
        if self._steps == 5 and self._is_first():
            obs = self._go_wrong(obs)
        return obs, 1.0, False, self._steps == 10, {}

    def close(self) -> None:
        """End, or not."""
        if self._fault == "close":
            time.sleep(1000)

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _go_wrong(self, obs: np.ndarray) -> np.ndarray:
        deeds: dict[str, Callable[[], object]] = {
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "exit": lambda: os._exit(3),
            "hang": lambda: time.sleep(1000),
            "print": lambda: os.write(1, b"words of an env\n"),
            "child": lambda: subprocess.Popen(["sleep", "1000"]),
        }
        if self._fault == "raise":
            raise ValueError("as ordered")
        if self._fault == "base":
            raise GeneratorExit("as ordered")
        if self._fault in deeds:
            deeds[self._fault]()
        lies = {"nan": np.full(3, np.nan, np.float32), "shape": np.zeros(4, np.float32)}
        return lies.get(self._fault, obs)


def make(fault: str, folder: str) -> Odd:
    """What an external env is made by."""
    return Odd(fault, folder)


# One case, in a process of its own


def _redline(fault: str, folder: str) -> int:
    from redline.cli import main

    arguments = [
        f"external:benchmarks.faults:make?fault={fault}&folder={folder}",
        "--engine",
        "shared",
        "--workers",
        "2",
    ]
    arguments += [
        "--num-envs",
        str(NUM_ENVS),
        "--num-steps",
        "64",
        "--minibatches",
        "1",
        "--eval-episodes",
        "0",
        "--json",
    ]
    arguments += ["--total-steps", str(_steps(fault) * NUM_ENVS), "--step-deadline", "5", "--run-dir", f"{folder}/run"]
    return main(["train", *arguments])


def _gymnasium(fault: str, folder: str) -> int:
    envs = gym.vector.AsyncVectorEnv([lambda: make(fault, folder)] * NUM_ENVS)
    envs.reset(seed=0)
    for _ in range(_steps(fault)):
        envs.step(np.zeros(NUM_ENVS, np.int64))
    envs.close()
    return 0


def _sb3(fault: str, folder: str) -> int:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([lambda: make(fault, folder)] * NUM_ENVS)
    PPO("MlpPolicy", envs, n_steps=64, device="cpu").learn(_steps(fault) * NUM_ENVS)
    envs.close()
    return 0


def _ray(fault: str, folder: str) -> int:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="error")
    actor = ray.remote(num_cpus=0.5)(Odd)
    envs = [actor.remote(fault, folder) for _ in range(NUM_ENVS)]
    ray.get([env.reset.remote(seed=i) for i, env in enumerate(envs)])
    for t in range(_steps(fault)):
        ray.get(
            [(env.reset if t % 10 == 9 else env.step).remote(**({} if t % 10 == 9 else {"action": 0})) for env in envs]
        )
    ray.get([env.close.remote() for env in envs])
    ray.shutdown()
    return 0


def _steps(fault: str) -> int:
    return 10**7 if fault in ("interrupt", "orphan") else STEPS


PEERS = {"redline": _redline, "gymnasium": _gymnasium, "sb3": _sb3, "ray": _ray}


# All cases


def measure(peer: str, fault: str) -> str:
    """What a peer does with a fault, in words."""
    mark = secrets.token_hex(8)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.faults", "--case", peer, fault, folder]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, env={**os.environ, MARK: mark}, start_new_session=True
            )
            try:
                _trouble(fault, process, folder)
                code: int | None = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                code = None
            left = 0 if code is None else _left(mark)
            _end_all(mark)
            process.wait()
            words = [_read(out), _read(err)]
        return _told(fault, code, left, *words)


def _trouble(fault: str, process: subprocess.Popen, folder: str) -> None:
    """Wait until envs play, then do to the main process what the fault asks for."""
    until = time.monotonic() + START
    while not Path(folder, "once").exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    if process.poll() is None and fault == "interrupt":
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    elif fault == "orphan":
        process.kill()


def _told(fault: str, code: int | None, left: int, out: str, err: str) -> str:
    if code is None:
        return f"hangs (ended after {LIMIT:.0f} s)"
    if fault in ("interrupt", "orphan"):
        lines = sum(1 for line in err.splitlines() if line.strip())
        told = f"exit code {code}, {lines} lines of errors" if fault == "interrupt" else "ended"
    elif code == 0:
        told = "goes on"
    else:
        last = next((line for line in reversed(err.splitlines()) if line and not line.startswith(" ")), "")
        told = f"stops with exit code {code}: {last[:80]}"
    if fault == "print" and code == 0:
        told += "; its words are in standard output" if "words of an env" in out else "; standard output stays clean"
    if fault in ("nan", "shape") and code == 0:
        told += "; named" if "holds nan" in err or "shape" in err else "; not noticed"
    return f"{told}; {left} processes left" if left else told


def _left(mark: str) -> int:
    """Processes of a case that outlive its main process by seconds."""
    until = time.monotonic() + GRACE
    while (found := _marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    return len(found)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes() and stat != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _end_all(mark: str) -> None:
    for pid in _marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _read(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def main() -> int:
    """Measure all cases, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="fault", help=f"some of {', '.join(FAULTS)}; default: all")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        peer, fault, folder = options.case
        return PEERS[peer](fault, folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs would be deaf to it
    chosen = options.faults or list(FAULTS)
    found: dict[str, dict[str, str]] = {}
    for fault in chosen:
        found[fault] = {}
        for peer in options.peers:
            found[fault][peer] = measure(peer, fault)
            if not options.json:
                print(f"{FAULTS[fault]}: {peer}: {found[fault][peer]}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
