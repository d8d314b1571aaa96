"""The slow, obvious twin of the CAGE-2 simulator: one env, in plain Python, after the prose of the specification.

Nothing here is compact: hosts own ordered listeners and a list of sessions, events are kept one by one, and what Red
knows is a set. It shares no code with the kernel it checks. Section marks (§) refer to the specification, `cage2.md`.

Chance enters only through `Choices`, which answers the random decisions R1 to R5 of §7.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple

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
FIRST_RESTORE, NUM_ACTIONS = 132, 145
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
SSH_BRUTE_FORCE, HARAKA_RCE = 4, 6
NUM_EVENTS = {HIT_DECOY: 2, INEFFECTIVE: 1, ENTERED: 1}
NUM_SSH_EVENTS = {HIT_DECOY: 10, NO_WEAK_ACCOUNT: 10, ENTERED: 11}

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
GATEWAY, INTERNAL = [SSH], [SSH, *SHARES, WEB, SECURE_WEB]
WIN_USER_1 = [SSH, Listener(21, "femitter", "root")]
WIN_USER_2 = [Listener(445, "smb"), Listener(139, "smb", "root"), Listener(135, ""), Listener(3389, "rdp", "user")]
LIN_USER_1 = [WEB, Listener(3389, "mysql"), SECURE_WEB, SMTP]
LIN_USER_2 = [SSH, WEB, Listener(3390, "mysql", "root"), SECURE_WEB, SMTP]
CLEAN_LISTENERS = [NO_ACCOUNTS, GATEWAY, INTERNAL, INTERNAL, GATEWAY, GATEWAY, GATEWAY, GATEWAY]
CLEAN_LISTENERS += [WIN_USER_1, WIN_USER_1, WIN_USER_2, LIN_USER_1, LIN_USER_2]


def mask(members: Collection[int]) -> int:
    return sum(1 << member for member in members)


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


Choices = Recorded | Drawn


class Session(NamedTuple):
    """Red's presence on a host. Restore ends any but the foothold; Remove ends only removable ones."""

    privileged: bool
    removable: bool = False


class Host:
    def __init__(self, index: int) -> None:
        self.index = index
        self.listeners = list(CLEAN_LISTENERS[index])  # real ones, then decoys in order of deployment
        self.sessions = [Session(privileged=True)] if index == USER0 else []  # Red's foothold is always there
        self.malware = self.smtp_dead = False

    def is_privileged(self) -> bool:
        return any(session.privileged for session in self.sessions)

    def ports(self) -> list[int]:
        return [listener.port for listener in self.listeners]

    def deploy(self, decoy: int) -> bool:
        system = "windows" if self.index in WINDOWS else "linux"
        if DECOY_NEEDS_FREE[decoy] in self.ports() or DECOY_SYSTEM[decoy] not in ("any", system):
            return False
        self.listeners.append(Listener(DECOY_PORT[decoy], DECOY_SERVICE[decoy], decoy=decoy))
        return True


class Knowledge:
    """What the env remembers on Red's behalf. Nothing Blue does shrinks it."""

    def __init__(self) -> None:
        self.addresses, self.names, self.subnets = {USER0}, {USER0}, {USER}
        self.ports: dict[int, set[int]] = {}  # no entry: never scanned
        self.last_scan_was_empty = self.ot_service = False


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
        self.stage = min(self.stage + 1, 14) if last.success == TRUE else self.FALLBACK[self.stage]
        if self.stage == 12 and 12 not in self.issued and known.last_scan_was_empty:
            self.stage = 1  # The original starts over at 0 and counts the empty scan as the success of that stage.
        if self.stage == 1 and self.user == -1:
            self.user = choices.host([USER1, USER2, USER3, USER4])
        self.issued.add(self.stage)
        link = LINKS.get(self.user, -1)
        targets = [USER, *[self.user] * 3, *[link] * 3, ENTERPRISE, *[ENTERPRISE2] * 3, *[OP_SERVER0] * 4]
        return RedMove(self.KINDS[self.stage], targets[self.stage])

    def memory(self) -> list[int]:
        return [self.stage, mask(self.issued), self.user, 0, 0, 0]


class Meander:
    """Spreads to every host it hears of, one at random at a time (§4.2)."""

    def __init__(self) -> None:
        self.scanned, self.exploited, self.escalated, self.mapped, self.swept = (set[int]() for _ in range(5))
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
        self.red_agent, self.green_agent, self.rules, self.wrapper = red_agent, green_agent, rules, wrapper
        self.choices = choices
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
        assert 0 <= action < NUM_ACTIONS, f"There is no Blue action {action}; the last one is {NUM_ACTIONS - 1}."
        self.events: list[tuple[int, int]] = []  # (host, port), in order of arrival
        self.decoyed: int | None = None  # the host that accepted a decoy in this step
        self.exposed: int | None = None  # the host on which Analyse found malware in this step
        self._blue_acts(action)
        self._green_acts()
        self.move = self.brain.decide(self.move, self.known, self.choices)
        self._red_acts(self.move)
        obs = self._observe()
        self._publish()
        return obs, -self._lost_tenths(action)

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
            self._restore(index)
        elif host.deploy(block - 2):
            self.decoyed = index
        else:
            self.blue_success = FALSE

    def _restore(self, index: int) -> None:
        self.hosts[index], self.compromised[index] = Host(index), "no"
        if index == OP_SERVER0:
            self.ot_state = UNSTOPPABLE  # The original's backup loses the link from service to process, so we do too.
        # The original's backup once lost the mail server's version too, without which HarakaRCE gives up.
        self.hosts[index].smtp_dead = self.rules == "leaderboard" and index in (USER3, USER4)

    def _green_acts(self) -> None:
        kind, target = self.choices.green() if self.green_agent else (0, -1)
        if kind == 1:
            self._touch(target, self.hosts[target].ports())

    def _red_acts(self, move: RedMove) -> None:
        if move.kind != SLEEP:
            move.success = FALSE  # until the rule says otherwise
            rules = {SWEEP: self._sweep, SCAN: self._scan, EXPLOIT: self._exploit, ESCALATE: self._escalate}
            rules.get(move.kind, self._impact)(move)

    def _can_reach(self, subnet: int) -> bool:
        return subnet != OPERATIONAL or any(self.hosts[host].sessions for host in ENTERPRISE_HOSTS)

    def _touch(self, host: int, ports: list[int]) -> None:
        self.events += [(host, port) for port in ports]

    def _sweep(self, move: RedMove) -> None:
        if self._can_reach(move.target):
            move.success = TRUE
            self.known.addresses.update(SUBNET_MEMBERS[move.target])

    def _scan(self, move: RedMove) -> None:
        move.success = TRUE  # The original also calls a scan of an unreachable host a success.
        self.known.last_scan_was_empty = not self._can_reach(SUBNET_OF[move.target])
        if not self.known.last_scan_was_empty:
            ports = self.hosts[move.target].ports()
            self._touch(move.target, ports)
            stale = self.known.ports.get(move.target, set()) if self.rules == "leaderboard" else set()
            self.known.ports[move.target] = stale | set(ports)

    def _exploit(self, move: RedMove) -> None:
        if move.target not in self.known.ports:
            move.outcome = NEVER_SCANNED
            return
        self._choose_exploit(move, self.known.ports[move.target])
        host, wanted = self.hosts[move.target], (EXPLOIT_PORT[move.exploit], EXPLOIT_SERVICE[move.exploit])
        listener = next((x for x in host.listeners if (x.port, x.service) == wanted), None)
        if not self._can_reach(SUBNET_OF[move.target]):
            move.outcome = UNREACHABLE
        elif listener is None:
            move.outcome = NO_LISTENER
        elif listener.decoy is not None:
            move.outcome = HIT_DECOY
        elif move.exploit == HARAKA_RCE and host.smtp_dead:
            move.outcome = INEFFECTIVE
        elif listener.gain is None:
            move.outcome = NO_WEAK_ACCOUNT
        else:
            move.outcome, move.success = ENTERED, TRUE
        num_events = (NUM_SSH_EVENTS if move.exploit == SSH_BRUTE_FORCE else NUM_EVENTS).get(move.outcome, 0)
        self._touch(move.target, [EXPLOIT_PORT[move.exploit]] * num_events)
        if listener is not None and move.outcome == ENTERED:
            self._enter(move, host, is_root=listener.gain == "root")

    def _choose_exploit(self, move: RedMove, ports: set[int]) -> None:
        """Three times in four the heaviest candidate. A single candidate needs no draw."""
        attackable = ports if ports & {80, 443} else ports - {3390}  # SQLInjection goes through a web server
        options = [exploit for exploit, port in enumerate(EXPLOIT_PORT) if port in attackable]
        move.exploit = max(options, key=lambda exploit: EXPLOIT_WEIGHT[exploit])
        options.remove(move.exploit)
        if options:
            move.other, took_top = self.choices.exploit(len(options))
            move.top = int(took_top)
            move.exploit = move.exploit if took_top else options[move.other]

    def _enter(self, move: RedMove, host: Host, is_root: bool) -> None:
        """Open a session. SSH drops no malware and goes undetected; a privileged session is never removable."""
        self.known.names.add(host.index)
        detected = False
        if move.exploit != SSH_BRUTE_FORCE:
            host.malware = True
            detected = self.choices.detected()
            move.detected = int(detected)
            self._touch(host.index, [SHELL_PORT] * detected)
        host.sessions.append(Session(is_root, removable=detected and not is_root))

    def _escalate(self, move: RedMove) -> None:
        host = self.hosts[move.target]
        if not host.sessions:
            return
        move.success, move.escalation = TRUE, ALREADY_PRIVILEGED
        if not host.is_privileged():
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

    def _lost_tenths(self, action: int) -> int:
        lost = sum(VALUE_TENTHS[host.index] for host in self.hosts if host.is_privileged())
        lost += 100 if self.ot_state == STOPPED else 0
        return lost + (10 if action >= FIRST_RESTORE else 0)  # The original charges for restoring a clean host too.

    def _observe(self) -> list[int]:
        activity_bits = {"none": [0, 0], "scan": [1, 0], "exploit": [1, 1]}
        compromised_bits = {"no": [0, 0], "unknown": [1, 0], "user": [0, 1], "privileged": [1, 1]}
        obs: list[int] = []
        for host in range(NUM_HOSTS):
            activity = self._activity(host)
            if activity == "exploit":
                self.compromised[host] = "user"  # even where Blue already knew it was privileged
            if self.exposed == host:
                self.compromised[host] = "privileged"
            obs += activity_bits[activity] + compromised_bits[self.compromised[host]]
        return obs

    def _activity(self, host: int) -> str:
        """What Blue makes of this step's events on a host. A decoy deployed in the step counts as one event more."""
        ports = [port for where, port in self.events if where == host]
        is_decoyed = self.decoyed == host
        num_records, num_ports = len(ports) + is_decoyed, len(set(ports))
        if not ports:
            return "none"  # a decoy alone shows nothing
        if num_ports >= 3:
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
        self.red = list(astuple(self.move))
        self.ot = [self.ot_state, int(known.ot_service)]
        self.agent = self.brain.memory()


COMPARED = ["access", "blue_success", "red", "malware", "decoys", "red_ports", "red_masks", "ot", "agent", "smtp_dead"]


def replay(traces: Mapping[str, np.ndarray], episode: int, wrapper: str = "official") -> list[str]:
    """Differences between a recorded episode and its replay; an empty list means exact. Pass `dict(np.load(path))`.

    All of `red` is compared, also the fed draws: that shows they were asked for when, and only when, the original drew.
    """
    choices, agents = Recorded(), (int(traces["red_agent"][episode]), int(traces["green_agent"][episode]))
    oracle = Oracle(*agents, str(traces["rules"]), wrapper, choices=choices)
    recorded = {name: traces[name][episode] for name in ["reward", *COMPARED] if name in traces}
    recorded["obs"] = traces["obs" if wrapper == "official" else "obs_cw2"][episode]
    actions, red_rows, green_rows = (traces[name][episode].tolist() for name in ("blue_action", "red", "green"))
    differences = []
    for t in range(int(traces["length"][episode])):
        choices.load(red_rows[t], green_rows[t])
        try:
            obs, tenths = oracle.step(actions[t])
        except AssertionError as error:
            return [*differences, f"episode {episode} step {t}: {error}"]
        ours = {name: getattr(oracle, name) for name in COMPARED}
        ours |= {"obs": obs, "reward": float(np.float32(tenths / 10))}
        for name, rows in recorded.items():
            if ours[name] != rows[t].tolist():
                differences.append(f"episode {episode} step {t}: {name} is {ours[name]}, recorded {rows[t].tolist()}")
    return differences
