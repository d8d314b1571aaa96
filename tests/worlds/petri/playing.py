"""Playing a net by the names of its actions and of what is seen, and hearing complaints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redline.errors import RedlineError
from redline.worlds.petri.bounds import flow
from redline.worlds.petri.cluster_tool import ToolPlan
from redline.worlds.petri.dispatching import Dispatcher, Game, insert_without_waiting
from redline.worlds.petri.rules.net import Net


def play(game: Game, *actions: str) -> list[float]:
    """The rewards of actions called by name."""
    return [game.step(game.net.action_names.index(action)) for action in actions]


def legal(game: Game) -> set[str]:
    """What can be done besides waiting."""
    names = zip(game.net.action_names, game.mask[0], strict=True)
    return {name for name, ok in names if ok and not name.startswith("wait")}


def seen(game: Game, owner: str) -> dict[str, float]:
    """What the observation tells of a place, a job or the whole."""
    numbers = zip(game.net.observation_names, game.obs[0].tolist(), strict=True)
    return {name.removeprefix(f"{owner}."): value for name, value in numbers if name.startswith(f"{owner}.")}


def complaint(call: Callable[[], Any]) -> str:
    """The one line that a call is refused with."""
    with pytest.raises(RedlineError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


def dispatch(net: Net, rule: str, turbo: bool = True) -> int:
    """The makespan a dispatching rule reaches."""
    dispatcher, game = Dispatcher(net, rule), Game(net, turbo)
    while game.running:
        game.step(int(dispatcher.act(game.state, game.mask)[0]))
    return game.clock


def insertion_makespan(plan: ToolPlan) -> int:
    """When the insertion rule is done."""
    return max(
        hops[0][0] + flow(plan, plan.types[kind])
        for hops, kind in zip(insert_without_waiting(plan), plan.wafer_types, strict=True)
    )
