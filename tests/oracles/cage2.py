"""The slow, obvious twin of the CAGE-2 simulator: one env, in plain Python, after the prose of the specification.

Nothing here is compact: hosts own ordered listeners and a list of sessions, events are kept one by one, and what Red
knows is a set. It shares no code with the kernel it checks. Section marks (§) refer to the specification, `cage2.md`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, Protocol

import numpy as np

NUM_HOSTS = 13
DEFENDER, ENTERPRISE0, ENTERPRISE1, ENTERPRISE2, OP_HOST0, OP_HOST1, OP_HOST2 = range(7)
OP_SERVER0, USER0, USER1, USER2, USER3, USER4 = range(7, NUM_HOSTS)
USER_HOSTS = [USER0, USER1, USER2, USER3, USER4]
ENTERPRISE_HOSTS = [ENTERPRISE0, ENTERPRISE1, ENTERPRISE2]  # the ones that can be entered, so without Defender
OPERATIONAL_HOSTS = [OP_SERVER0, OP_HOST0, OP_HOST1, OP_HOST2]
ENTERPRISE, OPERATIONAL, USER = range(3)
SUBNET_MEMBERS = [[*ENTERPRISE_HOSTS, DEFENDER], OPERATIONAL_HOSTS, USER_HOSTS]
SUBNET_OF = {host: subnet for subnet, members in enumerate(SUBNET_MEMBERS) for host in members}
WINDOWS = {ENTERPRISE1, ENTERPRISE2, USER0, USER1, USER2}
LINKS = {USER1: ENTERPRISE1, USER2: ENTERPRISE1, USER3: ENTERPRISE0, USER4: ENTERPRISE0, ENTERPRISE2: OP_SERVER0}
VALUE_TENTHS = [1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1]

FALSE, TRUE, UNKNOWN = range(3)
RUNNING, STOPPED, UNSTOPPABLE = range(3)
SLEEP, SWEEP, SCAN, EXPLOIT, ESCALATE, IMPACT = range(6)
NEVER_SCANNED, UNREACHABLE, NO_LISTENER, HIT_DECOY, ENTERED, NO_WEAK_ACCOUNT, INEFFECTIVE = range(7)
ALREADY_PRIVILEGED, JUICY_POTATO, V4L2 = range(3)
INTERESTING_PORTS = [21, 22, 25, 80, 139, 443, 3389, 3390]
SHELL_PORT = 4444  # no host listens on it, so it can also stand for the shell's own distinct local port

EXPLOIT_PORT = [139, 3389, 80, 443, 22, 3390, 25, 21]
EXPLOIT_SERVICE = ["smb", "rdp", "web", "web", "ssh", "mysql", "smtp", "femitter"]
EXPLOIT_WEIGHT = [2.0, 1.0, 3.0, 4.0, 0.1, 5.0, 6.0, 7.0]
SSH_BRUTE_FORCE, SQL_INJECTION, HARAKA_RCE = 4, 5, 6

DECOY_PORT = [80, 21, 25, 139, 22, 3389, 443, 80]
DECOY_SERVICE = ["web", "femitter", "smtp", "smb", "ssh", "rdp", "web", "web"]
DECOY_NEEDS_FREE = [80, 21, 25, 139, 22, 3389, 443, 21]  # Vsftpd tests 21 but opens 80, hence can be repeated
DECOY_SYSTEM = ["any", "windows", "linux", "windows", "any", "windows", "any", "linux"]


class Listener(NamedTuple):
    """A listening port. `gain` is "user" or "root", or None where no exploit succeeds; `decoy` is None if real."""

    port: int
    service: str
    gain: str | None = None
    decoy: int | None = None


SSH, SMTP = Listener(22, "ssh", "user"), Listener(25, "smtp", "root")
WEB, SECURE_WEB = Listener(80, "web", "user"), Listener(443, "web", "user")
SHARES = [Listener(135, ""), Listener(3389, "rdp", "root"), Listener(445, ""), Listener(139, "")]  # 139 is not "smb"!
NO_ACCOUNTS = [Listener(22, "ssh"), Listener(53, ""), Listener(53, ""), Listener(68, "")]
GATEWAY = [SSH]
INTERNAL = [SSH, *SHARES, WEB, SECURE_WEB]
WIN_USER_1 = [SSH, Listener(21, "femitter", "root")]
WIN_USER_2 = [Listener(445, "smb"), Listener(139, "smb", "root"), Listener(135, ""), Listener(3389, "rdp", "user")]
LIN_USER_1 = [WEB, Listener(3389, "mysql"), SECURE_WEB, SMTP]
LIN_USER_2 = [SSH, WEB, Listener(3390, "mysql", "root"), SECURE_WEB, SMTP]
CLEAN_LISTENERS = [NO_ACCOUNTS, GATEWAY, INTERNAL, INTERNAL, GATEWAY, GATEWAY, GATEWAY, GATEWAY]
CLEAN_LISTENERS += [WIN_USER_1, WIN_USER_1, WIN_USER_2, LIN_USER_1, LIN_USER_2]


def mask(members: Collection[int]) -> int:
    return sum(1 << member for member in members)


class Choices(Protocol):
    """Answers the random decisions R1 to R5 of §7: the oracle's only source of chance."""

    def host(self, eligible: list[int]) -> int: ...
    def exploit(self, num_others: int) -> tuple[int, bool]: ...
    def detected(self) -> bool: ...
    def green(self) -> tuple[int, int]: ...


class Recorded:
    """Answers from a golden trace. Call `load` before each step; a question the recording never met is an error."""

    def load(self, red_row: list[int], green_row: list[int]) -> None:
        self._red, self._green = red_row, green_row

    def host(self, eligible: list[int]) -> int:
        host = self._red[1]
        assert host in eligible, f"Red's recorded host {host} is not among the eligible {eligible}."
        return host

    def exploit(self, num_others: int) -> tuple[int, bool]:
        other, top = self._red[4:6]
        assert 0 <= other < num_others and top in (0, 1), f"No exploit draw fits: {num_others=}, {other=}, {top=}."
        return other, top == 1

    def detected(self) -> bool:
        assert self._red[7] in (0, 1), "A shell was opened, but no detection draw is recorded."
        return self._red[7] == 1

    def green(self) -> tuple[int, int]:
        return self._green[0], self._green[1]


class Drawn:
    """Answers from a stream of uniforms in [0, 1). The number and order of draws are part of the promise."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform

    def host(self, eligible: list[int]) -> int:
        return eligible[int(self._uniform() * len(eligible))]

    def exploit(self, num_others: int) -> tuple[int, bool]:
        other = int(self._uniform() * num_others)
        return other, self._uniform() < 0.75

    def detected(self) -> bool:
        return self._uniform() < 0.95

    def green(self) -> tuple[int, int]:
        return (1, self.host([*USER_HOSTS, *ENTERPRISE_HOSTS])) if self._uniform() < 0.5 else (0, -1)


@dataclass
class Session:
    """Red's presence on a host. Remove ends it only if it is removable; not even Restore ends a permanent one."""

    privileged: bool
    removable: bool = False
    permanent: bool = False


class Host:
    def __init__(self, index: int) -> None:
        self.index = index
        self.listeners = list(CLEAN_LISTENERS[index])  # real ones, then decoys in order of deployment
        self.sessions = [Session(privileged=True, permanent=True)] if index == USER0 else []
        self.malware = False
        self.smtp_dead = False

    def is_privileged(self) -> bool:
        return any(session.privileged for session in self.sessions)

    def deploy(self, decoy: int) -> bool:
        system = "windows" if self.index in WINDOWS else "linux"
        is_taken = any(listener.port == DECOY_NEEDS_FREE[decoy] for listener in self.listeners)
        if is_taken or DECOY_SYSTEM[decoy] not in ("any", system):
            return False
        self.listeners.append(Listener(DECOY_PORT[decoy], DECOY_SERVICE[decoy], decoy=decoy))
        return True

    def find(self, port: int, service: str) -> Listener | None:
        """The first match in list order, so a real listener shields the decoys behind it."""
        return next((x for x in self.listeners if (x.port, x.service) == (port, service)), None)


class Knowledge:
    """What the env remembers on Red's behalf. Nothing Blue does shrinks it."""

    def __init__(self) -> None:
        self.addresses = {USER0}
        self.names = {USER0}
        self.subnets = {USER}
        self.ports: dict[int, set[int]] = {}  # no entry: never scanned
        self.ot_service = False


@dataclass
class RedMove:
    """One Red action and its result, in the columns of the golden `red` array; -1 where nothing was decided."""

    kind: int
    target: int
    success: int = UNKNOWN
    exploit: int = -1
    other: int = -1
    top: int = -1
    outcome: int = -1
    detected: int = -1
    escalation: int = -1
    is_empty_scan: bool = False  # not a column: only B_line cares


class SleepAgent:
    def decide(self, last: RedMove, known: Knowledge, choices: Choices) -> RedMove:
        return RedMove(SLEEP, -1)

    def memory(self) -> list[int]:
        return [0] * 6


class BLine:
    """Walks fifteen stages towards Op_Server0 and falls back to an earlier one on failure (§4.1)."""

    KINDS = (SWEEP, *[SCAN, EXPLOIT, ESCALATE] * 2, SWEEP, *[SCAN, EXPLOIT, ESCALATE] * 2, IMPACT)
    FALLBACK = (0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13)

    def __init__(self) -> None:
        self.stage = 0
        self.issued: set[int] = set()
        self.user = -1  # the user host to start from, drawn on first need

    def decide(self, last: RedMove, known: Knowledge, choices: Choices) -> RedMove:
        self._advance(last.success)
        if self.stage == 12 and 12 not in self.issued and last.is_empty_scan:
            self.stage = 0
            self._advance(last.success)
        if self.stage == 1 and self.user == -1:
            self.user = choices.host([USER1, USER2, USER3, USER4])
        self.issued.add(self.stage)
        link = LINKS.get(self.user, -1)
        targets = [USER, *[self.user] * 3, *[link] * 3, ENTERPRISE, *[ENTERPRISE2] * 3, *[OP_SERVER0] * 4]
        return RedMove(self.KINDS[self.stage], targets[self.stage])

    def _advance(self, success: int) -> None:
        self.stage = min(self.stage + 1, 14) if success == TRUE else self.FALLBACK[self.stage]

    def memory(self) -> list[int]:
        return [self.stage, mask(self.issued), self.user, 0, 0, 0]


class Meander:
    """Spreads to every host it hears of, one at random at a time (§4.2)."""

    def __init__(self) -> None:
        self.scanned: set[int] = set()
        self.exploited: set[int] = set()
        self.escalated: set[int] = set()
        self.mapped: set[int] = set()
        self.swept: set[int] = set()
        self.last_exploit: int | None = None
        self.last_host: int | None = None

    def decide(self, last: RedMove, known: Knowledge, choices: Choices) -> RedMove:
        self._digest(last.success)
        if OP_SERVER0 in self.escalated:
            self.last_host = OP_SERVER0
            return RedMove(IMPACT, OP_SERVER0)
        for subnet in (ENTERPRISE, OPERATIONAL, USER):
            if subnet in known.subnets and subnet not in self.swept:
                self.swept.add(subnet)  # even if this sweep is going to fail
                return RedMove(SWEEP, subnet)
        if unscanned := known.addresses - self.scanned:
            host = choices.host(sorted(unscanned))
            self.scanned.add(host)
            return RedMove(SCAN, host)
        if climbable := {h for h in known.names - self.escalated if h not in self.mapped or h in self.exploited}:
            self.last_host = choices.host(sorted(climbable))
            self.escalated.add(self.last_host)
            return RedMove(ESCALATE, self.last_host)
        self.last_exploit = choices.host(sorted(known.addresses - self.exploited))
        self.exploited.add(self.last_exploit)
        return RedMove(EXPLOIT, self.last_exploit)

    def _digest(self, success: int) -> None:
        """A failed exploit makes Meander doubt a whole tier: its Operational hosts or, without any, its Enterprise."""
        if self.last_exploit is not None and success == TRUE:
            self.mapped.add(self.last_exploit)
        elif self.last_exploit is not None:
            doubted = self.escalated.intersection(OPERATIONAL_HOSTS) or self.escalated.intersection(ENTERPRISE_HOSTS)
            self.exploited -= {self.last_exploit} | doubted
            self.escalated -= doubted
        if self.last_host is not None and success == FALSE:
            self.escalated.discard(self.last_host)
            self.exploited -= {self.last_host} & self.mapped
        self.last_exploit = self.last_host = None

    def memory(self) -> list[int]:
        return [mask(s) for s in (self.scanned, self.exploited, self.escalated, self.mapped, self.swept)] + [-1]


class Oracle:
    """One env. After a step, its attributes mean what the golden arrays of the same name mean.

    `red_agent` is 0 B_line, 1 Meander or 2 Sleep; `green_agent` is 0 asleep or 1 GreenAgent.
    """

    def __init__(
        self, red_agent: int, green_agent: int = 0, rules: str = "final", wrapper: str = "official", *, choices: Choices
    ) -> None:
        assert rules in ("final", "leaderboard"), f"Unknown rules {rules!r}. Try 'final'."
        assert wrapper in ("official", "cw2"), f"Unknown wrapper {wrapper!r}. Try 'official'."
        self.red_agent, self.green_agent, self.choices = red_agent, green_agent, choices
        self.rules, self.wrapper = rules, wrapper
        self.reset()

    def reset(self) -> list[int]:
        self.hosts = [Host(index) for index in range(NUM_HOSTS)]
        self.known = Knowledge()
        self.brain = (BLine, Meander, SleepAgent)[self.red_agent]()
        self.move = RedMove(SLEEP, -1)
        self.ot_state = RUNNING
        self.compromised = ["no"] * NUM_HOSTS  # Blue's table, which is often wrong
        self.blue_success = UNKNOWN
        self._publish()
        return [0] * (4 * NUM_HOSTS)

    def step(self, action: int) -> tuple[list[int], int]:
        """Blue's observation, and its reward in tenths."""
        assert 0 <= action < 145, f"There is no Blue action {action}; they are 0 to 144."
        self.events: list[tuple[int, int]] = []  # (host, port), in order of arrival
        self.decoyed: int | None = None  # the host that accepted a decoy in this step
        self.exposed: int | None = None  # the host on which Analyse found malware in this step
        self._blue_acts(action)
        self._green_acts()
        self.move = self.brain.decide(self.move, self.known, self.choices)
        self._red_acts(self.move)
        obs = self._observe()
        self._publish()
        return obs, -self._lost_tenths() - (10 if action >= 132 else 0)  # a Restore costs a point, even on a clean host

    def _blue_acts(self, action: int) -> None:
        """Remove and Restore rewrite Blue's table whatever they achieve; nothing else does before the observation."""
        self.blue_success = UNKNOWN if action == 0 else TRUE
        if action < 2:
            return  # Monitor has nothing left to report
        block, index = divmod(action - 2, NUM_HOSTS)
        host = self.hosts[index]
        if block == 0:
            self.exposed = index if host.malware else None
        elif block == 1:
            host.sessions = [session for session in host.sessions if not session.removable]
            self.compromised[index] = "no" if self.compromised[index] == "no" else "unknown"
        elif block == 10:
            self._restore(host)
            self.compromised[index] = "no"
        elif host.deploy(block - 2):
            self.decoyed = index
        else:
            self.blue_success = FALSE

    def _restore(self, host: Host) -> None:
        host.sessions = [session for session in host.sessions if session.permanent]
        host.listeners = list(CLEAN_LISTENERS[host.index])
        host.malware = False
        if host.index == OP_SERVER0:
            self.ot_state = UNSTOPPABLE  # The original's backup loses the link from service to process, so we do too.
        if self.rules == "leaderboard" and host.index in (USER3, USER4):
            host.smtp_dead = True  # The backup of that time loses the mail server's version, which HarakaRCE asks for.

    def _green_acts(self) -> None:
        kind, target = self.choices.green() if self.green_agent else (0, -1)
        if kind == 1:
            self._touch(self.hosts[target], [listener.port for listener in self.hosts[target].listeners])

    def _red_acts(self, move: RedMove) -> None:
        if move.kind != SLEEP:
            move.success = FALSE  # until the rule says otherwise
            rules = {SWEEP: self._sweep, SCAN: self._scan, EXPLOIT: self._exploit, ESCALATE: self._escalate}
            rules.get(move.kind, self._impact)(move)

    def _can_reach(self, subnet: int) -> bool:
        return subnet != OPERATIONAL or any(self.hosts[host].sessions for host in ENTERPRISE_HOSTS)

    def _touch(self, host: Host, ports: list[int]) -> None:
        self.events += [(host.index, port) for port in ports]

    def _sweep(self, move: RedMove) -> None:
        if self._can_reach(move.target):
            move.success = TRUE
            self.known.addresses.update(SUBNET_MEMBERS[move.target])

    def _scan(self, move: RedMove) -> None:
        move.success = TRUE  # The original also calls a scan of an unreachable host a success.
        move.is_empty_scan = not self._can_reach(SUBNET_OF[move.target])
        if move.is_empty_scan:
            return
        ports = [listener.port for listener in self.hosts[move.target].listeners]
        self._touch(self.hosts[move.target], ports)
        stale = self.known.ports.get(move.target, set()) if self.rules == "leaderboard" else set()
        self.known.ports[move.target] = stale | set(ports)

    def _exploit(self, move: RedMove) -> None:
        if move.target not in self.known.ports:
            move.outcome = NEVER_SCANNED
            return
        self._choose_exploit(move, self.known.ports[move.target])
        host, port, is_ssh = self.hosts[move.target], EXPLOIT_PORT[move.exploit], move.exploit == SSH_BRUTE_FORCE
        listener = host.find(port, EXPLOIT_SERVICE[move.exploit])
        if not self._can_reach(SUBNET_OF[move.target]):
            move.outcome = UNREACHABLE
        elif listener is None:
            move.outcome = NO_LISTENER
        elif listener.decoy is not None:
            move.outcome = HIT_DECOY
            self._touch(host, [port] * (10 if is_ssh else 2))
        elif move.exploit == HARAKA_RCE and host.smtp_dead:
            move.outcome = INEFFECTIVE
            self._touch(host, [port])
        elif listener.gain is None:
            move.outcome = NO_WEAK_ACCOUNT
            self._touch(host, [port] * 10)
        else:
            move.outcome, move.success = ENTERED, TRUE
            self.known.names.add(move.target)
            self._touch(host, [port] * (11 if is_ssh else 1))
            host.sessions.append(Session(privileged=False) if is_ssh else self._open_shell(move, host, listener))

    def _choose_exploit(self, move: RedMove, ports: set[int]) -> None:
        """Three times in four the heaviest candidate. A single candidate needs no draw."""
        options = [exploit for exploit, port in enumerate(EXPLOIT_PORT) if port in ports]
        if not ports & {80, 443}:
            options = [exploit for exploit in options if exploit != SQL_INJECTION]
        move.exploit = max(options, key=lambda exploit: EXPLOIT_WEIGHT[exploit])
        options.remove(move.exploit)
        if options:
            move.other, took_top = self.choices.exploit(len(options))
            move.top = int(took_top)
            move.exploit = move.exploit if took_top else options[move.other]

    def _open_shell(self, move: RedMove, host: Host, listener: Listener) -> Session:
        """A shell drops malware, and can be removed later if Blue gets to hear of it and it is unprivileged."""
        host.malware = True
        detected, is_root = self.choices.detected(), listener.gain == "root"
        move.detected = int(detected)
        if detected:
            self._touch(host, [SHELL_PORT])
        return Session(privileged=is_root, removable=detected and not is_root)

    def _escalate(self, move: RedMove) -> None:
        host = self.hosts[move.target]
        if not host.sessions:
            return
        move.success = TRUE
        if host.is_privileged():
            move.escalation = ALREADY_PRIVILEGED
        else:
            move.escalation = JUICY_POTATO if host.index in WINDOWS else V4L2
            # The original picks one at random. Any will do: from now on only Restore matters, and it ends them all.
            host.sessions[0] = Session(privileged=True)
            host.malware = True
        self.known.subnets.add(SUBNET_OF[host.index])
        self.known.addresses |= {LINKS[host.index]} if host.index in LINKS else set()
        self.known.ot_service |= host.index == OP_SERVER0

    def _impact(self, move: RedMove) -> None:
        if self.hosts[OP_SERVER0].sessions and self.known.ot_service:
            move.success = TRUE  # also when the service can no longer be stopped
            self.ot_state = STOPPED if self.ot_state == RUNNING else self.ot_state

    def _lost_tenths(self) -> int:
        lost = sum(VALUE_TENTHS[host.index] for host in self.hosts if host.is_privileged())
        return lost + (100 if self.ot_state == STOPPED else 0)

    def _observe(self) -> list[int]:
        activities = [self._activity(host) for host in range(NUM_HOSTS)]
        for host, activity in enumerate(activities):
            if activity == "exploit":
                self.compromised[host] = "user"  # even where Blue already knew it was privileged
        if self.exposed is not None:
            self.compromised[self.exposed] = "privileged"
        activity_bits = {"none": [0, 0], "scan": [1, 0], "exploit": [1, 1]}
        compromised_bits = {"no": [0, 0], "unknown": [1, 0], "user": [0, 1], "privileged": [1, 1]}
        cells = zip(activities, self.compromised, strict=True)
        return [bit for a, c in cells for bit in activity_bits[a] + compromised_bits[c]]

    def _activity(self, host: int) -> str:
        """What Blue makes of this step's events on a host. A decoy deployed in the step counts as one event more."""
        ports = [port for where, port in self.events if where == host]
        is_decoyed = self.decoyed == host
        num_records, num_ports = len(ports) + is_decoyed, len(set(ports))
        if not ports:
            return "none"
        if num_records >= 3 and num_ports >= 3:
            return "scan"
        if SHELL_PORT in ports or (num_records >= 3 and num_ports == 1):
            return "exploit"
        return "none" if is_decoyed and self.wrapper == "official" else "scan"

    def _publish(self) -> None:
        """Write the state the way the golden arrays do."""
        hosts, known = self.hosts, self.known
        self.access = [2 if host.is_privileged() else int(bool(host.sessions)) for host in hosts]
        self.malware = [int(host.malware) for host in hosts]
        self.smtp_dead = [int(host.smtp_dead) for host in hosts]
        self.decoys = [mask({x.decoy for x in host.listeners if x.decoy is not None}) for host in hosts]
        stored = [known.ports.get(host.index, set()) for host in hosts]
        self.red_ports = [mask([i for i, port in enumerate(INTERESTING_PORTS) if port in ports]) for ports in stored]
        self.red_masks = [mask(known.ports), mask(known.addresses), mask(known.names), mask(known.subnets)]
        self.red = list(astuple(self.move))[:9]
        self.ot = [self.ot_state, int(known.ot_service)]
        self.agent = self.brain.memory()


COMPARED = ["access", "blue_success", "red", "malware", "decoys", "red_ports", "red_masks", "ot", "agent", "smtp_dead"]


def replay(traces: Mapping[str, np.ndarray], episode: int, wrapper: str = "official") -> list[str]:
    """Differences between a recorded episode and the oracle's replay of it; an empty list means exact.

    All of `red` is compared, also the fed draws: that shows they were asked for when, and only when, the original drew.
    Pass `dict(np.load(path))`, as an open npz file would unpack its arrays anew for every episode.
    """
    agents = int(traces["red_agent"][episode]), int(traces["green_agent"][episode])
    choices = Recorded()
    oracle = Oracle(*agents, str(traces["rules"]), wrapper, choices=choices)
    recorded = {name: traces[name][episode] for name in COMPARED if name in traces}
    recorded |= {"obs": traces["obs" if wrapper == "official" else "obs_cw2"][episode]}
    recorded |= {"tenths": np.rint(traces["reward"][episode] * 10).astype(int)}
    actions, red_rows, green_rows = (traces[name][episode].tolist() for name in ("blue_action", "red", "green"))
    differences = []
    if oracle.reset() != traces["init_obs"][episode].tolist():
        differences.append(f"episode {episode}: the observation at reset differs")
    for t in range(int(traces["length"][episode])):
        choices.load(red_rows[t], green_rows[t])
        try:
            obs, tenths = oracle.step(actions[t])
        except AssertionError as error:
            return [*differences, f"episode {episode} step {t}: {error}"]
        for name, rows in recorded.items():
            ours = {"obs": obs, "tenths": tenths}.get(name) if name in ("obs", "tenths") else getattr(oracle, name)
            if ours != rows[t].tolist():
                differences.append(f"episode {episode} step {t}: {name} is {ours}, recorded {rows[t].tolist()}")
    return differences
