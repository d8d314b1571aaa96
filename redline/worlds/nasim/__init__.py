"""NASim, the Network Attack Simulator: break into a network of hosts, subnets and firewalls."""

from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.world import GymnasiumId, Named, Original, World

_HERE = "redline.worlds.nasim"

NASIM = World(
    name="nasim",
    about="NASim: break into a network of hosts, subnets and firewalls",
    single=Named(f"{_HERE}.env:make_single"),
    batch=Named(f"{_HERE}.env:make_batch"),
    gymnasium=GymnasiumId("redline/Nasim-v0", f"{_HERE}.env:NasimEnv", f"{_HERE}.env:NasimVectorEnv"),
    chance=True,
    options=NetworkOptions,
    prefix="nasim:",
    require=Named(f"{_HERE}.instances:require_network"),
    reaches=Named(f"{_HERE}.instances:reaches"),
    examples={
        "nasim:medium": "NASim: break into a network; tiny to medium-multi-site, or your own file.yaml",
        "nasim:medium-gen?network_seed=1": "a network made from a seed; tiny-gen to pocp-2-gen",
    },
    steps=Named(f"{_HERE}.recipe:steps"),
    recipe=Named(f"{_HERE}.recipe:recipe"),
    eval_episodes=1000,
    grade=Named(f"{_HERE}.scores:grade"),
    score=Named(f"{_HERE}.scores:SCORE"),
    verify=Named(f"{_HERE}.verify:VERIFY"),
    show=Named(f"{_HERE}.show:SHOW"),
    play=Named(f"{_HERE}.play:PLAY"),
    original=Original("NASim", Named(f"{_HERE}.original:steps_per_second")),
)
WORLDS = (NASIM,)
