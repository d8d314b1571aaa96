"""`redline export`: a trained policy as a file that others can run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse


@dataclass(frozen=True)
class Export:
    """Write a trained policy as a file that runs without Redline: observations in, actions out."""

    run: Annotated[Path, "positional"]
    """A run folder, or one of its checkpoints."""
    file: Annotated[Path, "positional"]
    """The file to write: .onnx, or .pt2 (a program of torch.export)."""
    trust: bool = False
    """Use what the run names, such as an env of its own, though it was not made by you."""
    seed: int = 0
    """Accepted by every command; nothing is drawn here."""
    output: Output = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse, load, write."""
    command = parse("export", Export, arguments)
    from redline.learn import checkpoint
    from redline.learn.export import export
    from redline.learn.trust import stored_config

    found = checkpoint.load(checkpoint.resolve(command.run))
    stored_config(found.values.get("config"), found.path, command.trust)
    written = export(found.path, command.file)
    if command.output.json:
        print_json({"policy": str(found.path), "step": found.step, "file": str(written)})
    else:
        out.print(f"Written: {written}", soft_wrap=True, markup=False)
    return 0
