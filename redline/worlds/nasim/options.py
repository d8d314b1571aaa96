"""The options of a network that may stand behind its name."""

from __future__ import annotations

from dataclasses import dataclass

from redline.errors import RedlineError


@dataclass(frozen=True)
class NetworkOptions:
    """How much the attacker sees, and which of the generated networks it is."""

    fully_obs: bool = False
    """Show the whole network after every action, instead of what the action brought to light."""
    network_seed: int = 0
    """Generated networks: equal seeds give equal networks."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not isinstance(self.network_seed, int) or not 0 <= self.network_seed < 2**32:
            raise RedlineError(f"network_seed={self.network_seed!r} cannot work: it must be 0 to {2**32 - 1}.")
