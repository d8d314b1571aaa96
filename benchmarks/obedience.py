"""Does obeying a workflow help against plain PPO of equal budget? `python -m benchmarks.obedience`.

Every seed trains a start with nothing to obey. From it, plain PPO and one of each group of orders that are alike are trained
for as many episodes more, with the same random numbers. All are scored on the same fresh episodes, which nothing was trained
or chosen on, and compared seed by seed. The best order is chosen on other fresh episodes than those that it is scored on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from redline.cli.search_plan import SearchOptions, SearchPlan, make_search
from redline.engines.lockstep import Lockstep
from redline.learn import checkpoint
from redline.learn.acting import Actor
from redline.learn.config import config_from_json
from redline.learn.train import below, load_weights, make_policy
from redline.runs import Run
from redline.search.paired import Paired
from redline.search.search import Order, Search
from redline.search.training import workflow_config
from redline.timing.stopwatch import Stopwatch
from redline.worlds.cage2.workflow import WORKFLOWS
from redline.worlds.registry import make_env

PLAIN = -1
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Standard errors to each side that hold the true mean 95 times in 100, by number of seeds."""
CHOOSING, SCORING = 5_000_011, 9_000_011
"""Seeds of the episodes by which the best order is chosen, and of those that it is scored on."""


def returns(path: Path, episodes: int, seed: int) -> float:
    """Mean reward of the environment alone over fresh episodes of a policy."""
    found = checkpoint.load(path)
    config = config_from_json(found.values["config"])
    env = make_env(config.env, episodes, encoded=True, **config.env_options)
    policy = make_policy(env, config, seed=0)
    load_weights(policy, below(found.arrays, "policy"))
    rollout = Lockstep(env, seed).collect(
        Actor(policy, episodes, seed + 1), int(found.values["episode_steps"]), Stopwatch()
    )
    told = rollout.episode_metrics
    return float((told["env_return"] if "env_return" in told else rollout.rewards.sum(axis=0)).mean())


def trained(search: Search, plan: SearchPlan, id: int, start: str, replicate: int) -> Path:
    """The policy of one training from a start."""
    task = search.make_task(Order(max(id, 0), 0, plan.options.min_updates, None, start, replicate))
    if id == PLAIN:  # the same random numbers, and nothing to obey
        base = plan.options.trainer(plan.settings.max_steps)
        config = workflow_config(base, plan.workflows.env_options(plan.settings, ""), task.config["seed"])
        task = replace(task, config=config, folder=f"{search.run.path}/plain/{replicate}")
    return Path(search.train(task).checkpoint)


def compare(red: str, rules: str, seeds: int, episodes: int, folder: Path) -> dict[str, object]:
    """Scores [orders, seeds] of plain PPO and of each distinct order."""
    options = SearchOptions(env="cage2", start_episodes=20_000)
    plan = SearchPlan(options, WORKFLOWS, WORKFLOWS.settings(red_agent=red, rules=rules))
    search = make_search(Run.at(folder, plan.config), plan)
    method = search.method
    assert isinstance(method, Paired)
    method.begin(search)
    ids = [int(id) for id in method.picker.groups.first]
    score = partial(returns, episodes=episodes)
    scores = {CHOOSING: np.zeros((len(ids) + 1, seeds)), SCORING: np.zeros((len(ids) + 1, seeds))}
    for k in range(seeds):
        start = method.start(search, k)
        for row, id in enumerate([PLAIN, *ids]):
            path = trained(search, plan, id, start, k)
            for seed, found in scores.items():
                found[row, k] = score(path, seed=seed + k)
    search.close()
    best = 1 + int(scores[CHOOSING][1:].mean(axis=1).argmax())
    told = scores[SCORING]
    return {
        "red": red, "rules": rules, "seeds": seeds, "distinct": len(ids), "best": WORKFLOWS.name(ids[best - 1]),
        "plain": interval(told[0]),
        "orders - plain": interval(told[1:].mean(axis=0) - told[0]),
        "best - plain": interval(told[best] - told[0]),
    }  # fmt: skip


def interval(values: np.ndarray) -> str:
    """Mean and 95 % interval over seeds."""
    count = len(values)
    return f"{values.mean():+.2f} ± {T_95[count] * values.std(ddof=1) / np.sqrt(count):.2f}"


def main() -> None:
    """Compare, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--red-agent", default="B_lineAgent")
    parser.add_argument("--rules", default="final")
    parser.add_argument("--seeds", type=int, default=6, choices=T_95)
    parser.add_argument("--episodes", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = compare(asked.red_agent, asked.rules, asked.seeds, asked.episodes, Path(folder) / "run")
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
