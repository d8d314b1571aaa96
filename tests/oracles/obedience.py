"""Obedience to a workflow the slow way: a plain account, kept from the true state."""

from __future__ import annotations

from collections.abc import Sequence

HOST_TYPES = ("defender", *["enterprise"] * 3, *["op_host"] * 3, "op_server", *["user"] * 5)
FOOTHOLD = 8


class Account:
    """The account of one episode."""

    def __init__(
        self,
        order: Sequence[str],
        alignment: float = 30.0,
        bonus: float = 0.0,
        penalty: float = 0.0,
        count_foothold: bool = False,
    ) -> None:
        self._order, self._alignment, self._bonus, self._penalty = order, alignment, bonus, penalty
        self._count_foothold = count_foothold
        self.judgements: list[bool] = []
        self.paid = 0.0

    def act(self, action: int, access: Sequence[int]) -> float:
        """What Blue's action pays, given Red's access to every host before it."""
        if not (15 <= action <= 27 or 132 <= action <= 144):
            return 0.0
        target = HOST_TYPES[(action - 2) % 13]
        held = {
            kind for host, kind in enumerate(HOST_TYPES) if access[host] and (host != FOOTHOLD or self._count_foothold)
        }
        wanted = next((kind for kind in self._order if kind in held), None)
        obeys = wanted is None or target == wanted
        before = self._share()
        self.judgements.append(obeys)
        pays = self._alignment * (self._share() - before)
        pays += self._alignment * self._bonus if obeys else -(self._alignment * self._penalty)
        self.paid += pays
        return pays

    def end(self) -> float:
        """What the end of the episode pays."""
        pays = 0.0 if self.judgements else -0.2 * self._alignment
        self.paid += pays
        return pays

    def compliance(self) -> float:
        """Share of fixes that obeyed; a half when there were none."""
        return self._share() if self.judgements else 0.5

    def _share(self) -> float:
        return sum(self.judgements) / len(self.judgements) if self.judgements else 0.0
