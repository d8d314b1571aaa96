"""Readers of run folders: configs, checkpoints, metrics, scores, stages, searches and sweeps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.mutate import mutated_bytes, mutated_json
from tests.fuzz.reader import SEEDS, Draw, Reader, a_folder, encoded, json_of

Files = dict[str, bytes]
NO_CURVES = b"step,episodes,seconds,steps_per_second,return,return_std,distinct,entropy\n8,0,0.1,80,nan,nan,nan,nan\n"
"""Metrics of a run in which nothing happened yet."""


def _changing(files: Files) -> Draw:
    """Files of which one is changed: what it says if it is JSON, or its bytes."""

    def draw(rng: random.Random) -> Files:
        name = rng.choice(list(files))
        if not name.endswith(".json") or rng.random() < 0.2:
            return {**files, name: mutated_bytes(rng, files[name], list(files.values()))}
        return {**files, name: encoded(mutated_json(rng, json.loads(files[name])))}

    return draw


def _in_folder(files: Files, read: Callable[[Path], object]) -> Reader:
    """Reads a folder with these files, one of them changed."""
    folder = a_folder()
    last = dict[str, bytes]()

    def read_all(changed: Files) -> None:
        for name, data in changed.items():
            if last.get(name) != data:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
                last[name] = data
        read(folder)

    return Reader(_changing(files), read_all)


def _reported(files: Files, changing: tuple[str, ...]) -> Reader:
    """Reads a run into a report. Curves are drawn where they have changed: they take most of the time of a report."""
    from redline.report.learning import write_report
    from redline.runs import METRICS, Run

    draw_changed = _changing({name: files[name] for name in changing})

    def draw(rng: random.Random) -> Files:
        changed = {name: data for name, data in draw_changed(rng).items() if data != files[name]}
        return {**files, METRICS: NO_CURVES, **changed}

    return Reader(draw, _in_folder(files, lambda folder: write_report(Run.open(folder))).read)


def _seeds(folder: str) -> Files:
    root = SEEDS / folder
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def checkpoints() -> Reader:
    from redline.learn import checkpoint
    from redline.runs import ARRAYS, MANIFEST, VALUES

    folder = a_folder()
    saved = checkpoint.save(folder, 7, {"policy.a": np.zeros(3), "engine.b": np.ones((2, 2), np.bool_)}, {"step": 7})
    files = {name: (saved / name).read_bytes() for name in (ARRAYS, MANIFEST, VALUES)}

    def draw(rng: random.Random) -> Files:
        name = rng.choice(list(files))
        changed = {**files, name: mutated_bytes(rng, files[name], list(files.values()))}
        return _with_checksums(changed) if rng.random() < 0.8 else changed

    def read(changed: Files) -> None:
        for name, data in changed.items():
            (saved / name).write_bytes(data)
        checkpoint.load(saved)

    return Reader(draw, read)


def _with_checksums(files: Files) -> Files:
    """As somebody leaves them who knows how checksums are made."""
    from redline.learn import checkpoint
    from redline.runs import ARRAYS, MANIFEST, VALUES

    try:
        manifest = json.loads(files[MANIFEST])
        for each in (ARRAYS, VALUES):
            manifest["files"][each] = {"bytes": len(files[each]), "sha256": checkpoint._sha256(files[each])}
        manifest["sha256"] = checkpoint._manifest_sha256(manifest)
        return {**files, MANIFEST: json.dumps(manifest).encode()}
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return files


def values() -> Reader:
    """What a checkpoint holds besides arrays, on its way into a trainer."""
    from redline.learn.config import TrainConfig
    from redline.learn.train import Trainer

    trainer = Trainer(TrainConfig("cage2", num_envs=2, num_steps=4, hidden=(4,), threads=1))
    trainer.update()
    arrays, saved = trainer.snapshot()
    return Reader(json_of([json.loads(json.dumps(saved))]), lambda given: trainer.restore(arrays, given))


def policies() -> Reader:
    """A checkpoint, on its way into a policy that plays: other settings, other names, other shapes."""
    from redline.learn import checkpoint
    from redline.learn.config import TrainConfig, config_to_json
    from redline.learn.evaluate import load_policy
    from redline.learn.train import Trainer

    config = TrainConfig("slow", {"mean_ms": 0.01, "size": 3}, num_envs=2, num_steps=4, hidden=(4, 4), threads=1)
    trainer = Trainer(config)
    arrays = {f"policy.{name}": array for name, array in trainer.policy.arrays().items()}
    trainer.close()
    values, folder = {"config": config_to_json(config), "version": "0"}, a_folder()

    def draw(rng: random.Random) -> tuple[dict[str, np.ndarray], Any]:
        if rng.random() < 0.5:
            return arrays, mutated_json(rng, values)
        changed, name = dict(arrays), rng.choice(list(arrays))
        array = changed.pop(name)
        odd = (
            array.reshape(-1),
            array[:-1],
            array.astype(np.int64),
            np.zeros(0, np.float32),
            array * np.float32("nan"),
        )
        changed[rng.choice((name, name, f"{name}x", "engine.x"))] = rng.choice(odd)
        return changed, values

    def read(given: tuple[dict[str, np.ndarray], Any]) -> None:
        if isinstance(given[1], dict):
            load_policy(checkpoint.save(folder, 7, *given))

    return Reader(draw, read)


def configs() -> Reader:
    from redline.learn.config import TrainConfig, config_to_json
    from redline.learn.trust import stored_config
    from redline.worlds.registry import make_env

    names = (
        "cage2",
        "cage4",
        "slow?mean_ms=1",
        "petri:jobshop/ft06",
        "nasim:tiny",
        "external:os:system",
        "CartPole-v1",
    )

    def read(data: Any) -> None:
        config = stored_config(data, Path("run"))
        if config.env.startswith(("cage", "slow", "petri", "nasim")):
            make_env(config.env, 1, **config.env_options).close()

    return Reader(json_of([config_to_json(TrainConfig(name)) for name in names]), read)


def metrics() -> Reader:
    """A run, on its way into a report."""
    files = _seeds("run")
    return _reported(files, tuple(files))


def net_runs() -> Reader:
    """A run on a timed net, on its way into a report with its schedule."""
    from redline.runs import CONFIG, SCHEDULE, SCORES
    from redline.worlds.petri.instances import parse_petri
    from redline.worlds.petri.scores import play_rules

    env = "petri:jobshop/ft06"
    instance = parse_petri(env)
    played = play_rules(instance)
    config = {**json.loads(_seeds("run")[CONFIG]), "env": env, "env_options": {}}
    scores = {"net": env, "results": [each.to_json(instance) for each in played]}
    files = {CONFIG: config, SCHEDULE: played[0].schedule.to_json(), SCORES: scores}
    return _reported({**_seeds("run"), **{name: encoded(value) for name, value in files.items()}}, tuple(files))


def profiles() -> Reader:
    """A run, on its way into a profile."""
    from redline.profiler.finished import profile_of_run

    return _in_folder(_seeds("run"), profile_of_run)


def compared_runs() -> Reader:
    """A run, on its way into a list or a comparison."""
    from redline.report.groups import read_run

    def read(folder: Path) -> None:
        read_run(folder).breakdown()

    return _in_folder(_seeds("run"), read)


def stages() -> Reader:
    """A run with a preset."""
    from redline.learn.config import Saving
    from redline.learn.stages import Chain
    from redline.report.stages import stage_sections
    from redline.runs import Run

    def read(folder: Path) -> None:
        run = Run.open(folder)
        stage_sections(run)
        chain = Chain(run, Saving(), print, print)
        assert chain.config and chain.step >= 0 and list(chain.left()) is not None

    return _in_folder(_seeds("stages"), read)


def searches() -> Reader:
    """A workflow search, on its way into its report and into going on."""
    from redline.cli.search import plan_of
    from redline.report.search_results import read_search
    from redline.runs import Run
    from redline.search.paired import Paired
    from redline.search.parallel import Here
    from redline.search.search import Budget, Search
    from redline.search.top_two import TopTwo

    def read(folder: Path) -> None:
        run = Run.open(folder)
        read_search(run)
        plan = plan_of(run.config)
        budget, method = Budget(64, 8), Paired(TopTwo(plan.workflows.distances))
        search = Search(run, plan.workflows, budget, method, Here(), lambda order: order, lambda task: task)
        search.close()

    return _in_folder(_seeds("search"), read)


def sweeps() -> Reader:
    from redline.cli import sweep
    from redline.learn.config import TrainConfig, config_to_json

    plan = {
        "points": {"a": config_to_json(TrainConfig("cage2"))},
        "seeds": [0, 1],
        "halving": False,
        "chosen": {"a": {"gamma": 1}},
        "eval_episodes": 5,
    }
    return _in_folder({sweep.SWEEP: encoded(plan)}, sweep.read_plan)


READERS = (checkpoints, values, policies, configs, metrics, profiles, net_runs, compared_runs, stages, searches, sweeps)
