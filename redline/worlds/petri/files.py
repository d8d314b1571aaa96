"""Files that commands write of a schedule: its firings, and its chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from redline.worlds.petri.schedule import Schedule, require_format

PICTURES = (".png", ".svg", ".html")


def require_files(export: Path | None, gantt: Path | None) -> None:
    """Refuse files that could not be written, before anything else is done."""
    if export is not None:
        require_format(export)
    if gantt is not None and gantt.suffix not in PICTURES:
        raise RedlineError(f"A chart is drawn as {', '.join(PICTURES)}, not as {gantt.name!r}. Try gantt.png.")
    for path in filter(None, (export, gantt)):
        if not path.absolute().parent.is_dir():
            raise RedlineError(f"{path} cannot be written: there is no folder {path.parent}.")


def write_files(
    schedule: Schedule, export: Path | None, gantt: Path | None, rows: Sequence[dict[str, Any]] = ()
) -> list[Path]:
    """Write a schedule's firings and its chart, where asked for. Returns the files."""
    from redline.worlds.petri.gantt import write_gantt
    from redline.worlds.petri.pages import write_schedule, write_schedule_page

    if export is not None:
        write_schedule(schedule, export)
    if gantt is not None and gantt.suffix == ".html":
        write_schedule_page(schedule, gantt, rows)
    elif gantt is not None:
        write_gantt(schedule, gantt)
    return [path for path in (export, gantt) if path is not None]
