"""A plan in stages in a report: what each stage came to, and how improvement by rollouts went."""

from __future__ import annotations

from typing import Any

from redline.report.page import Section, table
from redline.runs import IMPROVEMENT, STAGE_FOLDERS, STAGES, Run


def stage_sections(run: Run) -> list[Section]:
    """A row per stage, and below it the rounds of each improvement; nothing for a run without stages."""
    if not (run.path / STAGES).exists():
        return []
    stages: list[dict[str, Any]] = run.read_json(STAGES)["stages"]
    body = _rows_table(stages)
    for stage in stages:
        folder = run.path / STAGE_FOLDERS / str(stage.get("folder", ""))
        if (folder / IMPROVEMENT).exists():
            rounds = Run.open(folder).read_json(IMPROVEMENT)["rounds"]
            body += f"<h3>Improvement by rollouts</h3>{_rows_table(rounds)}"
    return [Section("Stages", body)]


def _rows_table(rows: list[dict[str, Any]]) -> str:
    """Plain numbers and words by their keys; what is made up of parts is left to the files."""
    keys = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict | list)))
    return table([key.replace("_", " ") for key in keys], [[row.get(key) for key in keys] for row in rows])
