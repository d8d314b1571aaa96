"""cProfile's view of the same training: which functions take longest. It slows small calls down, so no row comes from it."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
from pathlib import Path

from redline.errors import RedlineError
from redline.files import reason, warn_on_stderr
from redline.learn.config import TrainConfig
from redline.profiler.record import watching

TOP = 50


def write_detailed(mode: str, config: TrainConfig, batches: int, folder: Path) -> Path:
    """Run some batches under cProfile and write the functions that took longest, with calls and time per call."""
    profiler = cProfile.Profile()
    with watching(mode, config, warn_on_stderr) as watched:
        watched.batch()
        profiler.enable()
        for _ in range(batches):
            watched.batch()
        profiler.disable()
    text = io.StringIO()
    stats = pstats.Stats(profiler, stream=text)
    stats.sort_stats("cumulative").print_stats(TOP)
    stats.sort_stats("tottime").print_stats(TOP)
    file = folder / f"profile_{re.sub(r'[^A-Za-z0-9]+', '_', mode).strip('_')}.txt"
    try:
        file.write_text(f"{mode}: {batches} batches\n{text.getvalue()}", encoding="utf-8")
    except OSError as error:
        raise RedlineError(f"{file} cannot be written: {reason(error)}. Run it in a folder that can be.") from error
    return file
