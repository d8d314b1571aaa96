"""`redline profile --script`: where the time of a training script of the user's own goes."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError

if TYPE_CHECKING:
    from redline.profiler.script import ScriptProfile


@dataclass(frozen=True)
class Script:
    """Run a training script unchanged and say where its time goes. What follows its name goes to the script."""

    output: Output = dataclasses.field(default_factory=Output)


def run_script(options: list[str], arguments: list[str]) -> int:
    """Run `arguments[0]` with the rest as its arguments. Returns the script's own exit code."""
    command = parse("profile", Script, options)
    if not arguments:
        raise RedlineError("--script names no script. Try: redline profile --script train.py")
    from redline.profiler.script import advise_script, profile_script, script_json

    script, *its_arguments = arguments
    found = profile_script(Path(script), its_arguments)
    if found.traceback is not None:
        sys.stderr.write(found.traceback)
    advice = advise_script(found)
    if command.output.json:
        plain = [dataclasses.asdict(each) for each in advice]
        named = {"script": script, "arguments": its_arguments}
        print_json({**named, **script_json(found), "advice": plain})
        return found.exit_code
    out.print(_table(found, script))
    for each in advice:
        out.print(str(each), soft_wrap=True, markup=False)
    if "--json" in its_arguments:
        hint = f"redline profile --json --script {script}"
        out.print(f"--json went to the script. If it was meant for us: {hint}", soft_wrap=True, markup=False)
    return found.exit_code


def _table(found: ScriptProfile, script: str) -> Table:
    from redline.profiler.script import IMPORTS, SPANS
    from redline.timing.render import bar

    title = f"Where the time of {Path(script).name} went (shares leave imports out)"
    result = Table(title=title, title_justify="left", box=None, pad_edge=False)
    result.add_column("")
    result.add_column("seconds", justify="right")
    result.add_column("share", justify="right")
    result.add_column("")
    for span in SPANS:
        share = found.share(span)
        result.add_row(span, f"{found.seconds.get(span, 0.0):.2f}", f"{share:6.1%}", bar(share))
    result.add_row(IMPORTS, f"{found.seconds.get(IMPORTS, 0.0):.2f}", "", "")
    result.add_row("total", f"{found.total_seconds:.2f}", "", "", style="bold")
    return result
