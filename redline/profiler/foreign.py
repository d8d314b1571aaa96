"""Profiles a training script that is not ours: runs it unchanged and says where its time went.

Gymnasium, Stable-Baselines3, TorchRL and torch are wrapped from outside, each as soon as the script has imported it, so
the script pays for its own imports. Every nanosecond of the script's main thread belongs to exactly one span:

  imports          loading modules
  env_step         step of an env or a vector env; waiting for the env's worker processes is part of it
  env_reset        reset, also where a step calls it (autoreset)
  policy_forward   an outermost `nn.Module` call while gradients are disabled
  loss             training forward and loss arithmetic, see below
  backward         Tensor.backward, torch.autograd.backward, torch.autograd.grad
  optimizer        Optimizer.step and clip_grad_norm_
  script           everything else: the script's own Python, sampling of actions, buffers, advantages, logging

A call inside a call of the same kind (an env below its wrappers, a module inside a module) is part of the outer one. A
call inside one of another kind takes its own time out of the outer one's.

The loss rule: a module called with gradients enabled may be the beginning of a loss, or acting by someone who did not
switch gradients off. What happens next tells: if a backward or an optimizer step follows, everything since that call was
loss (except what other spans took for themselves); if an env is stepped or reset first, or nothing follows, the call was
policy_forward and the time after it the script's.

A watched call costs about a microsecond, one inside it a seventh of that: some 5 % of a PPO on CartPole with four envs and
tiny networks, where every call is short, and less wherever envs or networks do more.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from redline.errors import RedlineError
from redline.signals import exit_code_of
from redline.timing.breakdown import Breakdown

Clock = Callable[[], int]
TraceEvent = tuple[int, int, str]

SCRIPT, IMPORTS, ENV_STEP, ENV_RESET, OPTIMIZER, LOSS, UNDECIDED, FORWARD, POLICY, BACKWARD = range(10)
# UNDECIDED is the time after a forward with gradients (FORWARD), until it is known what that forward was for.
# Modules called inside one of the last three are part of it: children, and what checkpointing computes again.
ENVS = frozenset({ENV_STEP, ENV_RESET})
DECISIVE = ENVS | {OPTIMIZER, BACKWARD}
STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
NAMES = {
    IMPORTS: "imports",
    ENV_STEP: "env_step",
    ENV_RESET: "env_reset",
    POLICY: "policy_forward",
    LOSS: "loss",
    BACKWARD: "backward",
    OPTIMIZER: "optimizer",
    SCRIPT: "script",
}
MOST_EVENTS = 200_000
MOST_EVENTS_OF_A_SPAN = MOST_EVENTS // len(NAMES)
MOST_UNDECIDED = 10_000
"""Forwards with gradients after which we stop waiting for a backward: no loss calls its network this often."""


@dataclass(frozen=True)
class ScriptProfile:
    """Where the time of a script went, and how it ended."""

    breakdown: Breakdown
    """Seconds and calls of every span in NAMES; they add up to the wall time of the run."""
    env_steps: int
    """Steps the script asked for, on any thread: a vector env counts once per env, steps inside a reset do not count."""
    episodes: int | None
    """Episodes that ended in these steps. None if there were no steps, or if an env's answer does not tell."""
    exit_code: int
    """The code that `python script` would have ended with."""
    traceback: str | None
    """Python's own words about the script's failure or interruption. None if it ended well."""
    events: list[TraceEvent] = field(repr=False)
    """(start, duration, span) in nanoseconds since the start of the run, by start; a call inside a call overlaps it."""
    sampled: dict[str, int]
    """Spans with too many calls to keep: of `name` only every n-th is in `events`. Empty if all of them are."""
    background: Breakdown
    """Seconds of other threads in the same spans meanwhile; not part of the breakdown."""

    @property
    def steps_per_second(self) -> float:
        """Env steps per second of the whole run."""
        seconds = self.breakdown.total_seconds
        return self.env_steps / seconds if seconds else 0.0

    @property
    def working_seconds(self) -> float:
        """Seconds of the run without its imports, which happen once however long it trains."""
        return self.breakdown.total_seconds - self.breakdown.seconds.get((NAMES[IMPORTS],), 0.0)

    @property
    def working_rate(self) -> float:
        """Env steps per second, imports aside."""
        return self.env_steps / self.working_seconds if self.working_seconds > 0 else 0.0


def profile_script(path: Path, arguments: Sequence[str] = (), clock: Clock = time.perf_counter_ns) -> ScriptProfile:
    """Run a script as `python path *arguments` would, in this process, and return where its time went.

    The script's failure is not ours: the profile has the traceback Python would print, and covers the run up to there. An
    interrupted run has exit code 130 and a profile too, so Ctrl-C is a way to end a long one.
    """
    path = _checked(Path(path))
    tracks = _Tracks(clock, [])
    patches = _Patches(tracks)
    try:
        patches.apply()
        tracks.current.start()
        exit_code, failure = _run(path, arguments)
    finally:
        tracks.current.finish()
        patches.undo()
    return _profile(tracks, exit_code, failure)


def _checked(path: Path) -> Path:
    """The path, if there is a Python script."""
    if path.is_dir():
        found = sorted(path.glob("*.py"), key=lambda each: (each.stem not in ("train", "main", "__main__"), each.name))
        raise RedlineError(
            f"{path} is a directory, not a script. Try --script {found[0] if found else path / 'train.py'}."
        )
    if not path.exists():
        names = [each.name for each in path.parent.glob("*.py")]
        nearest = difflib.get_close_matches(path.name, names, n=1, cutoff=0.4) or sorted(names)[:1]
        hint = f"Try --script {path.parent / nearest[0]}" if nearest else "Give the path of a Python file: train.py"
        raise RedlineError(f"There is no script {path}. {hint}.")
    if path.suffix not in (".py", ".pyw"):
        raise RedlineError(f"{path} is not a Python file: its name does not end in .py. Try --script {path.stem}.py.")
    if not os.access(path, os.R_OK):
        raise RedlineError(f"{path} cannot be read by this user. Try: chmod u+r {path}")
    return path


# Running the script


def _run(path: Path, arguments: Sequence[str]) -> tuple[int, BaseException | None]:
    """Run the script as __main__. Returns its exit code, and what ended it if it did not end well."""
    argv, search_path, our_main = sys.argv, list(sys.path), sys.modules["__main__"]
    threads = set(threading.enumerate())
    script = os.path.abspath(path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    sys.modules["__main__"] = main = _main_module(script)  # worker processes find the script by it
    try:
        ending = _ending(
            lambda: exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), vars(main))
        )
        joining = _ending(lambda: _join(set(threading.enumerate()) - threads))
        return joining if joining[0] else ending
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, search_path, our_main


def _main_module(script: str) -> ModuleType:
    module = ModuleType("__main__")
    vars(module).update(
        __file__=script, __builtins__=builtins, __cached__=None, __loader__=SourceFileLoader("__main__", script)
    )
    return module


def _ending(run: Callable[[], None]) -> tuple[int, BaseException | None]:
    """How a run ends: its exit code, and the error if one ended it."""
    try:
        run()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0, None
        print(leaving.code, file=sys.stderr)
        return 1, None
    except BaseException as error:
        return exit_code_of(error) if isinstance(error, KeyboardInterrupt) else 1, _without_us(error)
    finally:
        sys.stdout.flush()
    return 0, None


def _join(threads: set[threading.Thread]) -> None:
    """Wait for the script's threads, as Python does before it ends. Those of an executor end only with the process."""
    executors = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
    for thread in threads:
        if not thread.daemon and thread not in executors:
            thread.join()


def _without_us(error: BaseException) -> BaseException:
    """The error and those that led to it, with tracebacks that do not show they were watched."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = _theirs(link.__traceback__)
            chain += [link.__cause__, link.__context__]
    return error


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file == _theirs.__code__.co_filename:
            while kept and kept[-1].tb_frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                kept.pop()  # Python hides these itself where we do not stand in between
        else:
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for each in reversed(kept):
        following = TracebackType(following, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return following


# Keeping time


class _Track:
    """The time of one thread, always in one span. Entering and leaving one is written for speed."""

    __slots__ = (
        "calls", "clock", "env_steps", "episodes", "events", "forwards", "home", "since", "span", "started", "strides",
        "tells_episodes", "totals",
    )  # fmt: skip

    def __init__(self, clock: Clock, keeps_events: bool) -> None:
        self.clock = clock
        self.totals = [0] * 10  # nanoseconds per span
        self.calls = [0] * 10
        self.events: list[list[tuple[int, int]]] = [[] for _ in range(10)]  # entered, left
        self.strides = [1 if keeps_events else sys.maxsize] * 10
        self.env_steps, self.episodes, self.tells_episodes = 0, 0, True
        self.forwards: list[tuple[int, int]] = []  # entered, left; with gradients, not yet known what for
        self.home = SCRIPT  # the span in which these were called
        self.start()

    def start(self) -> None:
        self.span, self.started = SCRIPT, self.clock()
        self.since = self.started

    def finish(self) -> None:
        self._settle(self.clock())
        self._decide(acting=True)

    def enter(self, span: int) -> int:
        """Time goes to `span` from now on. Returns the span to come back to."""
        now, outer = self.clock(), self.span
        self.totals[outer] += now - self.since
        self.since = now
        if outer == UNDECIDED and span in DECISIVE:
            self._decide(acting=span in ENVS)
            outer = self.span
        self.span = span
        return outer

    def leave(self, span: int, outer: int, entered: int) -> None:
        now = self.clock()
        self.totals[self.span] += now - self.since
        self.since = now
        if self.span != span:  # a forward in here came to nothing
            self._decide(acting=True)
        self.span = outer
        calls = self.calls[span] = self.calls[span] + 1
        if not calls % self.strides[span]:
            events = self.events[span]
            events.append((entered, now))
            if len(events) >= MOST_EVENTS_OF_A_SPAN:
                self._thin_out(span)

    def leave_forward(self, outer: int, entered: int) -> None:
        """Leave a forward with gradients: what follows belongs to it until we know better."""
        now = self.clock()
        self._settle(now)
        if not self.forwards:
            self.home, outer = outer, UNDECIDED
        self.forwards.append((entered, now))
        self.span = outer
        if outer == UNDECIDED and len(self.forwards) >= MOST_UNDECIDED:
            self._decide(acting=True)

    def _settle(self, now: int) -> None:
        self.totals[self.span] += now - self.since
        self.since = now

    def _decide(self, acting: bool) -> None:
        """Give the undecided forwards, and the time after them, to acting or to a loss that ends now."""
        totals = self.totals
        if acting:
            totals[POLICY] += totals[FORWARD]
            totals[self.home] += totals[UNDECIDED]
            for entered, left in self.forwards:
                self._note(POLICY, entered, left)
        else:
            totals[LOSS] += totals[FORWARD] + totals[UNDECIDED]
            self._note(LOSS, self.forwards[0][0], self.since)
        totals[FORWARD] = totals[UNDECIDED] = 0
        self.forwards.clear()
        self.span = self.home

    def _note(self, span: int, entered: int, left: int) -> None:
        self.calls[span] += 1
        if not self.calls[span] % self.strides[span]:
            self.events[span].append((entered, left))
            if len(self.events[span]) >= MOST_EVENTS_OF_A_SPAN:
                self._thin_out(span)

    def _thin_out(self, span: int) -> None:
        """Keep every other event of a span, also from now on."""
        del self.events[span][::2]
        self.strides[span] *= 2

    def count(self, env: Any, outcome: Any) -> None:
        """Count the env steps and ended episodes in what a step returned: one per flag that says whether it is over."""
        try:
            over = outcome[2] | outcome[3] if len(outcome) == 5 else outcome[2]
        except (TypeError, KeyError, IndexError):
            over = None
        if over is False:
            self.env_steps += 1
        elif over is True:
            self.env_steps += 1
            self.episodes += 1
        elif type(over).__module__ == "numpy":
            self.env_steps += over.size
            self.episodes += int(over.sum())
        else:  # reading a tensor could make its device wait
            self.env_steps += getattr(env, "num_envs", 1)
            self.tells_episodes = False

    def count_batch(self, env: Any, outcome: Any) -> None:
        """Count the steps of a TorchRL env, which knows its batch size."""
        self.env_steps += env.batch_size.numel()
        self.tells_episodes = False


class _Tracks(threading.local):
    """One track per thread; `current` is this thread's. The first belongs to the thread that runs the script."""

    def __init__(self, clock: Clock, every: list[_Track]) -> None:  # called again in every thread that asks
        self.every = every
        self.current = _Track(clock, keeps_events=not every)
        every.append(self.current)

    def __reduce__(self) -> tuple[Any, ...]:
        """A class of the script may be sent to a worker process with its wrapped methods; what they time there is lost."""
        return _Tracks, (time.perf_counter_ns, [])


def _timed(tracks: _Tracks, span: int, function: Callable) -> Callable:
    """The function, its time given to `span`."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        track = tracks.current
        if track.span == span:
            return function(*args, **kwargs)
        outer = track.enter(span)
        entered = track.since
        try:
            return function(*args, **kwargs)
        finally:
            track.leave(span, outer, entered)

    return timed


def _timed_step(tracks: _Tracks, count: Callable[[_Track, Any, Any], None], function: Callable) -> Callable:
    """An env's step, its time given to `env_step` and its outcome counted."""

    def timed(env: Any, *args: Any, **kwargs: Any) -> Any:
        track = tracks.current
        if track.span == ENV_STEP:
            return function(env, *args, **kwargs)
        outer = track.enter(ENV_STEP)
        entered = track.since
        try:
            outcome = function(env, *args, **kwargs)
        finally:
            track.leave(ENV_STEP, outer, entered)
        if outer not in ENVS:
            count(track, env, outcome)
        return outcome

    def timed_quickly(env: Any, action: Any) -> Any:  # the same in less than two thirds of the time
        track = tracks.current
        if track.span == ENV_STEP:
            return function(env, action)
        outer = track.enter(ENV_STEP)
        entered = track.since
        try:
            outcome = function(env, action)
        finally:
            track.leave(ENV_STEP, outer, entered)
        if outer not in ENVS:
            count(track, env, outcome)
        return outcome

    if not _takes_one_argument(function):
        return functools.wraps(function)(timed)
    names, ours = function.__code__.co_varnames[:2], timed_quickly.__code__
    timed_quickly.__code__ = ours.replace(co_varnames=names + ours.co_varnames[2:])  # the action may be given by name
    return functools.wraps(function)(timed_quickly)


def _takes_one_argument(method: Callable) -> bool:
    """Whether a method takes an argument besides self, and nothing else."""
    if not isinstance(method, FunctionType) or method.__defaults__:
        return False
    code = method.__code__
    return code.co_argcount == 2 and not code.co_kwonlyargcount and not code.co_flags & STARRED


def _timed_module(tracks: _Tracks, is_grad_enabled: Callable[[], bool], function: Callable) -> Callable:
    """`Module.__call__`, its time given to `policy_forward` or to what may become a loss."""

    @functools.wraps(function)
    def timed_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        track = tracks.current
        if track.span >= FORWARD:
            return function(module, *args, **kwargs)
        with_gradients = is_grad_enabled()
        outer = track.enter(FORWARD if with_gradients else POLICY)
        entered = track.since
        try:
            return function(module, *args, **kwargs)
        finally:
            if with_gradients:
                track.leave_forward(outer, entered)
            else:
                track.leave(POLICY, outer, entered)

    return timed_module


# Wrapping what the script imports


class _Patches:
    """Everything wrapped during a run, and how to take it back."""

    def __init__(self, tracks: _Tracks) -> None:
        self._tracks = tracks
        self._undo: list[tuple[Any, str, Any]] = []
        self._wrapped: set[Callable] = set()
        self._on_import: dict[str, Callable[[ModuleType], None]] = {
            "torch": self._wrap_torch,
            "torch._dynamo.eval_frame": self._stay_out_of_graphs,
            "torch._dynamo.utils": self._look_unpatched,
            "torch._dynamo.variables.nn_module": self._look_unpatched,
            "gymnasium.core": lambda module: self._wrap_envs(module.Env),
            "gymnasium.vector.vector_env": lambda module: self._wrap_envs(module.VectorEnv),
            "gym.core": lambda module: self._wrap_envs(module.Env),
            "stable_baselines3.common.vec_env.base_vec_env": lambda module: self._wrap_envs(module.VecEnv),
            "torchrl.envs.common": lambda module: self._wrap_envs(module.EnvBase, _Track.count_batch),
        }

    def apply(self) -> None:
        """Wrap what is loaded already, and imports, so that what is loaded later is wrapped then."""
        for name in list(self._on_import):
            if name in sys.modules:
                self._loaded(name)
        # Both `import` and importlib.import_module come here, for modules that are not loaded yet and for no others.
        find_and_load = _timed(self._tracks, IMPORTS, importlib._bootstrap._find_and_load)  # type: ignore[attr-defined]

        def load(name: str, import_: Callable) -> ModuleType:
            module = find_and_load(name, import_)
            if name in self._on_import:
                self._loaded(name)
            return module

        self._set(importlib._bootstrap, "_find_and_load", load)

    def undo(self) -> None:
        """Put everything back, the latest first."""
        while self._undo:
            owner, name, before = self._undo.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def _loaded(self, name: str) -> None:
        self._on_import.pop(name)(sys.modules[name])

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Callable], *settings: Any) -> None:
        """Wrap a function that `owner` itself defines, once."""
        function = vars(owner).get(name)
        is_method = inspect.isroutine(function) and not isinstance(function, staticmethod | classmethod)
        if is_method and function not in self._wrapped:
            wrapped = wrapper(self._tracks, *settings, function)
            self._wrapped.add(wrapped)
            self._set(owner, name, wrapped)

    def _wrap_envs(self, base: Any, count: Callable[[_Track, Any, Any], None] = _Track.count) -> None:
        """Wrap step and reset of a class of envs and of all classes below it, those that do not exist yet included."""

        def wrap(kind: type) -> None:
            for name in ("step", "step_wait"):
                self._wrap(kind, name, _timed_step, count)
            self._wrap(kind, "step_async", _timed, ENV_STEP)
            for name in ("reset", "reset_async", "reset_wait"):
                self._wrap(kind, name, _timed, ENV_RESET)

        inherited = vars(base).get("__init_subclass__")

        def init_subclass(kind: type, **kwargs: Any) -> None:
            if inherited is None:
                super(base, kind).__init_subclass__(**kwargs)  # type: ignore[misc]
            else:
                inherited.__func__(kind, **kwargs)
            wrap(kind)

        for kind in _family(base):
            wrap(kind)
        self._set(base, "__init_subclass__", classmethod(init_subclass))

    def _wrap_torch(self, torch: ModuleType) -> None:
        self._module_call = torch.nn.Module.__call__
        self._wrap(torch.nn.Module, "__call__", _timed_module, torch.is_grad_enabled)
        self._wrap(torch.Tensor, "backward", _timed, BACKWARD)
        self._wrap(torch.autograd, "backward", _timed, BACKWARD)
        self._wrap(torch.autograd, "grad", _timed, BACKWARD)
        for place in (torch.nn.utils, torch.nn.utils.clip_grad):
            self._wrap(place, "clip_grad_norm_", _timed, OPTIMIZER)
        self._wrap_optimizers(torch.optim.Optimizer)

    def _wrap_optimizers(self, base: Any) -> None:
        """Wrap step of every kind of optimizer. An optimizer's first instance adds hooks to its class: we come after."""
        initialise = base.__init__

        @functools.wraps(initialise)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            initialise(optimizer, *args, **kwargs)
            owner = next(kind for kind in type(optimizer).__mro__ if "step" in vars(kind))
            self._wrap(owner, "step", _timed, OPTIMIZER)

        for kind in _family(base):
            if hasattr(vars(kind).get("step"), "hooked"):
                self._wrap(kind, "step", _timed, OPTIMIZER)
        self._set(base, "__init__", init)

    def _stay_out_of_graphs(self, dynamo: Any) -> None:
        """Make torch.compile compile what we wrap, and not us."""
        dynamo.skip_code(sys.modules["torch"].nn.Module.__call__.__code__)

    def _look_unpatched(self, dynamo: Any) -> None:
        """Make torch.compile go straight to `forward` inside a module, as it does where nobody wrapped the calls."""
        self._undo.append((dynamo, "unpatched_nn_module_call", self._module_call))
        dynamo.unpatched_nn_module_call = sys.modules["torch"].nn.Module.__call__


_ABSENT = object()


def _family(base: Any) -> Iterator[type]:
    """A class and all classes below it."""
    yield base
    for kind in type.__subclasses__(base):
        yield from _family(kind)


# The result


def _profile(tracks: _Tracks, exit_code: int, failure: BaseException | None) -> ScriptProfile:
    main, *others = tracks.every
    tells = all(track.tells_episodes for track in tracks.every)
    env_steps = sum(track.env_steps for track in tracks.every)
    main.calls[SCRIPT] = 1
    events = [
        (entered - main.started, left - entered, name)
        for span, name in NAMES.items()
        for entered, left in main.events[span]
    ]
    return ScriptProfile(
        breakdown=Breakdown(
            (main.since - main.started) * 1e-9,
            {(name,): main.totals[span] * 1e-9 for span, name in NAMES.items()},
            {(name,): main.calls[span] for span, name in NAMES.items()},
        ),
        env_steps=env_steps,
        episodes=sum(track.episodes for track in tracks.every) if tells and env_steps else None,
        exit_code=exit_code,
        traceback="".join(traceback.format_exception(failure)) if failure else None,
        events=sorted(events, key=lambda event: (event[0], -event[1])),
        sampled={name: main.strides[span] for span, name in NAMES.items() if main.strides[span] > 1},
        background=_background(others),
    )


def _background(tracks: list[_Track]) -> Breakdown:
    """The sum of the other threads' spans, their own Python left out: we cannot tell it from waiting."""
    seconds: dict[tuple[str, ...], float] = {}
    calls: dict[tuple[str, ...], int] = {}
    for span, name in NAMES.items():
        if span != SCRIPT and any(track.calls[span] for track in tracks):
            seconds[name,] = sum(track.totals[span] for track in tracks) * 1e-9
            calls[name,] = sum(track.calls[span] for track in tracks)
    return Breakdown(sum(seconds.values()), seconds, calls)
