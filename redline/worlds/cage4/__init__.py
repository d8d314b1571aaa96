"""CAGE Challenge 4: five defenders of a network that is drawn anew in every episode."""

from redline.worlds.cage4.rules.scenario import BLUE_AGENTS, EnterpriseOptions
from redline.worlds.world import GymnasiumId, Named, Original, World, reaches_nothing

_HERE = "redline.worlds.cage4"

CAGE4 = World(
    name="cage4",
    about="CAGE Challenge 4: five defenders, 45 to 137 hosts drawn anew every episode, users, six Red agents",
    single=Named(f"{_HERE}.single:make_single"),
    batch=Named(f"{_HERE}.env:make_batch"),
    agents=BLUE_AGENTS,
    gymnasium=GymnasiumId("redline/Cage4-v0", f"{_HERE}.single:Cage4Env", f"{_HERE}.env:Cage4VectorEnv"),
    options=EnterpriseOptions,
    reaches=reaches_nothing,
    steps=Named(f"{_HERE}.recipe:steps"),
    recipe=Named(f"{_HERE}.recipe:recipe"),
    grade=Named(f"{_HERE}.protocol:grade"),
    score=Named(f"{_HERE}.protocol:SCORE"),
    sections=Named(f"{_HERE}.pages:sections"),
    play=Named(f"{_HERE}.play:PLAY"),
    verify=Named(f"{_HERE}.verify:VERIFY"),
    original=Original("the original", lambda name, options, seconds: 20.0),
)
WORLDS = (CAGE4,)
