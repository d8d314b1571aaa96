"""A run folder is data: what its config names is run or opened only if this user made the run, or says to trust it.

Every way from a stored config to an env leads through `require_trusted`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from redline.learn.config import TrainConfig, config_from_json
from redline.runs import link_out_of, run_folder_of
from redline.signature import is_signed, why_no_key
from redline.worlds.naming import with_query
from redline.worlds.registry import is_compiled, reaches

MOST_LETTERS = 160


def stored_config(data: object, where: Path, trust: bool = False) -> TrainConfig:
    """The config that a file at `where` holds, if nothing that it names would be run unasked."""
    if not isinstance(data, dict):
        raise RedlineError(f"{where} does not say what was trained. It was not written by `redline train`.")
    require_trusted(data, where, trust)
    try:
        return config_from_json(data)
    except RedlineError as error:
        raise RedlineError(f"{where} cannot be used. {error}") from error


def require_trusted(config: dict[str, Any], where: Path, trust: bool = False) -> None:
    """Refuse a stranger's config that would run or open something, with what that is; `trust` lets it."""
    if trust or is_signed(config):
        return
    link = link_out_of(run_folder_of(where))
    wishes = reach_of(config) + ([] if link is None else [_shown(f"write where its link {link.name} leads")])
    if wishes:
        raise RedlineError(
            f"{where} was not made by you on this machine{why_no_key()}, and would {' and '.join(wishes)}. "
            "If you trust whoever made it, add --trust."
        )


def may_be_asked(config: dict[str, Any]) -> bool:
    """Whether the world of a config can be asked about it: a stranger's is imported to be asked."""
    return is_signed(config) or not reach_of(config)


def require_checkable(config: TrainConfig, where: Path) -> None:
    """Refuse a stranger's checkpoint of compiled envs: compiled rules check no state."""
    if not is_compiled(config.env):
        return
    raise RedlineError(
        f"{where} was not saved by you, so its episodes are not restored. If you trust whoever made it, add --trust."
    )


def reach_of(config: dict[str, Any]) -> list[str]:
    """All that a config would have run, opened or called beyond Redline's own worlds, in words."""
    kinds = (_env_reach, _file_reach, _address_reach, _network_reach)
    found = (reach(each) for each in (config, *_stages(config)) for reach in kinds)
    return list(dict.fromkeys(_shown(wish) for wish in found if wish))


def _stages(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The configs of the stages of a plan, where it is one."""
    stages = config.get("stages")
    found = [each for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []
    return [config for each in found for config in _configs_of(each)]


def _configs_of(stage: dict[str, Any]) -> list[dict[str, Any]]:
    """What a stage trains on, and what its guard judges by, where options are other ones."""
    config, guard = stage.get("config"), stage.get("guard")
    if not isinstance(config, dict):
        return []
    options, others = config.get("env_options"), guard.get("env_options") if isinstance(guard, dict) else None
    if not isinstance(others, dict):
        return [config]
    return [config, {**config, "env_options": {**(options if isinstance(options, dict) else {}), **others}}]


def _env_reach(config: dict[str, Any]) -> str | None:
    name, options = config.get("env"), config.get("env_options")
    if not isinstance(name, str):
        return None  # nothing can come of it
    try:
        bare, whole = with_query(name, options if isinstance(options, dict) else {})
    except RedlineError:
        return None  # nor of this
    return reaches(bare, whole)


def _file_reach(config: dict[str, Any]) -> str | None:
    """A warm start is the name of a rule, or a file."""
    start = config.get("warm_start")
    return f"open {start}" if isinstance(start, str) and ("." in start or "/" in start) else None


def _address_reach(config: dict[str, Any]) -> str | None:
    """A cluster sends back what is unpickled here, which may be code."""
    collecting = config.get("collecting")
    addresses = [part.get("ray_address") for part in (config, collecting) if isinstance(part, dict)]
    address = next((each for each in addresses if each is not None), None)
    return None if address is None else f"connect to the Ray cluster at {address}"


def _network_reach(config: dict[str, Any]) -> str | None:
    """A network of the user's own is named as `package.module:name`."""
    network = config.get("network")
    return f"import the network {network}" if isinstance(network, str) and ":" in network else None


def _shown(wish: str) -> str:
    """A wish on one line, without what a terminal would obey."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in wish)
    return plain if len(plain) <= MOST_LETTERS else f"{plain[: MOST_LETTERS - 1]}…"
