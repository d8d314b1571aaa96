"""What the commands do for nets: `verify petri`, `envs petri`, `bench sim petri:…`, and the files they write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from redline.cli.console import err, out, print_json, short
from redline.cli.options import Output
from redline.errors import RedlineError


def verify_schedules(files: tuple[str, ...], output: Output) -> int:
    """Play recorded schedules again at both speeds. Exit code 1 unless each ends as recorded."""
    if not files:
        raise RedlineError("No schedule was given. Try: redline verify petri --schedule FILE.json")
    rows = [_verify(Path(path), output) for path in files]
    wrong = sum(not row["faithful"] for row in rows)
    if output.json:
        print_json({"schedules": len(rows), "mismatches": wrong, "files": rows})
    elif len(rows) > 1:
        out.print(f"{len(rows) - wrong} of {len(rows)} schedules end exactly as recorded, at both speeds.")
    return 1 if wrong else 0


def _verify(path: Path, output: Output) -> dict[str, Any]:
    from redline.envs.petri import announce_compilation
    from redline.sims.petri import kernel
    from redline.sims.petri.replay import load_recording, verify

    recording = load_recording(path)
    announce_compilation(kernel.step)
    started = time.monotonic()
    compiled, interpreted = verify(recording), verify(recording, turbo=False)
    same = compiled.played.firings.tolist() == interpreted.played.firings.tolist()
    problem = compiled.problem or interpreted.problem or (None if same else "the two speeds do not agree")
    row = {
        "file": str(path),
        "recorded": recording.makespan,
        "compiled": compiled.makespan,
        "interpreted": interpreted.makespan,
        "firings": len(compiled.played.firings),
        "faithful": problem is None,
        "problem": problem,
        "seconds": time.monotonic() - started,
    }
    _say(row, path.name, output)
    return row


def _say(row: dict[str, Any], name: str, output: Output) -> None:
    if row["problem"] is None:
        line = f"{name}: {row['firings']} firings, makespan {row['recorded']} as recorded, compiled and interpreted"
    else:
        line = f"{name}: [bold red]{row['problem']}[/] (recorded makespan {row['recorded']})"
    if not output.json:
        out.print(line, soft_wrap=True)
    elif not output.quiet:
        err.print(line, soft_wrap=True)


PICTURES = (".png", ".svg", ".html")


def require_files(export: Path | None, gantt: Path | None) -> None:
    """Refuse files that could not be written, before anything else is done."""
    from redline.sims.petri.schedule import require_format

    if export is not None:
        require_format(export)
    if gantt is not None and gantt.suffix not in PICTURES:
        raise RedlineError(f"A chart is drawn as {', '.join(PICTURES)}, not as {gantt.name!r}. Try gantt.png.")
    for path in filter(None, (export, gantt)):
        if not path.absolute().parent.is_dir():
            raise RedlineError(f"{path} cannot be written: there is no folder {path.parent}.")


def write_files(
    schedule: Any, export: Path | None, gantt: Path | None, rows: Sequence[dict[str, Any]] = ()
) -> list[Path]:
    """Write a schedule's firings and its chart, where asked for. Returns the files."""
    from redline.report.gantt import write_gantt
    from redline.report.petri import write_schedule, write_schedule_page

    if export is not None:
        write_schedule(schedule, export)
    if gantt is not None and gantt.suffix == ".html":
        write_schedule_page(schedule, gantt, rows)
    elif gantt is not None:
        write_gantt(schedule, gantt)
    return [path for path in (export, gantt) if path is not None]


def list_nets(output: Output) -> int:
    """Print every net that has a name, and the options of each kind."""
    from redline.cli.envs import _options
    from redline.sims.petri.instances import FAMILIES, list_petri

    nets = list_petri()
    options = {name: _options(family.options) for name, family in FAMILIES.items()}
    if output.json:
        print_json({"nets": nets, "options": options})
        return 0
    table = Table(title="Nets by name (lower bounds and proven optima of 12 wafers on the first device)")
    for column in ("name", "what it is", "bound", "optimum", "devices"):
        table.add_column(column, justify="right" if column in ("bound", "optimum") else "left", overflow="fold")
    for net in nets:
        optimum = "" if net["optimum"] is None else str(net["optimum"])
        table.add_row(net["name"], net["about"], str(net["lower_bound"]), optimum, ", ".join(net["devices"]))
    out.print(table)
    for name, family in FAMILIES.items():
        out.print(f"\n[bold]{name}[/bold]  {family.about}", soft_wrap=True)
        for option in options[name]:
            line = f"  {option['name']}={_shown(option['default'])}"
            out.print(f"{line:<30} {option['about']}", soft_wrap=True, markup=False)
    out.print("\nOptions follow the name: redline train 'petri:cluster/J-0?wafers=12&arms=2'", soft_wrap=True)
    return 0


def show_net(name: str, states: bool, most: int | None, output: Output) -> int:
    """Print how large a net is and, where asked for, how many markings it reaches."""
    from redline.sims.petri.instances import parse_petri
    from redline.sims.petri.tables import tabulate

    instance = parse_petri(name)
    net, sizes = instance.net, tabulate(instance.net)[1]
    arcs = sum(len(transition.inputs) + len(transition.outputs) for transition in net.transitions)
    facts: dict[str, Any] = {
        "name": instance.name,
        "places": len(net.places),
        "transitions": len(net.transitions),
        "arcs": arcs,
        "tokens": sum(place.tokens for place in net.places),
        "actions": sizes.actions,
        "observed_numbers": sizes.observation,
        "lower_bound": instance.lower_bound,
        "optimum": instance.optimum,
    }
    if states:
        facts |= _count_states(net, most)
    if output.json:
        print_json(facts)
        return 0
    for what, number in facts.items():
        if number is not None:
            shown = f"{number:,}" if isinstance(number, int) else str(number)
            out.print(f"{what.replace('_', ' '):<18}{shown}", soft_wrap=True, markup=False)
    return 0


def _count_states(net: Any, most: int | None) -> dict[str, int]:
    from redline.envs.petri import announce_compilation
    from redline.sims.petri.reachability import expand, explore, require_no_time

    require_no_time(net)
    announce_compilation(expand)
    found = explore(net, most)
    return {"states": found.states, "edges": found.edges, "dead_states": found.dead}


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default) if isinstance(default, str | int) else "…"


def bench_net_command(command: Any) -> int:
    """Measure the kernel on one net and print a table."""
    from redline.bench.measure import describe_machine, machine_line, peak_memory_mb
    from redline.bench.petri import bench_net
    from redline.sims.petri.instances import parse_petri

    net, machine = parse_petri(command.env).net, describe_machine()
    rates = bench_net(net, command.batch_sizes, command.threads, command.seconds, command.turns, command.seed)
    slow = next(rate.median for (speed, *_), rate in rates.items() if speed == "interpreted")
    alone = [r.median for (speed, threads, _), r in rates.items() if speed == "compiled" and threads == 1]
    best = max(alone or [rate.median for rate in rates.values()])
    if command.output.json:
        rows = [{"speed": s, "threads": t, "batch": b, **rate.to_json()} for (s, t, b), rate in rates.items()]
        facts = {"env": command.env, "steps_per_second": best, "times_interpreted": best / slow}
        print_json({**facts, "peak_memory_mb": peak_memory_mb(), "rates": rows, "machine": machine})
        return 0
    table = Table(title=f"{command.env}, random legal actions: steps/s (median of {command.turns}, quartiles)")
    for column in ("speed", "threads", "batch", "steps/s", "quartiles", "x interpreted"):
        table.add_column(column, justify="left" if column == "speed" else "right")
    for (speed, threads, batch), rate in rates.items():
        spread = f"{short(rate.low)} – {short(rate.high)}"
        table.add_row(speed, str(threads), f"{batch:,}", short(rate.median), spread, f"{rate.median / slow:,.0f}")
    out.print(table)
    out.print(f"Peak memory {peak_memory_mb():.0f} MB.", soft_wrap=True)
    out.print(machine_line(machine), soft_wrap=True)
    return 0
