"""Envs that we did not write, and one to try engines on: `slow`, factories of your own, Gymnasium ids."""

from typing import Any

from redline.worlds.python.slow import Slow
from redline.worlds.world import Named, World, reaches_nothing

_RECIPE: Named[Any] = Named("redline.worlds.python.recipe:recipe")
_FIT: Named[Any] = Named("redline.worlds.python.recipe:fit")

SLOW = World(
    name="slow",
    about="A Python env whose steps cost what you choose, to try engines on",
    single=Named("redline.worlds.python.slow:make_slow"),
    options=Slow,
    reaches=reaches_nothing,
    recipe=_RECIPE,
    fit=_FIT,
)
EXTERNAL = World(
    name="external",
    about="Your own env: a function that returns a gymnasium.Env",
    single=Named("redline.worlds.python.external:make_external"),
    recipe=_RECIPE,
    fit=_FIT,
    prefix="external:",
    reaches=lambda name, options: f"call {name} with {options}",
    examples={"external:package.module:factory": "your own env: a function that returns a gymnasium.Env"},
)
GYMNASIUM = World(
    name="gymnasium",
    about="Any env that is registered with Gymnasium",
    single=Named("redline.worlds.python.registered:make_registered"),
    recipe=_RECIPE,
    fit=_FIT,
    matches=Named("redline.worlds.python.registered:is_registered"),
    require=Named("redline.worlds.python.registered:require_package"),
    reaches=Named("redline.worlds.python.registered:reaches"),
    examples={"CartPole-v1": "any Gymnasium id"},
)
WORLDS = (SLOW, EXTERNAL, GYMNASIUM)
