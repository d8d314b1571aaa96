"""`redline improve`: improve a trained policy by rollouts, and keep the better one as a run of its own."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from redline.cli.console import out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.learn.config import at_least
from redline.runs import CHECKPOINTS, CONFIG, Run
from redline.signals import exit_code_of
from redline.worlds.registry import shipped_policies

if TYPE_CHECKING:
    from redline.learn.evaluate import Trained
    from redline.learn.improvement import Gains, Improvement

ABOUT = """Improve a trained policy by rollouts (rollout policy iteration).

The commonest observations that the policy meets are taken one by one: every action is tried from there, the policy plays on,
and where another action does better beyond doubt, the policy is taught it. For compiled worlds with a choice of actions. The
result plays its likeliest actions, and is never worse on the episodes that judge it."""


@dataclass(frozen=True)
class Improve:
    """What is improved, and where the result goes."""

    policy: Annotated[str, "positional"]
    """A run folder, one of its checkpoints, or a policy that comes with the package."""
    seed: int = 0
    """All randomness follows from it: same seed, same result."""
    threads: int = 0
    """Threads that play; 0 takes one per core. They change the speed, never the result."""
    runs: Path = Path("runs")
    """Folder that gets a new folder for the result."""
    run_dir: Path | None = None
    """Use exactly this folder instead; if the same was broken off in it, go on with that."""
    trust: bool = False
    """Use what the run names, such as an env of its own, though it was not made by you."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(0, seed=self.seed, threads=self.threads)


def run(arguments: list[str]) -> int:
    """Parse, improve, print."""
    from redline.learn.improvement import Improvement, total_gain

    kind = combine(ABOUT, what=Improve, how=Improvement, output=Output)
    command: Any = parse("improve", kind, arguments)
    what, output = command.what, command.output
    trained = _trained(what.policy, what.trust)
    found = _begun(trained, command.how, what)
    try:
        with found.locked():
            gains = _improve(found, trained, command.how, what, output)
            _save(found, trained)
    except KeyboardInterrupt as error:
        path = shlex.quote(str(found.path))
        warn_on_stderr(f"redline: interrupted. To go on, give the same command with --run-dir {path}")
        return exit_code_of(error)
    after = gains[0].before + total_gain(gains)
    if output.json:
        data = {"run": str(found.path), "before": gains[0].before, "after": after}
        print_json({**data, "rounds": [each.to_json() for each in gains]})
    else:
        out.print(
            f"Score: {gains[0].before:.2f} → [bold]{after:.2f}[/bold] (± {gains[0].stderr:.2f}), "
            f"{sum(each.taken for each in gains)} switches.\nRun folder: {found.path}",
            soft_wrap=True,
        )
    return 0


def _trained(name: str, trust: bool) -> Trained:
    from redline.learn.evaluate import load_policy

    path = shipped_policies().get(name, Path(name))
    if not path.exists():
        raise RedlineError(f"There is no run, checkpoint or policy {name}. Pass a run folder.")
    return load_policy(path, trust)


def _begun(trained: Trained, how: Improvement, what: Improve) -> Run:
    """A run folder for the result: a new one, or the one that is named, if the same was broken off there."""
    from redline.learn.config import config_to_json

    config = config_to_json(dataclasses.replace(trained.config, seed=what.seed))
    config |= {"improves": str(trained.path), "improvement": dataclasses.asdict(how)}
    if what.run_dir is None:
        return Run.create(what.runs, f"{trained.config.env.replace('/', '-')}-improved", config)
    if not (what.run_dir / CONFIG).exists() or (what.run_dir / CHECKPOINTS).exists():
        return Run.at(what.run_dir, config)
    found = Run.open(what.run_dir)
    if any(found.config.get(name) != _plain(config[name]) for name in ("seed", "improves", "improvement")):
        raise RedlineError(
            f"{what.run_dir} holds another improvement. Go on with the same options, or pass another folder."
        )
    return found


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value))


def _improve(run: Run, trained: Trained, how: Improvement, what: Improve, output: Output) -> list[Gains]:
    from redline.learn.improving import improve_in
    from redline.learn.judge import Arena
    from redline.threads import use_threads

    arena = Arena(trained.config.env, trained.config.env_options, use_threads(what.threads)[0])
    return improve_in(run, trained.policy, arena, how, what.seed, say_to(output))


def _save(run: Run, trained: Trained) -> None:
    """Leave the better policy in the run folder."""
    from redline.learn import checkpoint
    from redline.version import __version__

    arrays = {f"policy.{key}": array for key, array in trained.policy.arrays().items()}
    values = {"config": run.config, "version": __version__, "preset": "improve"}
    checkpoint.save(run.checkpoints, trained.step, arrays, values)
