"""What every compiled world promises, asked of ours."""

from __future__ import annotations

from pathlib import Path

from redline.testing import WorldContract

PRESS = Path(__file__).parents[1] / "data" / "petri" / "pnml" / "weighted_press_3.pnml"


class TestCage2(WorldContract):
    steps = 13
    names = tuple(
        f"cage2?max_steps=6&{options}"
        for options in (
            "red_agent=B_lineAgent,RedMeanderAgent,SleepAgent&green_agent=GreenAgent",
            "red_agent=RedMeanderAgent&rules=leaderboard&wrapper=cw2",
            "actions=reduced",
            "observation=table+scan",
            "observation=history&history=2",
        )
    )


class TestPetri(WorldContract):
    names = (
        "petri:cluster/S-0?wafers=2",
        "petri:cluster/1-4?arms=2&wafers=3&reward=ct_dense",
        "petri:cluster/2-2?cleaning=on&gate=route&wip_limit=route&device=cascade_full&tm1=rule&wafers=3",
        "petri:cluster/J-0?layout=graph&wafers=3&stop_on_scrap=off",
        f"petri:{PRESS}?goal=Unit:2&max_steps=15&default_duration=2",
        "petri:jobshop/ft06",
        "petri:jobshop/ft06?actions=operations&non_delay=on",
    )


class TestNasim(WorldContract):
    names = ("nasim:tiny", "nasim:tiny?fully_obs=true", "nasim:small-gen?network_seed=1")
