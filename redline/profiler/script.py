"""Profiles a training script that is not ours: samples its stack and says what its time went into.

A timer interrupts the main thread. The innermost frame that belongs to a span gets the time since
the last sample: a module called without gradients is acting, one called with them is part of a loss.
"""

from __future__ import annotations

import difflib
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from redline.errors import RedlineError
from redline.signals import exit_code_of
from redline.threads import cores

INTERVAL = 0.002
"""Seconds between two samples."""
IMPORTS = "imports"
OWN = "the script's own Python"
FORWARD = "policy forward"
LOSS = "loss (forward with gradients)"
ENV_STEP = "env step"
ENV_RESET = "env reset"
BACKWARD = "backward"
OPTIMIZER = "optimizer step"
SPANS = (ENV_STEP, ENV_RESET, FORWARD, LOSS, BACKWARD, OPTIMIZER, OWN)
"""The spans that shares are given for: all but the imports, which happen once however long it trains."""
TORCH_SPANS = {
    "_call_impl": FORWARD,
    "backward": BACKWARD,
    "grad": BACKWARD,
    "clip_grad_norm_": OPTIMIZER,
}
ENV_SPANS = {
    "step": ENV_STEP,
    "step_wait": ENV_STEP,
    "step_async": ENV_STEP,
    "reset": ENV_RESET,
}
ENV_CLASSES = {"Env", "VectorEnv", "VecEnv"}
LEAST_SECONDS = 0.1
"""Of work: shares of less say nothing about a real run."""
WORTH_SAYING = 1.05
"""Estimated speed-up below which nothing is suggested."""


@dataclass(frozen=True)
class ScriptProfile:
    """Where the time of a script's main thread went, and how the script ended."""

    seconds: dict[str, float]
    exit_code: int
    traceback: str | None

    @property
    def total_seconds(self) -> float:
        """Wall time of the run."""
        return sum(self.seconds.values())

    def share(self, *spans: str) -> float:
        """Part of the run that some spans took; imports are no part of the run."""
        whole = self.total_seconds - self.seconds.get(IMPORTS, 0.0)
        if whole <= 0:
            return 0.0
        return sum(self.seconds.get(span, 0.0) for span in spans) / whole


def profile_script(path: Path, arguments: Sequence[str] = ()) -> ScriptProfile:
    """Run `python path *arguments` in this process. An interrupted run has a profile, too."""
    require_script(path)
    sampler = Sampler()
    failure = None
    with _as_main_program(path, arguments), sampler.running():
        try:
            runpy.run_path(os.path.abspath(path), run_name="__main__")
            exit_code = 0
        except SystemExit as leaving:
            exit_code = _exit_code(leaving)
        except BaseException as error:
            exit_code = exit_code_of(error) if isinstance(error, KeyboardInterrupt) else 1
            frames = _script_frames(error.__traceback__)
            failure = "".join(traceback.format_exception(type(error), error, frames))
    sys.stdout.flush()
    return ScriptProfile(sampler.seconds, exit_code, failure)


class Sampler:
    """Adds the time since the last sample to the span that the main thread is in."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample within the block. System calls that a sample interrupts are restarted."""
        old_handler = signal.signal(signal.SIGALRM, self._sample)
        signal.siginterrupt(signal.SIGALRM, False)
        self._last = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._sample(0, None)
            signal.signal(signal.SIGALRM, old_handler)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        span = span_of(frame)
        self.seconds[span] = self.seconds.get(span, 0.0) + now - self._last
        self._last = now


def span_of(frame: FrameType | None) -> str:
    """The span of a stack: that of its innermost frame that belongs to one."""
    while frame is not None:
        code = frame.f_code
        if "/torch/" in code.co_filename and (span := _torch_span(code)):
            return span
        if code.co_name in ENV_SPANS and is_env(frame.f_locals.get("self")):
            return ENV_SPANS[code.co_name]
        if code.co_filename == "<frozen importlib._bootstrap>":
            return IMPORTS
        frame = frame.f_back
    return OWN


def is_env(owner: object) -> bool:
    """Whether an object is an env of Gymnasium or a vector env of Stable-Baselines3."""
    return any(kind.__name__ in ENV_CLASSES for kind in type(owner).__mro__)


def _gradients_enabled() -> bool:
    enabled = getattr(sys.modules["torch"], "is_grad_enabled", None)
    return enabled is not None and enabled()  # None: torch is still being imported


def _torch_span(code: CodeType) -> str | None:
    if code.co_name == "<module>":  # it is being imported
        return None
    if "/torch/optim/" in code.co_filename:
        return OPTIMIZER
    with_gradients = _gradients_enabled()
    if "/torch/distributions/" in code.co_filename and with_gradients:
        return LOSS
    span = TORCH_SPANS.get(code.co_name)
    if span == FORWARD and with_gradients:
        return LOSS
    return span


@contextmanager
def _as_main_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Let the script find its arguments, its neighbours and Python's own Ctrl-C."""
    old_argv = sys.argv
    old_path = list(sys.path)
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
        sys.argv = old_argv
        sys.path[:] = old_path


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code
    print(leaving.code, file=sys.stderr)
    return 1


def _script_frames(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that started the script."""
    ours = (__file__, "<frozen runpy>")
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


def require_script(path: Path) -> None:
    """Refuse what is not a Python script."""
    if path.is_dir():
        raise RedlineError(f"{path} is a directory, not a script. Try --script {path / 'train.py'}.")
    if not path.exists():
        names = [each.name for each in path.parent.glob("*.py")]
        nearest = difflib.get_close_matches(path.name, names, n=1, cutoff=0.4)
        hint = f" Try --script {path.parent / nearest[0]}." if nearest else ""
        raise RedlineError(f"There is no script {path}.{hint}")
    if path.suffix not in (".py", ".pyw"):
        raise RedlineError(f"{path} is not a Python file. Try --script {path.stem}.py.")
    if not os.access(path, os.R_OK):
        raise RedlineError(f"{path} cannot be read by this user. Try: chmod u+r {path}")


@dataclass(frozen=True)
class ScriptAdvice:
    """What takes the time, what to do about it, and how many times faster the run should become."""

    what: str
    share: float
    do: str
    estimate: float

    def __str__(self) -> str:
        return f"{self.what} is {self.share:.0%}: {self.do}: expected {self.estimate:.1f}x"


def advise_script(found: ScriptProfile) -> list[ScriptAdvice]:
    """Suggestions worth making, best first, by Amdahl's law."""
    if found.total_seconds - found.seconds.get(IMPORTS, 0.0) < LEAST_SECONDS:
        return []
    rules: list[tuple[str, tuple[str, ...], str, int]] = [
        ("env.step", (ENV_STEP, ENV_RESET), "put your envs on redline.vector(…, 'shared')", cores()),
        ("the policy's forward pass", (FORWARD,), "step twice as many envs per forward pass", 2),
    ]
    advice = []
    for what, spans, do, factor in rules:
        share = found.share(*spans)
        estimate = 1.0 / (1.0 - share + share / factor)
        if estimate >= WORTH_SAYING:
            advice.append(ScriptAdvice(what, share, do, estimate))
    return sorted(advice, key=lambda each: -each.estimate)


def script_json(found: ScriptProfile) -> dict[str, Any]:
    """As plain data."""
    rows = []
    for span in (*SPANS, IMPORTS):
        share = None if span == IMPORTS else found.share(span)
        rows.append({"name": span, "seconds": found.seconds.get(span, 0.0), "share": share})
    return {
        "exit_code": found.exit_code,
        "total_seconds": found.total_seconds,
        "rows": rows,
    }
