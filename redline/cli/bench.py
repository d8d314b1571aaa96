"""`redline bench`: the benchmarks. Each lives in a file of its own and is imported only when it is called."""

from __future__ import annotations

from redline.cli import command
from redline.errors import unknown

KINDS = {
    "sim": "how fast the simulator steps",
    "engines": "how fast each engine collects from an env, beside its peers",
    "train": "how fast training is, end to end, beside its peers",
    "profiler": "what watching a training run costs",
    "search": "how soon the workflow search finds a good order, beside random picks",
}


def run(arguments: list[str]) -> int:
    """Run one benchmark, or say which there are."""
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = "\n".join(f"  redline bench {name:<8} {about}" for name, about in KINDS.items())
        print(f"usage: redline bench KIND ENV [options]\n\n{lines}\n\n  redline bench KIND --help   every option")
        return 0
    kind, *rest = arguments
    if kind not in KINDS:
        raise unknown("benchmark", kind, KINDS)
    return command(f"bench_{kind}")(rest)
