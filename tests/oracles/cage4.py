"""CAGE-4 in plain Python, written from its rules: a slow, obvious twin of the compiled world.

It draws from a numpy generator, call for call as the original does, and keeps processes, services and sessions as
lists and dictionaries of small objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

RA, OA, RB, OB, CN, PA, AD, OF, IN = range(9)
ZONES = range(9)
BY_NAME = (AD, CN, IN, OF, OA, OB, PA, RA, RB)
BLUE_ZONES = ((RA,), (OA,), (RB,), (OB,), (AD, OF, PA))
RED_ZONES = ((CN,), (RA,), (OA,), (RB,), (OB,), (PA, AD, OF))
RED_OF = {zone: agent for agent, zones in enumerate(RED_ZONES) for zone in zones}
PARENT = {RA: IN, RB: IN, CN: IN, PA: IN, OA: RA, OB: RB, AD: PA, OF: PA}
LINKS = {CN: (RA, RB, PA), RA: (OA, CN), OA: (RA,), RB: (OB, CN), OB: (RB,), PA: (AD, OF, CN), AD: (PA,), OF: (PA,)}

HQ = (PA, AD, OF)
ALWAYS = [(x, y) for x in HQ for y in (CN, RA, RB)]
PAIRS = (
    [*ALWAYS, (RA, CN), (OA, RA), (RB, CN), (RB, RA), (OB, RB)],
    [*ALWAYS, (RB, CN), (OB, RB)],
    [*ALWAYS, (RA, CN), (OA, RA)],
)
WORK_FAILS = ((-1, -1, -1, -1, 0, -1, -1, -1), (-2, -10, -1, -1, 0, -1, -1, -1), (-1, -1, -2, -10, 0, -1, -1, -1))
ACCESS_FAILS = ((-3, -1, -3, -1, -5, -1, -1, -1), (-1, 0, -1, -1, 0, -1, -1, -1), (-3, -1, -1, 0, 0, -1, -1, -1))
IMPACTS = ((-1, -1, -1, -1, -5, -3, -3, -3), (-3, -10, -1, -1, 0, -3, -3, -3), (-3, -1, -3, -10, 0, -3, -3, -3))
OPEN = {frozenset((x, y)) for x in (IN, AD, OF, PA, CN, RA, RB) for y in (IN, AD, OF, PA, CN, RA, RB) if x != y}
OPEN |= {frozenset((RA, OA)), frozenset((RB, OB))}
POLICY = (
    OPEN,
    OPEN - {frozenset((RA, z)) for z in (OA, CN, RB, IN)},
    OPEN - {frozenset((RB, z)) for z in (OB, CN, RA, IN)},
)

SWEEP, AGGRESSIVE, STEALTH, DECEPTION, EXPLOIT, ESCALATE, IMPACT, DEGRADE, WITHDRAW = range(9)
DURATION = (1, 1, 3, 2, 4, 2, 2, 2)
LISTED = (SWEEP, AGGRESSIVE, STEALTH, EXPLOIT, ESCALATE, DEGRADE, DECEPTION, IMPACT, WITHDRAW)
WIN = {
    "K": {SWEEP: "KD", AGGRESSIVE: "S", STEALTH: "S"},
    "KD": {SWEEP: "KD", AGGRESSIVE: "SD", STEALTH: "SD"},
    "S": {SWEEP: "SD", DECEPTION: "S", EXPLOIT: "U"},
    "SD": {SWEEP: "SD", DECEPTION: "SD", EXPLOIT: "UD"},
    "U": {SWEEP: "UD", ESCALATE: "R", WITHDRAW: "S"},
    "UD": {SWEEP: "UD", ESCALATE: "RD", WITHDRAW: "SD"},
    "R": {SWEEP: "RD", IMPACT: "R", DEGRADE: "R", WITHDRAW: "S"},
    "RD": {SWEEP: "RD", IMPACT: "RD", DEGRADE: "RD", WITHDRAW: "SD"},
    "F": {SWEEP: "F"},
}
CHANCES = {
    "K": {SWEEP: 0.5, AGGRESSIVE: 0.25, STEALTH: 0.25},
    "KD": {AGGRESSIVE: 0.5, STEALTH: 0.5},
    "S": {SWEEP: 0.25, DECEPTION: 0.25, EXPLOIT: 0.5},
    "SD": {DECEPTION: 0.25, EXPLOIT: 0.75},
    "U": {SWEEP: 0.5, ESCALATE: 0.5, WITHDRAW: 0.0},
    "UD": {ESCALATE: 1.0, WITHDRAW: 0.0},
    "R": {SWEEP: 0.5, IMPACT: 0.25, DEGRADE: 0.25, WITHDRAW: 0.0},
    "RD": {IMPACT: 0.5, DEGRADE: 0.5, WITHDRAW: 0.0},
}
DISCOVERY_CHANCES = {
    "K": {SWEEP: 0.25, AGGRESSIVE: 0.75, STEALTH: 0.0},
    "KD": {AGGRESSIVE: 1.0, STEALTH: 0.0},
    "S": {SWEEP: 0.25, DECEPTION: 0.0, EXPLOIT: 0.75},
    "SD": {DECEPTION: 0.0, EXPLOIT: 1.0},
    "U": {SWEEP: 0.0, ESCALATE: 1.0, WITHDRAW: 0.0},
    "UD": {ESCALATE: 1.0, WITHDRAW: 0.0},
    "R": {SWEEP: 1.0, IMPACT: 0.0, DEGRADE: 0.0, WITHDRAW: 0.0},
    "RD": {IMPACT: 0.5, DEGRADE: 0.5, WITHDRAW: 0.0},
}
PRIORITY = {"K": 20, "KD": 20, "S": 20, "SD": 20, "U": 10, "UD": 10, "R": 0, "RD": 0}
PORTS = {"ssh": 22, "ot": 1, "web": 80, "mysql": 3390, "smtp": 25}
DECOYS = (("apache", 80, 80, "web"), ("tomcat", 443, 443, "web"), ("haraka", 25, 25, "smtp"), ("vsftpd", 80, 21, "web"))


@dataclass
class Process:
    pid: int
    user: str
    kind: str = ""
    port: int = 0
    decoy: bool = False


@dataclass
class Service:
    pid: int
    on: bool = True
    reliability: int = 100


@dataclass
class Session:
    host: int
    user: str
    abstract: bool
    pid: int
    ports: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Host:
    zone: int
    role: str
    processes: list[Process] = field(default_factory=list)
    services: dict[str, Service] = field(default_factory=dict)
    backup: list[Process] = field(default_factory=list)
    ephemeral: set[int] = field(default_factory=set)
    suspicious: list[int] = field(default_factory=list)
    connection_event: bool = False
    process_event: bool = False
    noticed: list[int] = field(default_factory=list)


@dataclass
class Seen:
    """What a Red agent was told: how its action ended, which it was, and the hosts shown, as (host, name, session)."""

    success: str = "UNKNOWN"
    action: tuple[int, int, int] | None = None
    entries: list[tuple[int, bool, bool]] = field(default_factory=list)


@dataclass
class Red:
    sessions: dict[int, Session] = field(default_factory=dict)
    active: bool = False
    busy: list | None = None  # [action, steps left]
    turns: int = 0
    hosts: dict[int, list] = field(default_factory=dict)  # host -> [state, name known]
    ids: dict[int, bool] = field(default_factory=dict)
    zones: set[int] = field(default_factory=set)
    seen: Seen = field(default_factory=Seen)


class Twin:
    """One env. `rng` is where all its chance comes from."""

    def __init__(
        self, rng: np.random.Generator, red: str = "FiniteStateRedAgent", green: bool = True, steps: int = 500
    ) -> None:
        self.rng, self.red_agent, self.has_green, self.steps = rng, red, green, steps

    # A new network

    def reset(self) -> None:
        rng = self.rng
        free = list(range(256))
        for _ in ZONES:
            free.pop(rng.choice(len(free)))
        self.hosts: list[Host] = []
        self._used_pids: set[int] = set()
        for zone in ZONES:
            self._generate_zone(zone)
        self.in_zone = [[h for h, host in enumerate(self.hosts) if host.zone == zone] for zone in ZONES]
        servers = [self._blue_server(zones) for zones in BLUE_ZONES]
        starts = [self._red_start(zones) for zones in RED_ZONES]
        for (mine, server), _ in zip(servers, BLUE_ZONES, strict=True):
            for host in [server, *(h for h in mine if h != server)]:
                self._start_process(host, "ubuntu")
        self.green = [h for h, host in enumerate(self.hosts) if host.role == "user"]
        for host in self.green:
            self._start_process(host, "ubuntu")
        foothold = self._start_process(starts[0], "ubuntu")
        for host in self.hosts:
            host.backup = [Process(p.pid, p.user, p.kind, p.port) for p in host.processes]
        self.red = [Red(zones={self.hosts[start].zone}) for start in starts]
        self.red[0].active = True
        self.red[0].sessions[0] = Session(starts[0], "ubuntu", True, foothold)
        self.red[0].ids[0] = True
        self.red[0].seen = Seen(entries=[(starts[0], True, True)])
        self.blue_busy: list[list | None] = [None] * 5
        self.blocks: list[set[int]] = [set() for _ in ZONES]
        self.messages = np.zeros((5, 8), np.int64)
        self.clock = self.phase = 0

    def _generate_zone(self, zone: int) -> None:
        rng, addresses = self.rng, list(range(254))

        def address() -> None:
            addresses.pop(rng.choice(len(addresses)))

        address()
        self._generate_host(zone, "router")
        if zone == IN:
            return
        for _ in range(rng.integers(3, 10, endpoint=True)):
            address()
            self._generate_host(zone, "user")
        for _ in range(rng.integers(1, 6, endpoint=True)):
            addresses.pop()
            self._generate_host(zone, "server")

    def _generate_host(self, zone: int, role: str) -> None:
        rng, host = self.rng, Host(zone, role)
        self.hosts.append(host)
        rng.choice(2)
        if role == "router":
            return
        kinds = ["ssh", "ot"] if zone in (OA, OB) else ["ssh"]
        pids = {kind: self._unused_pid() for kind in [*kinds, "web", "mysql", "smtp"]}
        left = ["web", "mysql", "smtp"]
        kinds += [left.pop(rng.choice(len(left))) for _ in range(rng.integers(0, 3, endpoint=True))]
        for kind in kinds:
            rng.random()
            host.processes.append(Process(pids[kind], "user", kind, PORTS[kind]))
            host.services[kind] = Service(pids[kind])

    def _unused_pid(self) -> int:
        while True:
            pid = int(self.rng.integers(1000, 10000))
            if pid not in self._used_pids:
                self._used_pids.add(pid)
                return pid

    def _blue_server(self, zones: tuple[int, ...]) -> tuple[list[int], int]:
        self.rng.choice(len(zones))
        mine = [h for h, host in enumerate(self.hosts) if host.zone in zones]
        return mine, mine[self.rng.choice(len(mine))]

    def _red_start(self, zones: tuple[int, ...]) -> int:
        zone = zones[self.rng.choice(len(zones))]
        there = [h for h in self.in_zone[zone] if self.hosts[h].role != "router"]
        start = there[self.rng.choice(len(there))]
        self.rng.choice(1)
        return start

    # Small tools

    def _start_process(self, h: int, user: str, **more: object) -> int:
        pid = self._new_pid(h)
        self.hosts[h].processes.append(Process(pid, user, **more))  # type: ignore[arg-type]
        return pid

    def _new_pid(self, h: int) -> int:
        highest = max([0, *(process.pid for process in self.hosts[h].processes)])
        return highest + int(self.rng.integers(1, 10))

    def _ephemeral_port(self, host: Host) -> None:
        port = int(self.rng.integers(49152, 60000))
        if port in host.ephemeral:
            port = int(self.rng.integers(49152, 60000))
        host.ephemeral.add(port)

    def _add_session(self, agent: int, session: Session) -> int:
        mine = self.red[agent].sessions
        new = max(mine) + 1 if mine else 0
        mine[new] = session
        return new

    def _way(self, a: int, b: int) -> list[int]:
        """All hosts on the way from `a` to `b`, both included: the network is a tree."""
        if a == b:
            return [a]

        def upwards(h: int) -> list[int]:
            zone, way = self.hosts[h].zone, [h]
            while True:
                way.append(self.in_zone[zone][0])
                if zone == IN:
                    return way
                zone = PARENT[zone]

        up, down = upwards(a), upwards(b)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return up + down[-2::-1]

    def _blocked(self, source: int, target: int) -> bool:
        return self.hosts[source].zone in self.blocks[self.hosts[target].zone]

    # A step

    def step(self, actions: list[int], messages: np.ndarray | None = None) -> float:
        """Returns the reward. `actions` are numbers from the index table, one per Blue agent."""
        thirds = [self.steps // 3 + (k < self.steps % 3) for k in range(3)]
        self.phase = 0 if self.clock < thirds[0] else 1 if self.clock < thirds[0] + thirds[1] else 2
        reward = 0.0
        for host in self.hosts:
            host.connection_event, host.process_event, host.noticed = False, False, []
        for b, number in enumerate(actions):
            action = self.blue_action(b, number)
            reward -= action[0] == "Restore"
            if self.blue_busy[b] is None:
                duration = {"Analyse": 2, "Remove": 3, "Restore": 5, "DeployDecoy": 2}.get(action[0], 1)
                self.blue_busy[b] = [action, duration]
        green = [int(self.rng.choice(3)) if self.has_green else 2 for _ in self.green]
        for agent, red in enumerate(self.red):
            chosen = self._choose(agent) if red.active and self.red_agent != "SleepAgent" else None
            if red.busy is None:
                red.busy = [chosen, 1 if chosen is None else DURATION[chosen[0]]]
        due = [self._due_blue(b) for b in range(5)]
        waiting, red_due = [], []
        for red in self.red:
            red.busy[1] -= 1
            waiting.append(red.busy[1] > 0)
            red_due.append(None if waiting[-1] else red.busy[0])
            if not waiting[-1]:
                red.busy = None
        dropped = [act is not None and act[2] not in red.sessions for act, red in zip(red_due, self.red, strict=True)]
        self.rng.shuffle(list(range(5 + len(green) + 6 - sum(dropped))))
        for traffic in (True, False):
            for action in due:
                if action is not None and (action[0] in ("Allow", "Block")) == traffic:
                    self._blue_acts(*action)
        for h, choice in zip(self.green, green, strict=True):
            zone = self.hosts[h].zone
            if choice == 0 and not self._access_service(h):
                reward += ACCESS_FAILS[self.phase][zone]
            if choice == 1 and not self._work(h):
                reward += WORK_FAILS[self.phase][zone]
        self._fresh: list[tuple[int, int] | None] = [None] * 6
        seen = []
        for agent, act in enumerate(red_due):
            if waiting[agent]:
                seen.append(Seen("IN_PROGRESS"))
            elif act is None:
                seen.append(Seen())
            elif dropped[agent]:
                seen.append(Seen("DROPPED"))
            else:
                success, entries = self._red_acts(agent, *act)
                seen.append(Seen(success, act, entries))
        self._change_hands(seen)
        for host in self.hosts:
            if host.zone not in (CN, IN):
                host.suspicious += host.noticed
        for red, told in zip(self.red, seen, strict=True):
            self._look_after_sessions(red, told)
        for red, act in zip(self.red, red_due, strict=True):
            if act is not None and act[0] == IMPACT and red.sessions:
                reward += IMPACTS[self.phase][self.hosts[act[1]].zone]
        self.clock += 1
        self.messages = np.zeros((5, 8), np.int64) if messages is None else np.asarray(messages)
        return reward

    # Blue

    def slot(self, zone: int, k: int) -> int | None:
        """The host in place `k` of a zone: six servers, then ten users."""
        role, number = ("server", k) if k < 6 else ("user", k - 6)
        there = [h for h in self.in_zone[zone] if self.hosts[h].role == role]
        return there[number] if number < len(there) else None

    def blue_action(self, b: int, number: int) -> tuple:
        """What a number of the index table means."""
        zones = BLUE_ZONES[b]
        hosts, roads = 16 * len(zones), 8 * len(zones)
        parts = (
            ("Analyse", hosts), ("Monitor", 1), ("Remove", hosts), ("Restore", hosts), ("Sleep", 1),
            ("Allow", roads), ("Block", roads), ("DeployDecoy", hosts),
        )  # fmt: skip
        kind = ""
        for kind, size in parts:  # noqa: B007
            if number < size:
                break
            number -= size
        if kind in ("Monitor", "Sleep"):
            return ("Sleep", b, None)
        if kind in ("Allow", "Block"):
            zone = zones[number // 8]
            return (kind, zone, [other for other in BY_NAME if other != zone][number % 8])
        host = self.slot(zones[number // 16], number % 16)
        return ("Sleep", b, None) if host is None else (kind, host, None)

    def _due_blue(self, b: int) -> tuple | None:
        busy = self.blue_busy[b]
        assert busy is not None
        busy[1] -= 1
        if busy[1] > 0:
            return None
        self.blue_busy[b] = None
        return busy[0]

    def _blue_acts(self, kind: str, x: int, y: int) -> None:
        if kind == "Allow":
            self.blocks[x].discard(y)
        elif kind == "Block":
            self.blocks[x].add(y)
        elif kind == "Remove":
            self._remove(x)
        elif kind == "Restore":
            self._restore(x)
        elif kind == "DeployDecoy":
            self._deploy(x)

    def _remove(self, h: int) -> None:
        host = self.hosts[h]
        for pid in host.suspicious:
            process = next((p for p in host.processes if p.pid == pid), None)
            if process is None or process.user == "root":
                continue
            host.processes.remove(process)
            service = next((s for s in host.services.values() if s.pid == pid), None)
            if service is not None:
                process.pid = service.pid = self._new_pid(h)
                host.processes.append(process)
                continue
            for red in self.red:
                for number, session in list(red.sessions.items()):
                    if session.host == h and session.pid == pid:
                        del red.sessions[number]

    def _restore(self, h: int) -> None:
        host = self.hosts[h]
        for red in self.red:
            red.sessions = {number: session for number, session in red.sessions.items() if session.host != h}
        host.processes = [Process(p.pid, p.user, p.kind, p.port) for p in host.backup]
        host.services = {p.kind: Service(p.pid) for p in host.backup if p.kind}
        host.ephemeral = set()

    def _deploy(self, h: int) -> None:
        host = self.hosts[h]
        fitting = [decoy for decoy in DECOYS if all(process.port != decoy[2] for process in host.processes)]
        name, port, _, kind = fitting[self.rng.choice(len(fitting))]
        pid = self._start_process(h, "ubuntu", kind=kind, port=port, decoy=True)
        host.services[name] = Service(pid)

    # Green

    def _access_service(self, h: int) -> bool:
        zone = self.hosts[h].zone
        allowed = (
            {zone} | {y for x, y in PAIRS[self.phase] if x == zone} | {x for x, y in PAIRS[self.phase] if y == zone}
        )
        servers = [host for host in self.hosts if host.role == "server" and host.zone in allowed]
        server = servers[self.rng.choice(len(servers))]
        self._ephemeral_port(server)
        if server.zone in self.blocks[zone] or zone in self.blocks[server.zone]:
            server.connection_event = True
            return False
        if self.rng.random() < 0.01:
            server.connection_event = True
        return True

    def _work(self, h: int) -> bool:
        host = self.hosts[h]
        running = [service for service in host.services.values() if service.on]
        if not running:
            return False
        service = running[self.rng.choice(len(running))]
        if self.rng.integers(100) >= service.reliability:
            return False
        if self.rng.random() < 0.01:
            self._ephemeral_port(host)
            host.process_event = True
        if self.rng.random() < 0.01:
            self._phish(h)
        return True

    def _phish(self, victim: int) -> None:
        zone, sender, others = self.hosts[victim].zone, None, []
        holders = [[a for a in range(6) if any(s.host == h for s in self.red[a].sessions.values())]
                   for h in range(len(self.hosts))]  # fmt: skip
        if holders[victim]:
            return
        for h, agents in enumerate(holders):
            for agent in agents:
                if self.hosts[h].zone == zone:
                    sender = agent
                    break
                others.append(agent)
        if sender is None:
            sender = others[self.rng.choice(len(others), replace=False)]
        pid = self._start_process(victim, "user")
        self._add_session(sender, Session(victim, "user", True, pid))

    # Red's mind

    def _choose(self, agent: int) -> tuple[int, int, int] | None:
        red, seen = self.red[agent], self.red[agent].seen
        if seen.action is not None and seen.success != "IN_PROGRESS":
            kind, target, _ = seen.action
            touched = [h for h in red.hosts if self.hosts[h].zone == target] if kind == SWEEP else [target]
            for h in touched:
                self._take_outcome(agent, h, kind, seen.success == "TRUE")
        for h, named, _ in seen.entries:
            if h not in red.hosts:
                red.hosts[h] = ["U" if red.turns == 0 else "K", named]
            elif named:
                red.hosts[h][1] = True
        held = {h for h, _, session in seen.entries if session}
        for h, known in red.hosts.items():
            if known[0] in ("U", "UD", "R", "RD") and h not in held:
                known[0] = "KD"
        red.turns += 1
        if seen.success == "IN_PROGRESS":
            return None
        host = self._choose_host(red)
        chances = (DISCOVERY_CHANCES if self.red_agent == "DiscoveryFSRed" else CHANCES)[red.hosts[host][0]]
        options = [kind for kind in LISTED if kind in chances]
        kind = options[self.rng.choice(len(options), p=[chances[option] for option in options])]
        target = host
        if kind == SWEEP:
            zones = sorted(red.zones)
            target = zones[self.rng.choice(len(zones))]
        session = list(red.ids)[self.rng.choice(len(red.ids))]
        return kind, target, session

    def _take_outcome(self, agent: int, h: int, kind: int, won: bool) -> None:
        known = self.red[agent].hosts.get(h)
        if known is None or kind not in WIN[known[0]]:
            return
        state = WIN[known[0]][kind] if won else known[0]
        foreign = self.hosts[h].zone not in RED_ZONES[agent]
        known[0] = "F" if state == "U" and foreign else state

    def _choose_host(self, red: Red) -> int:
        rng, options = self.rng, [h for h, known in red.hosts.items() if known[0] != "F"]
        if self.red_agent != "DiscoveryFSRed":
            return options[rng.choice(len(options))]
        present = {red.hosts[h][0]: PRIORITY[red.hosts[h][0]] for h in options}
        total = sum(present.values())
        if total > 0:
            weights = [(weight / 100) * (1 / (total / 100)) for weight in present.values()]
            state = list(present)[rng.choice(len(present), p=weights)]
        else:
            state = list(present)[rng.choice(len(present))]
        options = [h for h in options if red.hosts[h][0] == state]
        servers = [h for h in options if red.hosts[h][1] and self.hosts[h].role == "server"]
        if len(options) > 1 and servers:
            if rng.random() <= 0.75 or len(servers) == len(options):
                options = servers
            else:
                options = [h for h in options if h not in servers]
        return options[rng.choice(len(options))]

    # Red's deeds: success, and what is seen of them

    def _red_acts(self, agent: int, kind: int, target: int, number: int) -> tuple[str, list[tuple[int, bool, bool]]]:
        red, rng = self.red[agent], self.rng
        session = red.sessions.get(number)
        if kind == SWEEP:
            if session is None:
                return "FALSE", []
            return "TRUE", [(h, False, False) for h in self.in_zone[target] if self.hosts[h].role != "router"]
        if kind in (AGGRESSIVE, STEALTH):
            return self._scan(session, target, 0.75 if kind == AGGRESSIVE else 0.25)
        host = self.hosts[target]
        if kind == DECEPTION:
            if session is None:
                return "FALSE", []
            flagged = False
            for process in host.processes:
                flagged |= (rng.random() <= 0.5 and process.decoy) or (rng.random() <= 0.1 and not process.decoy)
            return "TRUE", [(target, True, False)] if flagged else []
        if kind == EXPLOIT:
            return self._exploit(agent, session, target)
        mine = [each for each in red.sessions.values() if each.host == target]
        rooted = any(each.user == "root" for each in mine)
        if kind == ESCALATE:
            if not mine:
                return "FALSE", []
            if not rooted:
                chosen = mine[rng.choice(len(mine))]
                if session is None or not session.abstract:
                    return "FALSE", []
                chosen.user = "root"
                next(process for process in host.processes if process.pid == chosen.pid).user = "root"
            shown = [(target, True, True)]
            if session is not None and target == self.slot(host.zone, 0):
                linked = sorted(self.slot(zone, 0) for zone in LINKS[host.zone])  # type: ignore[type-var]
                shown += [(h, True, False) for h in linked]  # type: ignore[misc]
            return "TRUE", shown
        if kind == DEGRADE:
            running = [service for service in host.services.values() if service.on]
            if not rooted or not running:
                return "FALSE", []
            for service in running:
                service.reliability = max(0, service.reliability - 20)
            return "TRUE", [(target, True, False)]
        assert kind == IMPACT
        service = host.services.get("ot")
        if not rooted or service is None or not service.on:
            return "FALSE", []
        if session is None:
            return "FALSE", [(target, True, False)]
        service.on = False
        host.processes = [process for process in host.processes if process.pid != service.pid]
        return "TRUE", [(target, True, False)]

    def _scan(self, session: Session | None, target: int, rate: float) -> tuple[str, list[tuple[int, bool, bool]]]:
        if session is None or not session.abstract or self._blocked(session.host, target):
            return "FALSE", []
        host, noise = self.hosts[target], self.rng.random()
        session.ports[target] = [process.port for process in host.processes if process.port]
        for process in host.processes:
            if process.port and (noise <= rate or process.decoy):
                host.connection_event = True
                self._ephemeral_port(host)
        return "TRUE", [(target, False, False)]

    def _exploit(self, agent: int, session: Session | None, target: int) -> tuple[str, list[tuple[int, bool, bool]]]:
        if session is None or not session.abstract or target not in session.ports:
            return "FALSE", []
        if self._blocked(session.host, target):
            return "FALSE", []
        ports, rng, host = session.ports[target], self.rng, self.hosts[target]
        weights = {}
        if 80 in ports:
            weights["http"] = 3.0
        if 443 in ports:
            weights["https"] = 4.0
        if 22 in ports:
            weights["ssh"] = 0.1
        if 3390 in ports and (80 in ports or 443 in ports):
            weights["sql"] = 5.0
        if 25 in ports:
            weights["haraka"] = 6.0
        chosen = next(iter(weights))
        if len(weights) > 1:
            del weights[max(weights, key=lambda name: weights[name])]
            chosen = list(weights)[rng.choice(len(weights))]
            rng.random()
        if chosen == "ssh":
            for h in self._way(session.host, target):
                if rng.random() > 1 - 0.95:
                    self.hosts[h].connection_event = True
            self._ephemeral_port(host)
            host.connection_event = True
            return self._break_in(agent, target, session.host, True)
        kind, port = {"http": ("web", 80), "https": ("web", 443), "sql": ("mysql", 3390)}[chosen]
        process = next((p for p in host.processes if (p.kind, p.port) == (kind, port)), None)
        if process is None:
            return "FALSE", []
        if process.decoy:
            host.connection_event = True
            self._ephemeral_port(host)
        if not process.decoy and chosen != "sql":
            return "FALSE", [(target, False, False)]
        rng.random()
        self._ephemeral_port(host)
        if process.decoy:
            host.connection_event = True
            self._ephemeral_port(host)
            return "FALSE", [(target, False, False)]
        return self._break_in(agent, target, session.host, False)

    def _break_in(
        self, agent: int, target: int, source: int, surely_noticed: bool
    ) -> tuple[str, list[tuple[int, bool, bool]]]:
        pid, host = self._start_process(target, "user"), self.hosts[target]
        number = self._add_session(agent, Session(target, "user", False, pid))
        if surely_noticed or self.rng.random() > 1 - 0.95:
            host.process_event = True
            host.noticed.append(pid)
        self._fresh[agent] = (number, target)
        return "TRUE", [(target, True, True), (source, False, False)]

    # Red's sessions, at the end of a step

    def _change_hands(self, seen: list[Seen]) -> None:
        moving = [
            (agent, number)
            for agent, red in enumerate(self.red)
            for number, session in red.sessions.items()
            if self.hosts[session.host].zone not in RED_ZONES[agent]
        ]
        for agent, number in moving:
            old = self.red[agent].sessions.pop(number)
            owner = RED_OF[self.hosts[old.host].zone]
            new = self._add_session(owner, Session(old.host, old.user, True, old.pid))
            if self._fresh[agent] == (number, old.host):
                seen[owner].entries.append((old.host, True, True))
                self.red[owner].ids[new] = True
        for red in self.red:
            red.active = bool(red.sessions)

    def _look_after_sessions(self, red: Red, told: Seen) -> None:
        if red.active:
            if 0 not in red.sessions:
                numbers = list(red.sessions)
                chosen = numbers[self.rng.choice(len(numbers))]
                red.sessions[0] = red.sessions.pop(chosen)
            for number, session in red.sessions.items():
                told.entries.append((session.host, True, True))
                red.zones.add(self.hosts[session.host].zone)
                if session.abstract:
                    red.ids[number] = True
        if told.success == "DROPPED":
            told.success = "TRUE" if red.active else "UNKNOWN"
        red.seen = told

    # What is seen from outside

    def observation(self, b: int) -> list[int]:
        """What Blue agent `b` sees, as the flat wrapper shows it."""
        numbers = [self.phase]
        for zone in BLUE_ZONES[b]:
            numbers += [int(zone == other) for other in BY_NAME]
            numbers += [int(other in self.blocks[zone]) for other in BY_NAME]
            numbers += [int(frozenset((zone, other)) not in POLICY[self.phase]) for other in BY_NAME]
            hosts = [None if (h := self.slot(zone, k)) is None else self.hosts[h] for k in range(16)]
            numbers += [int(host is not None and host.process_event) for host in hosts]
            numbers += [int(host is not None and host.connection_event) for host in hosts]
        return numbers + [int(bit) for sender in range(5) if sender != b for bit in self.messages[sender]]

    def red_sessions(self) -> list[tuple[int, int, int, bool, bool, int]]:
        """Red agent, id, host, root, abstract, pid of all sessions, in order."""
        return [
            (agent, number, each.host, each.user == "root", each.abstract, each.pid)
            for agent, red in enumerate(self.red)
            for number, each in red.sessions.items()
        ]
