"""The observation `truth`: all that the rules know. Nobody may play with it; it shows what knowing everything is worth."""

from __future__ import annotations

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.draws import count_bits
from redline.worlds.cage2.rules.memory import thermometer
from redline.worlds.cage2.rules.scenario import HOSTS, NUM_HOSTS, PORTS, RED_AGENTS
from redline.worlds.encoding import Field

MOST_DECOYS = 4
PORTS_PER_WORD = 7  # hosts whose eight remembered ports share a word
NUM_STAGES = 15
STAGE_AT, TARGET_AT, SUCCESS_AT, OT_AT, FLAGS_AT, SUBNETS_AT, SWEPT_AT, AGENT_AT = 13, 28, 32, 35, 38, 41, 44, 47
OP_SERVER_STAGE = 12  # whether B_line has tried it changes what it does next


@kernel
def bit_of(index):
    """A one at `index`; nothing where there is none."""
    return (1 << index) if index >= 0 else 0


@kernel
def pack_truth(env, packed, i):
    """Write all that the rules know of env `i` into its words."""
    decoys = low = high = 0
    for host in range(NUM_HOSTS):
        decoys |= thermometer(count_bits(int(env.decoys[host])), MOST_DECOYS) << (MOST_DECOYS * host)
        if host < PORTS_PER_WORD:
            low |= int(env.ports[host]) << (8 * host)
        else:
            high |= int(env.ports[host]) << (8 * (host - PORTS_PER_WORD))
    packed[i, 1] = four(env.seen, env.unseen, env.root, env.malware)
    packed[i, 2] = decoys
    packed[i, 3] = low
    packed[i, 4] = high
    packed[i, 5] = four(env.known_hosts, env.known_names, env.scanned, env.exploited)
    packed[i, 6] = four(env.escalated, env.mapped, env.dead_mail, bit_of(int(env.last_exploited)))
    packed[i, 7] = mind(env)


@kernel
def four(first, second, third, last):
    """Four masks of hosts in a word."""
    return int(first) | (int(second) << 13) | (int(third) << 26) | (int(last) << 39)


@kernel
def mind(env):
    """What Red is up to."""
    target = bit_of(int(env.target) - 9) if env.target >= 9 else 0
    flags = int(env.knows_ot) | (((int(env.issued) >> OP_SERVER_STAGE) & 1) << 1) | (int(env.scan_empty) << 2)
    return (
        bit_of(int(env.last_escalated)) | (bit_of(int(env.stage)) << STAGE_AT) | (target << TARGET_AT)
        | (bit_of(int(env.red_success)) << SUCCESS_AT) | (bit_of(int(env.ot)) << OT_AT) | (flags << FLAGS_AT)
        | (int(env.known_subnets) << SUBNETS_AT) | (int(env.swept) << SWEPT_AT)
        | (bit_of(int(env.red_agent)) << AGENT_AT)
    )  # fmt: skip


def truth_fields() -> list[Field]:
    """Names and places of the numbers behind the table."""
    fields = _of_hosts(1, "seen", "unseen", "root", "malware")
    fields += [Field(f"{host}.decoys>{k}", 2, MOST_DECOYS * h + k) for h, host in enumerate(HOSTS) for k in range(4)]
    for h, host in enumerate(HOSTS):
        word, place = 3 + h // PORTS_PER_WORD, h % PORTS_PER_WORD
        fields += [Field(f"{host}.red_knows_{port}", word, 8 * place + p) for p, port in enumerate(PORTS[:8])]
    fields += _of_hosts(5, "known", "named", "scanned", "exploited")
    fields += _of_hosts(6, "escalated", "mapped", "dead_mail", "just_exploited")
    return fields + [Field(f"red.{name}", 7, k) for k, name in enumerate(_mind_names())]


def _of_hosts(word: int, *what: str) -> list[Field]:
    return [
        Field(f"{host}.{each}", word, NUM_HOSTS * k + h) for k, each in enumerate(what) for h, host in enumerate(HOSTS)
    ]


def _mind_names() -> list[str]:
    return [
        *(f"just_escalated.{host}" for host in HOSTS),
        *(f"stage{k}" for k in range(NUM_STAGES)),
        *(f"target.{host}" for host in HOSTS[9:]),
        "failed", "succeeded", "success_unknown", "ot_running", "ot_stopped", "ot_unstoppable", "knows_ot",
        "tried_op_server", "scan_empty",
        *(f"knows_subnet{k}" for k in range(3)),
        *(f"swept_subnet{k}" for k in range(3)),
        *(f"is_{agent}" for agent in RED_AGENTS),
    ]  # fmt: skip
