"""The `redline` command. Each subcommand lives in a file of its own and is imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from redline.errors import RedlineError, unknown
from redline.version import __version__

COMMANDS = {
    "train": "train a policy and leave a run folder behind",
    "eval": "score a trained policy on the official protocol",
    "search": "find the repair order that defends best (GP-UCB over all 120)",
    "solve": "find the shortest schedule of a cluster tool or job shop, and prove it",
    "report": "write a run's report as a web page",
    "profile": "see where the time of a training run goes, and what would make it faster",
    "bench": "measure: bench sim, engines, train, profiler, search",
    "verify": "replay recorded episodes of the original simulator and compare every step",
    "envs": "list the envs and their options",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 a check or an env failed, 2 bad input, 130, 143 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except RedlineError as error:
        print(f"redline: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("redline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
    return int(importlib.import_module(f"redline.cli.{name}").run(rest))


def _overview() -> str:
    commands = "\n".join(f"  {name:<8} {about}" for name, about in COMMANDS.items())
    return (
        "usage: redline COMMAND [options]\n\n"
        "PPO training at the speed of the hardware, for simulators that used to be too slow to train on.\n\n"
        f"commands:\n{commands}\n\n"
        "  redline COMMAND --help   every option of a command\n"
        "  redline train cage2      a CAGE-2 defender in half a minute\n"
    )
