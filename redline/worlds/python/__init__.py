"""Envs that we did not write, and one to try engines on: `slow`, factories of your own, Gymnasium ids."""

from redline.worlds.python.slow import Slow
from redline.worlds.world import Named, World, reaches_nothing

SLOW = World(
    name="slow",
    about="A Python env whose steps cost what you choose, to try engines on",
    single=Named("redline.worlds.python.slow:make_slow"),
    options=Slow,
    reaches=reaches_nothing,
)
EXTERNAL = World(
    name="external",
    about="Your own env: a function that returns a gymnasium.Env",
    single=Named("redline.worlds.python.external:make_external"),
    prefix="external:",
    reaches=lambda name, options: f"call {name} with {options}",
    examples={"external:package.module:factory": "your own env: a function that returns a gymnasium.Env"},
)
GYMNASIUM = World(
    name="gymnasium",
    about="Any env that is registered with Gymnasium",
    single=Named("redline.worlds.python.registered:make_registered"),
    matches=Named("redline.worlds.python.registered:is_registered"),
    reaches=Named("redline.worlds.python.registered:reaches"),
    examples={"CartPole-v1": "any Gymnasium id with discrete actions"},
)
WORLDS = (SLOW, EXTERNAL, GYMNASIUM)
