"""The page of a profile: where the time of a training run goes, what the workers did, and what would make it faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from redline.learn.config import config_to_json
from redline.profiler.advise import Advice
from redline.profiler.modes import ModeComparison
from redline.profiler.record import Profile
from redline.report.charts.mode_chart import mode_chart
from redline.report.charts.row_looks import ORDER
from redline.report.charts.time_bars import MOST_UNACCOUNTED, Stack, stack_chart, stack_of, time_table
from redline.report.charts.timeline import last_batch, timeline, timeline_caption
from redline.report.draw import NOTHING, Drawing, duration, escape, percent, short
from redline.report.page import Section, facts, figure, figure_for, flat_settings, note, table, write_page
from redline.timing.breakdown import UNACCOUNTED
from redline.timing.rows import leaves, rows
from redline.timing.trace import Trace

MOST_BARS = 60
"""Batches drawn; of more, the last ones."""
GOALS = ("total_steps", "total_episodes")
"""Settings that say when to stop, which a profile does after its batches."""


def write_profile(
    path: Path, comparison: ModeComparison, advice: list[Advice], applied: ModeComparison | None, trace: Trace | None
) -> Path:
    """Write the page and return its path."""
    first = comparison.profiles[0]
    several = len(comparison.profiles) > 1
    sections = [Section("In short", _in_short(comparison))]
    if several or comparison.failed:
        sections.append(Section("ModeComparison", _comparison(comparison)))
    sections.append(Section("Where the time goes", _time(comparison)))
    if trace is not None and trace.events:
        title = f"{first.mode}: the last batch" if several else "The last batch"
        sections.append(Section("Timeline", _timeline(trace, title)))
    sections.append(Section("What would make it faster", _advice(advice, applied)))
    sections.append(Section("Settings", _settings(comparison.profiles)))
    title = f"Redline profile: {first.config.env}"
    return write_page(path, title, headline(comparison), sections, hint="Try --html profile.html.")


def headline(comparison: ModeComparison) -> str:
    """The profile in two sentences: how fast it is, and where the time goes."""
    first = comparison.profiles[0]
    named = "" if first.mode == first.config.engine else f"{first.mode}: "
    longest = sorted(leaves(first.breakdown), key=lambda row: -row.seconds)
    words = f"{named}engine {first.config.engine}, {short(first.steps_per_second)} steps/s. "
    words = words[:1].upper() + words[1:] if not named else words
    words += f"{percent(longest[0].share)} of the run is {longest[0].name}"
    return words + (f", {percent(longest[1].share)} is {longest[1].name}." if longest[1].share > 0.1 else ".")


def _in_short(comparison: ModeComparison) -> str:
    profiles = comparison.profiles
    if len(profiles) == 1:
        body = facts(_facts(profiles[0]))
    else:
        columns = [dict(_facts(profile)) for profile in profiles]
        labels = dict.fromkeys(label for column in sorted(columns, key=len, reverse=True) for label in column)
        lines = [[label, *(column.get(label, NOTHING) for column in columns)] for label in labels]
        body = "".join(f"<p>{_verdict(comparison, other)}</p>" for other in profiles[1:])
        body += table(["", *(profile.mode for profile in profiles)], lines)
    for profile in profiles:
        lost = _unaccounted(profile)
        if lost > MOST_UNACCOUNTED:
            body += note(
                f"! {profile.mode}: {percent(lost)} of the time is in no span, more than the {percent(MOST_UNACCOUNTED)} "
                "that we allow. Shares of the other rows are uncertain by as much."
            )
    return body


def _verdict(comparison: ModeComparison, other: Profile) -> str:
    gain, first = comparison.total(other), comparison.profiles[0]
    if gain.within_noise:
        return f"<strong>{escape(other.mode)}</strong> cannot be told from {escape(first.mode)}: within noise."
    return (
        f"<strong>{escape(other.mode)}</strong> is <strong>{gain.ratio:.2f}×</strong> as fast as {escape(first.mode)} "
        f"({gain.low:.2f} – {gain.high:.2f})."
    )


def _facts(profile: Profile) -> list[tuple[str, object]]:
    lost = _unaccounted(profile)
    ratio = profile.sampling_to_training
    found: list[tuple[str, object]] = [
        ("env steps/s", short(profile.steps_per_second)),
        ("episodes/s", short(profile.episodes_per_second)),
        ("sampling : training", f"{short(ratio, 2)} : 1" if math.isfinite(ratio) else NOTHING),
    ]
    if profile.workers is not None:
        found += [
            ("workers", profile.num_workers),
            ("workers busy", NOTHING if profile.busy_share is None else percent(profile.busy_share)),
            ("lost to the slowest", NOTHING if profile.straggler_share is None else percent(profile.straggler_share)),
            ("slowest step", duration(profile.workers.slowest_seconds)),
        ]
    if profile.device_share is not None:
        found.append(("device in use", percent(profile.device_share)))
    found += [
        ("memory", f"{profile.memory_mb:,.0f} MB" if profile.memory_mb else NOTHING),
        ("start-up", duration(profile.start_up_seconds) if profile.start_up_seconds else NOTHING),
        (UNACCOUNTED, percent(lost) + (" !" if lost > MOST_UNACCOUNTED else "")),
    ]
    return found


def _unaccounted(profile: Profile) -> float:
    return rows(profile.breakdown)[-1].share


def _time(comparison: ModeComparison) -> str:
    body = ""
    for profile in comparison.profiles:
        shown = profile.batches[-MOST_BARS:]
        first = len(profile.batches) - len(shown) + 1
        stacks = [stack_of(f"batch {k}", batch.breakdown) for k, batch in enumerate(shown, start=first)]
        if profile.warm_up is not None:
            stacks.insert(0, stack_of("warm-up", profile.warm_up.breakdown, apart=True))
        mode = f"{profile.mode}: " if len(comparison.profiles) > 1 else ""
        left_out = f"The last {len(shown)} of {len(profile.batches)} batches. " if first > 1 else ""
        apart = (
            "The warm-up (compilation, first touch) is in no average; two strokes: longer than drawn. "
            if profile.warm_up is not None
            else ""
        )
        title = f"{mode}seconds per batch" if mode else "Seconds per batch"
        body += figure_for(
            partial(stack_figure, stacks, title, "seconds"),
            f"{left_out}{apart}Point at a block to read its row and time.",
        )
        body += time_table(profile.breakdown)
    return body


def stack_figure(stacks: Sequence[Stack], title: str, unit: str, width: int) -> Drawing:
    """Bars of a width."""
    return stack_chart(stacks, title=title, unit=unit, width=width)


def _timeline(trace: Trace, title: str) -> str:
    batch = last_batch(trace)
    return figure(timeline(batch, title=title), timeline_caption(batch, trace))


def _comparison(comparison: ModeComparison) -> str:
    first, others = comparison.profiles[0], comparison.profiles[1:]
    body = ""
    if others:
        stacks = [stack_of(p.mode, p.breakdown, scale=1e6 / p.steps) for p in comparison.profiles]
        body += figure_for(partial(stack_figure, stacks, "Time per env step", "µs per env step"))
    for other in others:
        body += _row_figure(comparison, other)
    if others:
        body += note(
            f"Modes ran in turns, a batch each, so that noise hit all alike: {len(first.batches)} turns. Bars are medians, "
            "their whiskers quartiles; the interval of a speed-up holds 95 % of its bootstrap."
        )
    if comparison.failed:
        body += table(["could not run here", "why"], comparison.failed.items())
    return body


def _row_figure(comparison: ModeComparison, other: Profile) -> str:
    found = [row for row in comparison.against_first(other) if row.before.high or row.after.high]
    found.sort(key=lambda row: ORDER.index(row.name) if row.name in ORDER else len(ORDER))
    title = f"{other.mode} against {comparison.profiles[0].mode}: {comparison.total(other)}"
    first = comparison.profiles[0].mode
    return figure_for(
        lambda width: mode_chart(found, first, other.mode, title=title, width=width),
        "Right of 1 is faster. Grey: cannot be told from no change at all.",
    )


def _advice(advice: Sequence[Advice], applied: ModeComparison | None) -> str:
    if not advice:
        return note("Nothing stands out that another setting would make faster.")
    lines = [
        [each.options, f"{each.row} is {percent(each.share)} of the run{each.why}", f"{each.estimate:.1f}×", NOTHING]
        for each in advice
    ]
    body = ""
    if applied is not None:
        lines[0][3] = _gave(applied)
        if len(applied.profiles) > 1:
            body = _row_figure(applied, applied.profiles[1])
    how = note("Estimates follow Amdahl's law from the measured shares. --apply tries the first suggestion for real.")
    return table(["try", "because", "estimated", "measured"], lines) + how + body


def _gave(applied: ModeComparison) -> str:
    if len(applied.profiles) < 2:
        return f"could not run: {next(iter(applied.failed.values()), 'no reason given')}"
    return str(applied.total(applied.profiles[1])).replace("x", "×", 1)


def _settings(profiles: Sequence[Profile]) -> str:
    """All settings, a column per mode; those in which the modes differ come first."""
    columns = [_settings_of(profile) for profile in profiles]
    names = dict.fromkeys(name for column in columns for name in column if name not in GOALS)
    lines = [[name, *(column.get(name, NOTHING) for column in columns)] for name in names]
    if len(profiles) == 1:
        return table(["setting", "value"], lines)
    lines.sort(key=lambda line: len(set(line[1:])) == 1)
    return table(["setting", *(profile.mode for profile in profiles)], lines)


def _settings_of(profile: Profile) -> dict[str, str]:
    return {name: str(value) for name, value in flat_settings(config_to_json(profile.config))}
