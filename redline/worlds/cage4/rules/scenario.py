"""What is fixed in CAGE-4: zones, who looks after them, actions, rewards, Red's tables; and the options of an env."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError, unknown

RA, OA, RB, OB, CN, PA, AD, OF, IN = range(9)
ZONES = (
    "restricted_zone_a_subnet",
    "operational_zone_a_subnet",
    "restricted_zone_b_subnet",
    "operational_zone_b_subnet",
    "contractor_network_subnet",
    "public_access_zone_subnet",
    "admin_network_subnet",
    "office_network_subnet",
    "internet_subnet",
)
NUM_ZONES, NUM_BLUE, NUM_RED = 9, 5, 6
BY_NAME = tuple(sorted(range(NUM_ZONES), key=lambda zone: ZONES[zone]))
"""Zones in the order of their names, which is that of observations and of traffic actions."""
NAME_RANK = np.argsort(BY_NAME)
"""The place of a zone in that order."""
BLUE_AGENTS = tuple(f"blue_agent_{b}" for b in range(NUM_BLUE))
BLUE_ZONES = ((RA,), (OA,), (RB,), (OB,), (AD, OF, PA))
RED_ZONES = ((CN,), (RA,), (OA,), (RB,), (OB,), (PA, AD, OF))

# Hosts of a zone: a router, 3 to 10 of users, 1 to 6 servers
MOST_USERS, MOST_SERVERS = 10, 6
SLOTS = MOST_SERVERS + MOST_USERS
"""Hosts of a zone that Blue may act on: six servers, then ten of users, whether they are there or not."""
MOST_HOSTS = 8 * (1 + SLOTS) + 1
MOST_GREEN = 8 * MOST_USERS
ROUTER = SLOTS  # the slot of routers and of the internet host, on which nobody acts

RED_OWNER = np.array([next((a for a, zones in enumerate(RED_ZONES) if z in zones), -1) for z in range(NUM_ZONES)])
NOBODY = NUM_BLUE
BLUE_OWNER = np.array([next((b for b, zones in enumerate(BLUE_ZONES) if z in zones), NOBODY) for z in range(NUM_ZONES)])
"""The defender of each zone; NOBODY looks after the contractors and the internet."""
RED_REACH = np.array([sum(1 << z for z in zones) for zones in RED_ZONES])
"""The zones of each Red agent, as a mask."""
PARENT = np.array([IN, RA, IN, RB, IN, IN, PA, PA, -1])
_LINKS = {CN: (RA, RB, PA), RA: (OA, CN), OA: (RA,), RB: (OB, CN), OB: (RB,), PA: (AD, OF, CN), AD: (PA,), OF: (PA,)}
LINKS = np.array([sum(1 << z for z in _LINKS.get(zone, ())) for zone in range(NUM_ZONES)])
"""Zones whose first server is known to the first server of a zone, as a mask."""

_HQ = (PA, AD, OF)
_ALWAYS = tuple((x, y) for x in _HQ for y in (CN, RA, RB))
_PAIRS = (
    (*_ALWAYS, (RA, CN), (OA, RA), (RB, CN), (RB, RA), (OB, RB)),
    (*_ALWAYS, (RB, CN), (OB, RB)),
    (*_ALWAYS, (RA, CN), (OA, RA)),
)


def _served(phase: int, zone: int) -> int:
    others = [y for x, y in _PAIRS[phase] if x == zone] + [x for x, y in _PAIRS[phase] if y == zone]
    return sum(1 << z for z in {zone, *others})


SERVED = np.array([[_served(phase, zone) for zone in range(8)] for phase in range(3)])
"""Zones whose servers the users of a zone work with, as a mask, by phase."""

WORK_FAILS = np.array(
    [[-1, -1, -1, -1, 0, -1, -1, -1], [-2, -10, -1, -1, 0, -1, -1, -1], [-1, -1, -2, -10, 0, -1, -1, -1]]
)
ACCESS_FAILS = np.array(
    [[-3, -1, -3, -1, -5, -1, -1, -1], [-1, 0, -1, -1, 0, -1, -1, -1], [-3, -1, -1, 0, 0, -1, -1, -1]]
)
IMPACTS = np.array(
    [[-1, -1, -1, -1, -5, -3, -3, -3], [-3, -10, -1, -1, 0, -3, -3, -3], [-3, -1, -3, -10, 0, -3, -3, -3]]
)
"""Points by phase and zone: for a user who cannot work, one who reaches no server, and an Impact of Red's."""

_MET = (IN, AD, OF, PA, CN, RA, RB)
_OPEN = {frozenset((x, y)) for x in _MET for y in _MET if x != y} | {frozenset((RA, OA)), frozenset((RB, OB))}
_POLICIES = (
    _OPEN,
    _OPEN - {frozenset((RA, z)) for z in (OA, CN, RB, IN)},
    _OPEN - {frozenset((RB, z)) for z in (OB, CN, RA, IN)},
)
POLICY = np.array(
    [[[int(frozenset((zone, z)) not in links) for z in BY_NAME] for zone in range(NUM_ZONES)] for links in _POLICIES]
)
"""1 where traffic should be blocked, by phase, zone, and the other zone in the order of names."""

# Blue's actions
BLUE_KINDS = (
    "Analyse", "Monitor", "Remove", "Restore", "Sleep", "AllowTrafficZone", "BlockTrafficZone", "DeployDecoy",
)  # fmt: skip
ANALYSE, MONITOR, REMOVE, RESTORE, SLEEP, ALLOW, BLOCK, DEPLOY = range(8)
BLUE_DURATION = np.array([2, 1, 3, 5, 1, 1, 1, 2])
FEW_ACTIONS, MOST_ACTIONS = 82, 242
NUM_ACTIONS = (FEW_ACTIONS,) * 4 + (MOST_ACTIONS,)
MESSAGE_BITS = 8


def _blue_table() -> np.ndarray:
    """Kind, zone, and slot or other zone of every action, int64 [agents, actions, 3]; padding sleeps."""
    table = np.zeros((NUM_BLUE, MOST_ACTIONS, 3), np.int64)
    table[:, :, 0] = SLEEP
    for b, zones in enumerate(BLUE_ZONES):
        hosts = [(zone, slot) for zone in zones for slot in range(SLOTS)]
        roads = [(zone, other) for zone in zones for other in BY_NAME if other != zone]
        whom = {MONITOR: [(0, 0)], SLEEP: [(0, 0)], ALLOW: roads, BLOCK: roads}
        rows = [(kind, *each) for kind in range(len(BLUE_KINDS)) for each in whom.get(kind, hosts)]
        assert len(rows) == NUM_ACTIONS[b]
        table[b, : len(rows)] = rows
    return table


BLUE_TABLE = _blue_table()

# Services, as bits; every host of users and every server has ssh besides
WEB, MYSQL, SMTP, OT = 1, 2, 4, 8
# Ports that Red remembers, as bits; ssh is always among them
PORT_SSH, PORT_80, PORT_443, PORT_3390, PORT_25 = 1, 2, 4, 8, 16
# Processes that come and go: Red's sessions, and decoys
SESSION, ROOT_SESSION, APACHE, TOMCAT, HARAKA, VSFTPD = range(6)
DECOY_PORT = np.array([0, 0, PORT_80, PORT_443, PORT_25, PORT_80])

# Red
SWEEP, AGGRESSIVE, STEALTH, DECEPTION, EXPLOIT, ESCALATE, IMPACT, DEGRADE, WITHDRAW = range(9)
RED_KINDS = (
    "DiscoverRemoteSystems", "AggressiveServiceDiscovery", "StealthServiceDiscovery", "DiscoverDeception",
    "ExploitRemoteService", "PrivilegeEscalate", "Impact", "DegradeServices", "Withdraw",
)  # fmt: skip
RED_DURATION = np.array([1, 1, 3, 2, 4, 2, 2, 2, 1])
LISTED = np.array([SWEEP, AGGRESSIVE, STEALTH, EXPLOIT, ESCALATE, DEGRADE, DECEPTION, IMPACT, WITHDRAW])
"""Red's actions in the order in which its action space has them."""
STATES = ("K", "KD", "S", "SD", "U", "UD", "R", "RD", "F")
K, KD, S, SD, U, UD, R, RD, F = range(9)
"""What Red thinks of a host: known, scanned, held as user, held as root; D when its zone was swept; F foreign and held."""
_STAYS = -1
WINS = np.array(
    [  # sweep, aggressive, stealth, deception, exploit, escalate, impact, degrade, withdraw
        [KD, S, S, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS],
        [KD, SD, SD, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS],
        [SD, _STAYS, _STAYS, S, U, _STAYS, _STAYS, _STAYS, _STAYS],
        [SD, _STAYS, _STAYS, SD, UD, _STAYS, _STAYS, _STAYS, _STAYS],
        [UD, _STAYS, _STAYS, _STAYS, _STAYS, R, _STAYS, _STAYS, S],
        [UD, _STAYS, _STAYS, _STAYS, _STAYS, RD, _STAYS, _STAYS, SD],
        [RD, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, R, R, S],
        [RD, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, RD, RD, SD],
        [F, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS, _STAYS],
    ]
)
"""The state after an action that succeeded; where an action is not possible, the state stays."""
_CHANCES = (
    [  # by the order of actions above, not by that of LISTED
        [0.5, 0.25, 0.25, 0, 0, 0, 0, 0, 0],
        [0, 0.5, 0.5, 0, 0, 0, 0, 0, 0],
        [0.25, 0, 0, 0.25, 0.5, 0, 0, 0, 0],
        [0, 0, 0, 0.25, 0.75, 0, 0, 0, 0],
        [0.5, 0, 0, 0, 0, 0.5, 0, 0, 0],
        [0, 0, 0, 0, 0, 1.0, 0, 0, 0],
        [0.5, 0, 0, 0, 0, 0, 0.25, 0.25, 0],
        [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0],
    ],
    [
        [0.25, 0.75, 0, 0, 0, 0, 0, 0, 0],
        [0, 1.0, 0, 0, 0, 0, 0, 0, 0],
        [0.25, 0, 0, 0, 0.75, 0, 0, 0, 0],
        [0, 0, 0, 0, 1.0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1.0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1.0, 0, 0, 0],
        [1.0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0],
    ],
)
CHANCES_UP_TO = np.ascontiguousarray(np.cumsum(np.array(_CHANCES)[:, :, LISTED], axis=2))
"""Chances of Red's actions in the order LISTED, added up: by variant and state."""
PRIORITIES = np.array([20, 20, 20, 20, 10, 10, 0, 0])
"""How much DiscoveryFSRed cares for hosts by state."""

RED_AGENTS = ("FiniteStateRedAgent", "DiscoveryFSRed", "SleepAgent")
GREEN_AGENTS = ("EnterpriseGreenAgent", "SleepAgent")
FINITE_STATE, DISCOVERY, RED_SLEEPS = range(3)
FACES = ("flat", "memory")


class EnterpriseSettings(NamedTuple):
    """What the rules know of the options."""

    red_agent: int
    green: bool
    second_phase: int  # the step at which it begins
    third_phase: int
    last_step: int  # the episode ends when so many are done
    highest_pid: int  # that a list item can hold, counted from the highest of a host's backup


@dataclass(frozen=True)
class EnterpriseOptions:
    """How CAGE-4 is played."""

    red_agent: str = "FiniteStateRedAgent"
    """Red agents: FiniteStateRedAgent, as the challenge has it, DiscoveryFSRed, or SleepAgent."""
    green_agent: str = "EnterpriseGreenAgent"
    """Users: EnterpriseGreenAgent, as the challenge has it, or SleepAgent, who do nothing."""
    steps: int = 500
    """Length of an episode as the original counts it: one less is played, in three phases."""
    room: int = 1
    """Times the usual memory for what has no bound in the original. An episode that outgrows it says so."""
    face: str = "flat"
    """What Blue sees and does: flat, as the original's flat wrapper has it, with all actions; or memory, what a defender can
    remember of its own observations and actions, with a few useful ones."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if self.red_agent not in RED_AGENTS:
            raise unknown("red agent", self.red_agent, RED_AGENTS)
        if self.green_agent not in GREEN_AGENTS:
            raise unknown("green agent", self.green_agent, GREEN_AGENTS)
        if self.face not in FACES:
            raise unknown("face", self.face, FACES)
        if self.steps < 2:
            raise RedlineError(f"--steps {self.steps} leaves nothing to play: one less is played. Try --steps 500.")
        if not 1 <= self.room <= 16:
            raise RedlineError(f"--room {self.room} cannot be had. Try 1 to 16.")

    def settings(self) -> EnterpriseSettings:
        """What the rules need to know."""
        third, rest = divmod(self.steps, 3)
        first, second = third + (rest > 0), third + (rest > 1)
        green = self.green_agent == GREEN_AGENTS[0]
        highest_pid = (1 << (12 if self.room == 1 else 28)) - 1
        return EnterpriseSettings(
            RED_AGENTS.index(self.red_agent), green, first, first + second, self.steps - 1, highest_pid
        )
