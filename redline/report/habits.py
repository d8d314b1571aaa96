"""What a policy does in any world: its commonest actions, and when in an episode it takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from redline.learn.watching import WatchedEpisode
from redline.report.draw import NOTHING, percent
from redline.report.page import note, table

PHASES = ("first third", "second third", "last third")
MOST_ACTIONS = 12


def plain_habits(episodes: Sequence[WatchedEpisode]) -> str:
    """A table of shares, as HTML; nothing where actions are not chosen from a list."""
    phases: tuple[Counter[str], ...] = tuple(Counter() for _ in PHASES)
    for phase, action in _taken(episodes):
        phases[phase][action] += 1
    everything = sum(phases, Counter())
    if not everything:
        return ""
    common = everything.most_common(MOST_ACTIONS)
    rows = [[action, *(_share(phase, action) for phase in (*phases, everything))] for action, _ in common]
    left = len(everything) - len(common)
    rest = f" {left} more are left out." if left else ""
    return table(["action", *PHASES, "all"], rows) + note(
        f"Shares of the actions in each third of {len(episodes)} fresh episodes, the commonest first.{rest}"
    )


def _taken(episodes: Sequence[WatchedEpisode]) -> Iterator[tuple[int, str]]:
    """Every action that was chosen from a list, by name, with the third of its episode."""
    for episode in episodes:
        for t, step in enumerate(episode.steps):
            if step.choice.number is not None:
                yield len(PHASES) * t // len(episode.steps), episode.name_of(step.choice)


def _share(counts: Counter[str], action: str) -> str:
    return percent(counts[action] / counts.total()) if counts[action] else NOTHING
