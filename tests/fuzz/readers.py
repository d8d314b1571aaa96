"""Everything that reads what somebody else may have written, each with inputs that are right to begin with."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from tests.fuzz.mutate import NUMBERS, WORDS, mutated_bytes, mutated_json

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
SEEDS = HERE / "seeds"


@dataclass(frozen=True)
class Reader:
    """A way in: `read` takes one input, and either comes to an end or raises a `RedlineError` of one line."""

    name: str
    draw: Callable[[random.Random], Any]
    read: Callable[[Any], object]

    def try_one(self, seed: int) -> bool:
        """Read one input. Returns whether it was taken."""
        given = self.draw(random.Random(seed))
        try:
            self.read(given)
        except RedlineError as error:
            assert "\n" not in str(error), f"more than one line: {error}"
            return False
        return True


def _bytes_of(files: list[Path]) -> Callable[[random.Random], bytes]:
    contents = [file.read_bytes() for file in files]
    return lambda rng: mutated_bytes(rng, rng.choice(contents), contents)


def _json_of(values: list[Any]) -> Callable[[random.Random], Any]:
    return lambda rng: mutated_json(rng, rng.choice(values))


@contextmanager
def _file(data: bytes, suffix: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=suffix, dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def _pnml() -> Reader:
    from redline.worlds.petri.pnml import PnmlNet, build_pnml
    from redline.worlds.petri.rules.tables import tabulate

    def read(data: bytes) -> None:
        with _file(data, ".pnml") as path:
            tabulate(build_pnml(PnmlNet(str(path))))

    return Reader("pnml", _bytes_of(sorted((DATA / "petri" / "pnml").glob("*.pnml"))), read)


def _job_shops() -> Reader:
    from redline.worlds.petri.job_shop import JobShop, build_shop
    from redline.worlds.petri.rules.tables import tabulate

    def read(data: bytes) -> None:
        with _file(data, ".txt") as path:
            tabulate(build_shop(JobShop(str(path))))

    return Reader("job shops", _bytes_of(sorted(SEEDS.glob("*.shop"))), read)


def _routes() -> Reader:
    from redline.worlds.petri.cluster_tool import ClusterTool, build_tool
    from redline.worlds.petri.rules.tables import tabulate

    routes = json.loads((HERE.parents[1] / "redline/worlds/petri/data/routes.json").read_text())

    def read(data: Any) -> None:
        with _file(json.dumps(data).encode(errors="surrogatepass"), ".json") as path:
            tabulate(build_tool(ClusterTool(str(path), wafers=2)))

    return Reader("routes", _json_of(list(routes.values())[:8]), read)


def _tools() -> Reader:
    from redline.worlds.petri.cluster_tool import read_device

    devices = json.loads((HERE.parents[1] / "redline/worlds/petri/data/devices.json").read_text())
    return Reader("tools", _json_of(list(devices.values())), lambda data: read_device("tool", data))


def _schedules() -> Reader:
    from redline.worlds.petri.replay import load_recording, verify

    files = sorted((DATA / "petri" / "schedules").glob("*.json"))
    values = [json.loads(file.read_text()) for file in files[:3] + files[-3:]]

    def read(data: Any) -> None:
        with _file(json.dumps(data).encode(errors="surrogatepass"), ".json") as path:
            verify(load_recording(path))

    return Reader("schedules", _json_of(values), read)


def _recordings() -> Reader:
    from redline.worlds.cage2.recordings import load_traces, replay

    with np.load(DATA / "cage2_final.npz") as file:
        small = {name: array[:2] if array.ndim and len(array) > 2 else array for name, array in file.items()}

    def draw(rng: random.Random) -> bytes:
        arrays, out = dict(small), io.BytesIO()
        name = rng.choice(list(arrays))
        arrays[name] = rng.choice((
            lambda a: a.astype(rng.choice((np.float64, np.int8, np.uint64, np.bool_))) if a.dtype.kind in "iufb" else a,
            lambda a: a[:0] if a.ndim else a, lambda a: a.reshape(-1), lambda a: np.full(a.shape, np.nan),
            lambda a: np.full(a.shape, rng.choice((-1, 127, 2**31, -(2**40)))),
            lambda a: rng.choice((np.zeros(0), np.array("x"), np.array(-1))),
        ))(arrays[name])  # fmt: skip
        if rng.random() < 0.2:
            del arrays[name]
        np.savez(out, **arrays)
        data = out.getvalue()
        return mutated_bytes(rng, data, [data]) if rng.random() < 0.5 else data

    def read(data: bytes) -> None:
        with _file(data, ".npz") as path:
            replay(load_traces(path))

    return Reader("recordings", draw, read)


def _checkpoints() -> Reader:
    from redline.learn import checkpoint
    from redline.runs import ARRAYS, MANIFEST, VALUES

    folder = Path(tempfile.mkdtemp(prefix="redline-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    saved = checkpoint.save(folder, 7, {"policy.a": np.zeros(3), "engine.b": np.ones((2, 2), np.bool_)}, {"step": 7})
    files = {name: (saved / name).read_bytes() for name in (ARRAYS, MANIFEST, VALUES)}

    def draw(rng: random.Random) -> dict[str, bytes]:
        name = rng.choice(list(files))
        changed = {**files, name: mutated_bytes(rng, files[name], list(files.values()))}
        if rng.random() < 0.8:  # by somebody who knows how checksums are made
            try:
                manifest = json.loads(changed[MANIFEST])
                for each in (ARRAYS, VALUES):
                    manifest["files"][each] = {"bytes": len(changed[each]), "sha256": checkpoint._sha256(changed[each])}
                manifest["sha256"] = checkpoint._manifest_sha256(manifest)
                changed[MANIFEST] = json.dumps(manifest).encode()
            except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
                pass
        return changed

    def read(changed: dict[str, bytes]) -> None:
        for name, data in changed.items():
            (saved / name).write_bytes(data)
        checkpoint.load(saved)

    return Reader("checkpoints", draw, read)


def _configs() -> Reader:
    from redline.learn.config import TrainConfig, config_to_json
    from redline.learn.trust import stored_config
    from redline.worlds.registry import make_env

    names = ("cage2", "slow?mean_ms=1", "petri:jobshop/ft06", "nasim:tiny", "external:os:system", "CartPole-v1")
    values = [config_to_json(TrainConfig(name)) for name in names]

    def read(data: Any) -> None:
        config = stored_config(data, Path("run"))
        if config.env.startswith(("cage2", "slow", "petri", "nasim")):
            make_env(config.env, 1, **config.env_options).close()

    return Reader("configs", _json_of(values), read)


def _metrics() -> Reader:
    from redline.report.learning import write_report
    from redline.runs import BREAKDOWN, CONFIG, METRICS, SCORES, Run

    folder = Path(tempfile.mkdtemp(prefix="redline-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    files = {name: (SEEDS / "run" / name).read_bytes() for name in (CONFIG, METRICS, SCORES, BREAKDOWN)}

    def draw(rng: random.Random) -> dict[str, bytes]:
        name = rng.choice(list(files))
        if name == METRICS or rng.random() < 0.3:
            return {**files, name: mutated_bytes(rng, files[name], list(files.values()))}
        return {**files, name: json.dumps(mutated_json(rng, json.loads(files[name]))).encode(errors="surrogatepass")}

    def read(changed: dict[str, bytes]) -> None:
        for name, data in changed.items():
            (folder / name).write_bytes(data)
        write_report(Run.open(folder))

    return Reader("metrics", draw, read)


def _names() -> Reader:
    from redline.worlds.registry import make_env

    names = (
        "cage2?max_steps=50&red_agent=SleepAgent&observation=history&history=3", "slow?mean_ms=1&size=3&num_actions=2",
        "petri:cluster/S-0?wafers=3&arms=2&cleaning=on&waits=5,10&idle_cleaning=60,20&wip_limit=4",
        "petri:jobshop/ft06?buffers=blocking&horizon=500", "nasim:tiny?fully_obs=true&network_seed=3",
        "petri:tests/data/petri/pnml/kanban_1.pnml?goal=Unit:3&default_duration=2",
    )  # fmt: skip

    def draw(rng: random.Random) -> str:
        name = rng.choice(names)
        head, _, query = name.partition("?")
        parts = query.split("&")
        k = rng.randrange(len(parts))
        option = parts[k].partition("=")[0]
        parts[k] = rng.choice(
            (f"{option}={rng.choice(NUMBERS + WORDS)}", rng.choice(WORDS), f"{rng.choice(WORDS)}=1", parts[k] * 2)
        )
        if rng.random() < 0.2:
            head = mutated_bytes(rng, head.encode(), [head.encode()])[:200].decode(errors="replace")
        return f"{head}?{'&'.join(parts)}"

    def read(name: str) -> None:
        if name.startswith(("cage2", "slow", "petri", "nasim")):
            make_env(name, 1).close()

    return Reader("names", draw, read)


MAKERS = (_pnml, _job_shops, _routes, _tools, _schedules, _recordings, _checkpoints, _configs, _metrics, _names)
NAMES = tuple(make.__name__.strip("_").replace("_", " ") for make in MAKERS)


def reader(name: str) -> Reader:
    """The reader of that name."""
    return MAKERS[NAMES.index(name)]()
