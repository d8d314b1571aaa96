"""Improvement by rollouts as plain data: how to do it, and what it gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from redline.errors import RedlineError
from redline.learn.config import at_least, finite

if TYPE_CHECKING:
    from redline.learn.judge import Judgement
    from redline.learn.moments import Moments


@dataclass(frozen=True)
class Improvement:
    """How to improve a policy by rollouts."""

    episodes: int = 2048
    """Episodes to meet information states in."""
    states: int = 420
    """Information states to look at: the commonest."""
    least_visits: int = 30
    """Visits below which a state is not worth a look."""
    horizon: int = 50
    """Steps that a rollout lasts."""
    tries: int = 32
    """Rollouts of every action."""
    finalists: int = 3
    """Actions that are looked at again beside the policy's own."""
    deciding: int = 256
    """Rollouts of each of these."""
    errors: float = 3.0
    """Standard errors by which an action must be better than the policy's own."""
    margin: float = 0.04
    """And by how much on top of that."""
    lengths: tuple[int, ...] = ()
    """Episode lengths that count, each with the return up to there; none counts the whole episode."""
    judging: int = 4096
    """Episodes on which the result must do better, by two standard errors."""
    attempts: int = 3
    """Times to try with half of the switches where all of them together do not do better."""
    lessons: int = 1200
    """Gradient steps that teach the switches."""
    rounds: int = 1
    """Times to do all of this."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, episodes=self.episodes, states=self.states, least_visits=self.least_visits, horizon=self.horizon)
        at_least(1, tries=self.tries, finalists=self.finalists, rounds=self.rounds, attempts=self.attempts)
        at_least(2, deciding=self.deciding, judging=self.judging)
        at_least(0, lessons=self.lessons)
        finite(errors=self.errors, margin=self.margin)
        if any(length < 1 for length in self.lengths):
            raise RedlineError(f"An episode cannot have {min(self.lengths)} steps. Try --lengths 30,50,100.")
        at_least(1, lengths=max(self.lengths, default=1))


@dataclass(frozen=True)
class Switch:
    """An information state in which another action does better."""

    state: int
    old: int
    new: int
    gain: float
    stderr: float
    visits: float
    """Times that an episode meets it."""

    @property
    def worth(self) -> float:
        """What it may bring to an episode."""
        return self.gain * self.visits


@dataclass(frozen=True)
class Gains:
    """How one round of improvement went."""

    states: int
    covered: float
    """Part of all steps that were looked at."""
    found: int
    taken: int
    promised: float
    """Sum of what the switches may bring, each by itself."""
    before: float
    after: float
    stderr: float
    switches: tuple[dict[str, Any], ...]
    """The ten that promise most."""

    @classmethod
    def of(
        cls, moments: Moments, how: Improvement, switches: Sequence[Switch], taken: int, difference: Judgement
    ) -> Gains:
        """What a round came to that looked at these moments and took so many of the switches."""
        states = moments.common(how.states, how.least_visits)
        return cls(
            states=states,
            covered=float(moments.visits[:states].sum() / moments.visits.sum()),
            found=len(switches),
            taken=taken,
            promised=sum(each.worth for each in switches),
            before=difference.before,
            after=difference.after if taken else difference.before,
            stderr=difference.stderr,
            switches=tuple(asdict(each) for each in switches[:10]),
        )

    def line(self, found: str) -> str:
        """In a line; `found` says what the switches are."""
        return (
            f"{self.states} states ({self.covered:.0%} of all steps): {self.found} {found}, "
            f"{self.taken} taken; {self.before:.2f} → {self.after:.2f} ± {self.stderr:.2f}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def total_gain(gains: Sequence[Gains]) -> float:
    """What all rounds gained together; each is judged on episodes of its own."""
    return sum(each.after - each.before for each in gains)
