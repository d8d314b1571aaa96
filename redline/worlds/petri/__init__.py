"""Timed Petri nets: cluster tools, job shops, PNML files."""

from redline.worlds.world import GymnasiumId, Named, World

_HERE = "redline.worlds.petri"

PETRI = World(
    name="petri",
    about="Timed nets: cluster tools, job shops, PNML files",
    single=Named(f"{_HERE}.env:make_single"),
    batch=Named(f"{_HERE}.env:make_batch"),
    gymnasium=GymnasiumId("redline/Petri-v0", f"{_HERE}.env:PetriEnv", f"{_HERE}.env:PetriVectorEnv"),
    prefix="petri:",
    reaches=Named(f"{_HERE}.instances:reaches"),
    chance=False,
    examples={"petri:cluster/J-0": "timed nets: cluster tools, job shops, PNML files; see redline envs petri"},
    steps=lambda name: 8_000_000,
    recipe=Named(f"{_HERE}.recipe:recipe"),
    fit=Named(f"{_HERE}.recipe:fit"),
    summarise=Named(f"{_HERE}.scores:summarise"),
    unbeatable=Named(f"{_HERE}.scores:unbeatable"),
    progress=Named(f"{_HERE}.scores:progress"),
    demonstrate=Named(f"{_HERE}.warm_start:demonstrate"),
    eval_episodes=64,
    grade=Named(f"{_HERE}.score_command:grade"),
    score=Named(f"{_HERE}.score_command:SCORE"),
    sections=Named(f"{_HERE}.pages:sections"),
    play=Named(f"{_HERE}.play:PLAY"),
    verify=Named(f"{_HERE}.verify:VERIFY"),
    solve=Named(f"{_HERE}.solve.command:SOLVE"),
    show=Named(f"{_HERE}.show:SHOW"),
)
WORLDS = (PETRI,)
