"""The constants of CAGE-2: hosts, listeners, decoys, exploits, the action table, and an env's options.

Tables are indexed by the ids of this file; the comments give the original's names. Host order is the order of the
observation, of the action table and of recorded traces. Sets of hosts and of ports are bit masks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError, unknown

HOSTS = (
    "Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0",
    "User0", "User1", "User2", "User3", "User4",
)  # fmt: skip
NUM_HOSTS = len(HOSTS)
ENTERPRISE2, OP_SERVER, FOOTHOLD = 3, 7, 8
ENTERPRISE = 0b1110  # Enterprise0-2, whose sessions open the Operational subnet
OPERATIONAL = 0b1111_0000
USER_TARGETS = 0b1_1110_0000_0000  # User1-4, from which B_line picks
MAIL_SERVERS = 0b1_1000_0000_0000  # User3 and User4
WINDOWS = 0b0_0111_0000_1100  # Enterprise1-2 and User0-2; the others run Linux

COSTS_TEN = 0b1000_1110  # losing Enterprise0-2 or Op_Server0 costs 10 tenths a step
COSTS_ONE = 0b1_1110_0111_0001  # all others 1 tenth; User0 costs nothing

TYPES = ("defender", "enterprise", "op_server", "op_host", "user")
"""Kinds of machine, which a workflow puts in order of repair."""
FIXED_ORDERS = {
    "critical_first": (0, 2, 1, 3, 4),
    "enterprise_focus": (1, 0, 2, 3, 4),
    "user_priority": (4, 0, 1, 2, 3),
    "operational_focus": (2, 3, 0, 1, 4),
    "balanced": (0, 1, 2, 4, 3),
    "reverse": (4, 3, 1, 2, 0),
}
"""Orders people use, as indices into `TYPES`."""
TYPE_OF = np.array([0, 1, 1, 1, 3, 3, 3, 2, 4, 4, 4, 4, 4], np.int8)
TYPE_HOSTS = np.array([sum(1 << h for h in range(NUM_HOSTS) if TYPE_OF[h] == t) for t in range(5)], np.int16)

ENTERPRISE_SUBNET, OPERATIONAL_SUBNET, USER_SUBNET = range(3)
SUBNET_MEMBERS = np.array([0b1111, 0b1111_0000, 0b1_1111_0000_0000], np.int16)
SUBNET_OF = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], np.int8)
LINK = np.array([-1, -1, -1, 7, -1, -1, -1, -1, -1, 2, 2, 1, 1], np.int8)  # host revealed by escalating

PORTS = (21, 22, 25, 80, 139, 443, 3389, 3390, 53, 68, 135, 445)
"""Bit of each port in a port mask. Red remembers the first eight; the rest can only be seen in a scan."""
SPECIAL_PORT = 1 << len(PORTS)  # stands for the odd local port of a detected shell (remote port 4444)
RED_PORTS = 0xFF


def _ports(*ports: int) -> int:
    return sum(1 << PORTS.index(port) for port in set(ports))


_IMAGES = {  # listening ports of each image, in list order
    "gateway": (22,),
    "defender": (22, 53, 53, 68),
    "internal": (22, 135, 3389, 445, 139, 80, 443),
    "win_user_1": (22, 21),
    "win_user_2": (445, 139, 135, 3389),
    "lin_user_1": (80, 3389, 443, 25),
    "lin_user_2": (22, 80, 3390, 443, 25),
}
_IMAGE_OF = ("defender", "gateway", "internal", "internal", "gateway", "gateway", "gateway", "gateway",
             "win_user_1", "win_user_1", "win_user_2", "lin_user_1", "lin_user_2")  # fmt: skip
LISTENERS = np.array([len(_IMAGES[image]) for image in _IMAGE_OF], np.int8)
LISTENING = np.array([_ports(*_IMAGES[image]) for image in _IMAGE_OF], np.int16)

DECOYS = ("Apache", "Femitter", "HarakaSMPT", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
NUM_DECOYS = len(DECOYS)
# The original's Vsftpd asks for port 21 to be free but opens port 80, so it can be started again and again.
DECOY_OPENS = np.array([_ports(p) for p in (80, 21, 25, 139, 22, 3389, 443, 80)], np.int16)
DECOY_NEEDS = np.array([_ports(p) for p in (80, 21, 25, 139, 22, 3389, 443, 21)], np.int16)
_ALL = (1 << NUM_HOSTS) - 1
DECOY_HOSTS = np.array(  # hosts whose operating system fits
    [_ALL, WINDOWS, _ALL & ~WINDOWS, WINDOWS, _ALL, WINDOWS, _ALL, _ALL & ~WINDOWS], np.int16
)
DECOYS_BY_WORTH = np.array([1, 2, 6, 0, 7, 3, 5, 4], np.int8)
"""Best first: a decoy is worth as much as Red likes the exploit it defeats (Apache before Vsftpd, which would block it)."""

# exploits are numbered: EternalBlue, BlueKeep, HTTPRFI, HTTPSRFI, SSHBruteForce, SQLInjection, HarakaRCE,
# FTPDirectoryTraversal
SSH, SQL, HARAKA = 4, 5, 6
_WEIGHTS = (2.0, 1.0, 3.0, 4.0, 0.1, 5.0, 6.0, 7.0)
_EXPLOIT_PORTS = (139, 3389, 80, 443, 22, 3390, 25, 21)
EXPLOIT_PORT = np.array([_ports(p) for p in _EXPLOIT_PORTS], np.int16)
EXPLOIT_DECOYS = np.array([0x08, 0x20, 0x81, 0x40, 0x10, 0x00, 0x04, 0x02], np.int16)  # decoys that catch it

ABSENT, USER_GAIN, ROOT_GAIN, NO_ACCOUNT = 0, 1, 2, 3
_U, _P, _X, _0 = USER_GAIN, ROOT_GAIN, NO_ACCOUNT, ABSENT
GAIN = np.array(  # what Red gets from the host's real listener: [host, exploit]
    [  # EternalBlue, BlueKeep, HTTPRFI, HTTPSRFI, SSH, SQL, Haraka, FTP
        [_0, _0, _0, _0, _X, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _0],
        [_0, _P, _U, _U, _U, _0, _0, _0],
        [_0, _P, _U, _U, _U, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _0],
        [_0, _0, _0, _0, _U, _0, _0, _P],
        [_0, _0, _0, _0, _U, _0, _0, _P],
        [_P, _U, _0, _0, _0, _0, _0, _0],
        [_0, _0, _U, _U, _0, _0, _P, _0],
        [_0, _0, _U, _U, _U, _P, _P, _0],
    ],
    np.int8,
)


def _candidates(ports: int) -> list[int]:
    """Exploits Red considers for a remembered port set. SQL injection also wants a web server in front."""
    web = ports & _ports(80, 443)
    return [e for e, port in enumerate(_EXPLOIT_PORTS) if ports & _ports(port) and (e != SQL or web)]


CANDIDATES = np.array([sum(1 << e for e in _candidates(ports)) for ports in range(256)], np.int16)
FAVOURITE = np.array(  # the heaviest candidate, -1 where there is none
    [max(_candidates(ports), key=_WEIGHTS.__getitem__, default=-1) for ports in range(256)], np.int8
)
PORTS_OF_DECOYS = np.array(
    [sum({int(DECOY_OPENS[d]) for d in range(NUM_DECOYS) if decoys >> d & 1}) for decoys in range(256)], np.int16
)

SLEEP, DISCOVER_SYSTEMS, DISCOVER_SERVICES, EXPLOIT, ESCALATE, IMPACT = range(6)
"""The kinds of Red's actions."""
FALSE, TRUE, UNKNOWN = 0, 1, 2

BLUE_SLEEP = 0
BLUE_ANALYSE, BLUE_REMOVE, BLUE_DECOY, BLUE_RESTORE = 2, 15, 28, 132
"""Blue's actions: Sleep, Monitor, then blocks with one for each host; the decoys have a block each."""
NUM_ACTIONS = BLUE_RESTORE + NUM_HOSTS
REDUCED_RESTORE, REDUCED_DECOY = 28, 41
"""The reduced set begins like the full one, but has one block of decoys, at its end."""
NUM_REDUCED_ACTIONS = REDUCED_DECOY + NUM_HOSTS
DECOY_ROOM = {1: 3, 2: 1, 3: 1, 7: 3, 9: 4, 10: 4}
"""Decoys that a host takes, for each that is worth any: Enterprise0-2, Op_Server0, User1 and User2."""
_DEFENDED, _OP_HOSTS = (1, 2, 3, 7, 9, 10, 11, 12), (4, 5, 6)
DEFENDED = np.array(_DEFENDED, np.int8)
"""Hosts that are worth a Restore."""
USEFUL = np.array(
    [
        BLUE_SLEEP,
        *(block + host for block in (BLUE_ANALYSE, BLUE_REMOVE, REDUCED_RESTORE) for host in _DEFENDED),
        *(REDUCED_DECOY + host for host in DECOY_ROOM),
        *(block + host for block in (BLUE_REMOVE, REDUCED_RESTORE) for host in _OP_HOSTS),
    ],
    np.int64,
)
"""The actions that ever help, by their numbers in the reduced set."""
USEFUL_DECOYS = np.array([1, 2, 6, 0, 3, 5, 4], np.int8)
"""Their decoys, best first. Vsftpd, which opens a port that Apache opens anyway, is left out."""
GREEN_TARGETS = np.array([8, 9, 10, 11, 12, 1, 2, 3], np.int8)

RED_AGENTS = ("B_lineAgent", "RedMeanderAgent", "SleepAgent")
B_LINE, MEANDER, RED_SLEEP = range(3)
RULES = ("final", "leaderboard")
WRAPPERS = ("official", "cw2")
OBSERVATIONS = ("table", "table+scan", "history", "memory", "truth")
TABLE, TABLE_SCAN, HISTORY, MEMORY, TRUTH = range(5)
ACTIONS = {"all": NUM_ACTIONS, "reduced": NUM_REDUCED_ACTIONS, "useful": len(USEFUL)}
FULL, REDUCED, USEFUL_ONLY = range(3)  # the same in this order, as kernels have it
GREEN_AGENTS = ("SleepAgent", "GreenAgent")


class Settings(NamedTuple):
    """A scenario as the kernel wants it: numbers only."""

    leaderboard: bool
    cw2: bool
    green: bool
    max_steps: int
    observation: int
    b_line_share: float
    meander_share: float
    workflow: bool
    order: tuple[int, int, int, int, int]
    alignment: float
    bonus: float
    penalty: float
    count_foothold: bool
    tidy: float
    rebate: float
    accidents: float
    kept: tuple[int, int, int]


LONGEST, MOST_PAY = 2**31 - 1, 1e9
"""Steps of an episode that a clock can count, and what obedience may be worth."""


@dataclass(frozen=True)
class Scenario:
    """The options of a CAGE-2 env."""

    red_agent: str = "B_lineAgent"
    """B_lineAgent, RedMeanderAgent, SleepAgent, or several joined by commas: each episode then draws one of them."""
    green_agent: str = "SleepAgent"
    """SleepAgent (the challenge's default) or GreenAgent, which scans hosts at random."""
    max_steps: int = 100
    """Steps in an episode; 30, 50 and 100 in the official protocol. 0 never ends one."""
    rules: str = "final"
    """final (the last published CybORG) or leaderboard (the one the published scores were measured on)."""
    wrapper: str = "official"
    """Observation wrapper: official, or cw2 (shipped with the winning agent)."""
    observation: str = "table"
    """table (52 bits), table+scan (plus who was scanned), history (the last tables and Blue's own doings), memory (all
    that Blue can know and a defender needs), or truth (everything; to see what that is worth, never to play with)."""
    history: int = 4
    """Tables kept by the history observation."""
    actions: str = "all"
    """all (145), reduced (54): one action per host that deploys its next best decoy, or useful (37): those of them that
    ever help."""
    forget: str = ""
    """With the observation memory: fields to leave out, joined by commas, to see what they are worth (decoys, was_scanned,
    was_restored, decoys_when_scanned, event, age, same_host, attack_before, entered_unseen). They read 0."""
    tidy: float = 0.0
    """Cost of every action but Sleep, to train a defender that does nothing without need. No score counts it."""
    restore_rebate: float = 0.0
    """Part of a Restore's cost that is given back, to train a defender that finds out what it is good for. No score
    counts it."""
    accidents: float = 0.0
    """Chance of a step in which a host is restored by accident, free of charge, in place of Blue's action: who trains with
    it learns what to do after a Restore before finding out when to use one. No score is played with it."""
    workflow: str = ""
    """Order of repair to obey, all five types joined by commas (defender, enterprise, op_server, op_host, user)."""
    alignment_lambda: float = 30.0
    """With a workflow: reward of a fully obedient episode, paid as obedience changes."""
    compliance_bonus: float = 0.0
    """With a workflow: extra reward of each obedient fix, as a multiple of lambda."""
    violation_penalty: float = 0.0
    """With a workflow: extra cost of each disobedient fix, as a multiple of lambda."""
    count_foothold: bool = False
    """With a workflow: count User0, which Red can never lose, as compromised."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played, saying what could."""
        for agent in self.red_agents:
            _require("red agent", agent, RED_AGENTS)
        _require("green agent", self.green_agent, GREEN_AGENTS)
        _require("rule set", self.rules, RULES)
        _require("wrapper", self.wrapper, WRAPPERS)
        _require("observation", self.observation, OBSERVATIONS)
        _require("action set", self.actions, tuple(ACTIONS))
        if not 0 <= self.tidy <= 1:
            raise RedlineError(f"--tidy {self.tidy:g} cannot work: it must be 0 to 1. Try --tidy 0.003.")
        for name, value, good in (("restore-rebate", self.restore_rebate, 0.3), ("accidents", self.accidents, 0.02)):
            if not 0 <= value <= 1:
                raise RedlineError(f"--{name} {value:g} cannot work: it must be 0 to 1. Try --{name} {good}.")
        parse_order(self.workflow or ",".join(TYPES))
        if not 0 <= self.max_steps <= LONGEST:
            raise RedlineError(f"An episode of {self.max_steps} steps cannot be played. Try --max-steps 100.")
        if not 1 <= self.history <= 16:
            raise RedlineError(f"A history of {self.history} tables cannot be kept. Try --history 4 (1 to 16).")
        for name in ("alignment_lambda", "compliance_bonus", "violation_penalty"):
            if not abs(getattr(self, name)) <= MOST_PAY:
                option = f"--{name.replace('_', '-')}"
                raise RedlineError(
                    f"{option} {getattr(self, name):g} cannot be paid: it must be a number up to {MOST_PAY:g}. "
                    f"Try {option} 1."
                )

    @property
    def red_agents(self) -> tuple[str, ...]:
        """The Red agents an episode draws from, each as likely as it is often named."""
        return tuple(name.strip() for name in self.red_agent.split(","))

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The fields of its memory that Blue goes without."""
        return tuple(name.strip() for name in self.forget.split(",") if name.strip())

    @property
    def num_actions(self) -> int:
        """How many actions Blue chooses from."""
        return ACTIONS[self.actions]

    def settings(self) -> Settings:
        """The scenario as numbers for the kernel."""
        from redline.worlds.cage2.rules.remembered import kept_bits

        agents = self.red_agents
        return Settings(
            leaderboard=self.rules == "leaderboard",
            cw2=self.wrapper == "cw2",
            green=self.green_agent == "GreenAgent",
            max_steps=self.max_steps,
            observation=OBSERVATIONS.index(self.observation),
            b_line_share=agents.count("B_lineAgent") / len(agents),
            meander_share=agents.count("RedMeanderAgent") / len(agents),
            workflow=bool(self.workflow),
            order=parse_order(self.workflow or ",".join(TYPES)),
            alignment=float(self.alignment_lambda),
            bonus=float(self.alignment_lambda * self.compliance_bonus),
            penalty=float(self.alignment_lambda * self.violation_penalty),
            count_foothold=self.count_foothold,
            tidy=float(self.tidy),
            rebate=float(self.restore_rebate),
            accidents=float(self.accidents),
            kept=kept_bits(self.forgotten),
        )


def parse_order(text: str) -> tuple[int, int, int, int, int]:
    """The types of a workflow, first to repair first, as indices into `TYPES`.

    Written as the five types between commas or arrows, or as the name of one of `FIXED_ORDERS`.
    """
    text = text.strip()
    names = [name.strip().lower().replace("-", "_") for name in re.split(r",|-?>|→", text)]
    if names[0] in FIXED_ORDERS and len(names) == 1:
        return FIXED_ORDERS[names[0]]
    if len(names) == 1 and names[0] not in TYPES:
        raise unknown("workflow", text, FIXED_ORDERS)
    for place, name in enumerate(names):
        _require("host type", name, TYPES)
        if name in names[:place]:
            raise RedlineError(f"The workflow {text!r} lists {name} twice. Name each host type once.")
    missing = [name for name in TYPES if name not in names]
    if missing:
        raise RedlineError(f"The workflow {text!r} lacks {', '.join(missing)}. Try {','.join([*names, *missing])}.")
    first, second, third, fourth, fifth = (TYPES.index(name) for name in names)
    return first, second, third, fourth, fifth


def _require(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise unknown(what, given, known)


def describe_action(action: int) -> str:
    """Blue's action in words, e.g. `Restore User1`."""
    if action < BLUE_ANALYSE:
        return ("Sleep", "Monitor")[action]
    block, host = divmod(action - BLUE_ANALYSE, NUM_HOSTS)
    names = ("Analyse", "Remove", *(f"Decoy{name}" for name in DECOYS), "Restore")
    return f"{names[block]} {HOSTS[host]}"


def action_names(actions: str) -> tuple[str, ...]:
    """Blue's actions of a set, in words."""
    if actions == "all":
        return tuple(describe_action(action) for action in range(NUM_ACTIONS))
    plain = [describe_action(action) for action in range(REDUCED_RESTORE)]
    reduced = (*plain, *(f"Restore {host}" for host in HOSTS), *(f"Decoy {host}" for host in HOSTS))
    return reduced if actions == "reduced" else tuple(reduced[action] for action in USEFUL)
