"""A job shop the other way: its jobs are tokens that follow routes over places that stand for machines."""

from __future__ import annotations

from redline.worlds.petri.bounds import shop_bound
from redline.worlds.petri.job_shop import HORIZON, Shop, total_work
from redline.worlds.petri.rules.net import NEXT, Net, NetRules, Place, Step, Transition


def build_coloured_shop(shop: Shop) -> Net:
    """The net of a job shop with a route for each job."""
    places, transitions, routes = [], [], []
    for j, job in enumerate(shop.quickest()):
        places += [Place(f"Q{j}", 1, 1), Place(f"D{j}", 0, 1)]
        visits = sorted({machine for machine, _ in job})
        transitions += [Transition(f"B{j},{m}", ((f"Q{j}", 1),), ((f"M{m}", 1),), action=f"job {j}") for m in visits]
        transitions += [Transition(f"E{j},{m}", ((f"M{m}", 1),), ((f"Q{j}", 1),), controllable=False) for m in visits]
        last = job[-1][0]
        transitions.append(Transition(f"F{j}", ((f"M{last}", 1),), ((f"D{j}", 1),), controllable=False))
        steps = []
        for k, (machine, time) in enumerate(job):
            steps += [Step((f"B{j},{machine}",), time), Step((f"F{j}" if k + 1 == len(job) else f"E{j},{machine}",), 0)]
        routes.append(tuple(steps))
    machines = [Place(f"M{m}", 0, 1) for m in range(shop.machines)]
    bound = shop_bound(shop.quickest())
    return Net(
        f"coloured/{shop.name}", (*places, *machines), tuple(transitions), {f"D{j}": 1 for j in range(len(shop.jobs))},
        HORIZON * total_work(shop), routes=tuple(routes), token_types=tuple(range(len(shop.jobs))),
        rules=NetRules((NEXT,), lower_bound=bound),
    )  # fmt: skip
