"""From the settings that were asked for to those of a run: fitted to the env, with an engine."""

from __future__ import annotations

from redline.engines import AUTO, ENGINES, require_engine
from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.learn.train import choose_engine, warm_up
from redline.worlds.registry import world_of
from redline.worlds.world import Say


def prepared(config: TrainConfig, chosen: frozenset[str], say: Say) -> TrainConfig:
    """The config with all that is left to us decided. Settings named in `chosen` stay as they are."""
    fit = world_of(config.env).fit
    if fit is not None:
        config = fit(config, chosen, say)
    return _with_engine(config, say)


def _with_engine(config: TrainConfig, say: Say) -> TrainConfig:
    """The config with an engine: the one asked for, or the fastest."""
    if config.engine != AUTO:
        kind = require_engine(config.engine)
        if config.collecting.ray_address is not None and not kind.needs_address:
            takers = " or ".join(name for name, kind in ENGINES.items() if kind.needs_address)
            raise RedlineError(f"--ray-address is for engine {takers}, not for {config.engine}. Try --engine {takers}.")
        return config
    warm_up(config)
    config, choice = choose_engine(config, say)
    for trial in choice.trials:
        rate = f"{trial.steps_per_second:>12,.0f} steps/s" if trial.steps_per_second else f"  {trial.note}"
        say(f"  {trial.engine:<8}{rate}")
    say(choice.why)
    return config
