"""CAGE Challenge 2: defend a network of 13 hosts. Compiled, and beside it the original simulator."""

from collections.abc import Callable
from pathlib import Path

from redline.worlds.cage2.rules.scenario import Scenario
from redline.worlds.world import Answer, GymnasiumId, Named, Original, Preset, World, reaches_nothing

_HERE = "redline.worlds.cage2"
_CHAMPIONS = Path(__file__).parent / "champions"
_PROTOCOL: Named[Callable[..., Answer]] = Named(f"{_HERE}.protocol:grade_protocol")
_LEFT_OPEN = ("rules", "red_agent", "observation", "forget", "wrapper", "green_agent")
"""Options that the presets leave open."""

CAGE2 = World(
    name="cage2",
    about="CAGE Challenge 2: defend a network of 13 hosts against Red (52 bits, 145 actions)",
    single=Named(f"{_HERE}.env:make_single"),
    batch=Named(f"{_HERE}.env:make_batch"),
    gymnasium=GymnasiumId("redline/Cage2-v0", f"{_HERE}.env:Cage2Env", f"{_HERE}.env:Cage2VectorEnv"),
    options=Scenario,
    reaches=reaches_nothing,
    chance=True,
    steps=lambda name: 50_000_000,
    presets={
        "short": Preset(
            "one defender against both Reds, better than the published board, in two minutes",
            Named(f"{_HERE}.presets:short"),
            takes=_LEFT_OPEN,
            unasked=("rules",),
            grade=_PROTOCOL,
        ),
        "champion": Preset(
            "the same, as good as we know how to make it, in ten minutes",
            Named(f"{_HERE}.presets:champion"),
            takes=_LEFT_OPEN,
            grade=_PROTOCOL,
        ),
    },
    policies=lambda: {"champion": _CHAMPIONS / "leaderboard", "champion-final": _CHAMPIONS / "final"},
    eval_episodes=1000,
    grade=Named(f"{_HERE}.protocol:grade"),
    is_baseline=Named(f"{_HERE}.baselines:is_baseline"),
    score=Named(f"{_HERE}.protocol:SCORE"),
    sections=Named(f"{_HERE}.pages:sections"),
    play=Named(f"{_HERE}.play:PLAY"),
    verify=Named(f"{_HERE}.verify:VERIFY"),
    workflows=Named(f"{_HERE}.workflow:WORKFLOWS"),
    original=Original("CybORG", lambda name, options, seconds: 370.0),
)
CYBORG = World(
    name="cyborg",
    about="The original CAGE-2 simulator, where it is installed",
    single=Named(f"{_HERE}.original:make_cyborg"),
    recipe=Named("redline.worlds.python.recipe:recipe"),
    fit=Named("redline.worlds.python.recipe:fit"),
    prefix="cyborg:",
    reaches=lambda name, options: f"run the installed CybORG as {name}",
    chance=True,
    examples={"cyborg:B_lineAgent": "the original CAGE-2 simulator, where it is installed"},
)
WORLDS = (CAGE2, CYBORG)
