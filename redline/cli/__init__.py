"""The `redline` command. Each subcommand lives in a file of its own and is imported only when it is called."""

from __future__ import annotations

import errno
import importlib
import resource
import sys
from collections.abc import Callable, Sequence

from redline.cli.streams import kept_clean, let_go_of, make_writable
from redline.errors import RedlineError, unknown
from redline.signals import exit_code_of, heed, leave_with
from redline.version import __version__

COMMANDS = {
    "train": "train a policy and leave a run folder behind",
    "eval": "score a trained policy, beside simple players and published scores",
    "play": "watch an episode step by step, here or as a page",
    "improve": "improve a trained policy by rollouts: try everything else where it goes most often",
    "runs": "list runs: env, settings that differ, steps, score, state",
    "compare": "compare runs, over seeds, and say whether they can be told apart",
    "sweep": "train with several settings and seeds, and compare them",
    "search": "find the workflow, such as an order of repairs, that plays best",
    "solve": "find the best possible solution of an env, such as its shortest schedule, and prove it",
    "export": "write a trained policy as ONNX, as a torch program or as plain arrays",
    "report": "write a run's report as a web page",
    "profile": "see where the time of a training run goes, and what would make it faster",
    "bench": "measure: bench sim, engines, train, profiler, search",
    "verify": "replay recorded episodes of the original simulator and compare every step",
    "envs": "list the envs and their options",
    "new": "write a world of your own to start from, with its tests",
    "completion": "print a script that completes commands, options and envs in bash, zsh or fish",
}

LIGHT = ("runs", "envs", "new", "completion")
"""Commands that load neither torch nor Numba."""
LEAST_MEGABYTES = 1400
"""Address space that these need: with less of it, libraries abort, or look for more for ever."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 a check or an env failed, 2 bad input, 130, 143, 129 interrupted."""
    if argv is not None:
        return _run(list(argv))
    heed()
    try:
        code = _run(sys.argv[1:])
        leave_with(code)
    except KeyboardInterrupt as error:  # in the last moment
        code = _interrupted(error)
    return code


def _run(arguments: list[str]) -> int:
    make_writable()
    code = _code_of(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        let_go_of(sys.stdout)
        return code or _refused(error)
    return code


def _code_of(arguments: list[str]) -> int:
    """Run a command, and tell in one line why it did not come to its end."""
    try:
        with kept_clean("--json" in arguments):
            return _dispatch(arguments)
    except SystemExit as leaving:  # after help
        return int(leaving.code or 0)
    except RedlineError as error:
        print(f"redline: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except MemoryError:
        print(
            "redline: there is not enough memory for this. Try fewer envs (--num-envs), or a smaller net.",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        return _refused(error)


def _interrupted(error: KeyboardInterrupt) -> int:
    print("redline: interrupted", file=sys.stderr)
    return exit_code_of(error)


def _refused(error: OSError) -> int:
    """One line for what the operating system does not let us do: a full disk, a name that is too long, a file in the way."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has left, as `| head` does
        let_go_of(sys.stdout)
        return 0
    where = f"{error.filename}: " if error.filename is not None else ""
    print(f"redline: {where}{error.strerror or error}.", file=sys.stderr)
    return 1 if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else 2


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"redline {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    if name not in LIGHT:
        _require_room()
    return command(name)(rest)


def _require_room() -> None:
    """Refuse a limit of the address space, as by `ulimit -v`, under which nothing can be loaded."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEGABYTES << 20:
        raise RedlineError(
            f"This process may use {limit >> 20:,} MB of memory, and needs {LEAST_MEGABYTES:,} to begin with. "
            f"Try ulimit -v {2 * LEAST_MEGABYTES << 10}."
        )


def command(name: str) -> Callable[[list[str]], int]:
    """The function that runs a command, from the file of that name."""
    run: Callable[[list[str]], int] = importlib.import_module(f"redline.cli.{name}").run
    return run


def _overview() -> str:
    commands = "\n".join(f"  {name:<10} {about}" for name, about in COMMANDS.items())
    return (
        "usage: redline COMMAND [options]\n\n"
        "PPO training at the speed of the hardware, for simulators that used to be too slow to train on.\n\n"
        f"commands:\n{commands}\n\n"
        "  redline COMMAND --help               every option of a command\n"
        "  redline envs                         what can be trained on\n"
        '  eval "$(redline completion bash)"    the Tab key finishes commands, options and names of envs\n'
    )
