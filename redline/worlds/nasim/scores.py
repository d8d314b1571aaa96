"""Scores of an attacker, beside the return of the best episode there is."""

from __future__ import annotations

import dataclasses
from typing import Any

from redline.learn.evaluate import ReturnOptions, Subject, Trained, grade_returns, score_returns
from redline.worlds.naming import with_query
from redline.worlds.nasim.instances import find_network
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.world import Answer, Command, Say


def run(subject: Subject, options: ReturnOptions, say: Say) -> Answer:
    """The mean return of a policy."""
    return _beside_best(score_returns(subject, options, say), subject.env, subject.env_options)


SCORE = Command(ReturnOptions, run)


def grade(trained: Trained, episodes: int, seed: int) -> Answer:
    """The score at the end of training."""
    return _beside_best(grade_returns(trained, episodes, seed), trained.config.env, trained.config.env_options)


def _beside_best(answer: Answer, env: str, env_options: dict[str, Any]) -> Answer:
    """An answer that also tells how much of the best return was reached, where that is known."""
    name, options = with_query(env, env_options)
    known = {field.name for field in dataclasses.fields(NetworkOptions)}
    best = find_network(name, NetworkOptions(**{k: v for k, v in options.items() if k in known})).max_score
    if best is None:
        return answer
    share = answer.data["mean"] / best
    line = f"That is {share:.0%} of {best:g}, the return of the best episode without bad luck."
    return dataclasses.replace(
        answer, data={**answer.data, "max_score": best, "share": share}, lines=[*answer.lines, line]
    )
