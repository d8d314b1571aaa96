"""The observation `truth`: what Red holds, knows and plans. Nobody may play with it; it shows what that would be worth.

Only what the future depends on is shown, so that observations repeat: neither Blue's table, which knows less, nor malware,
which only Analyse looks for, nor what Red knows where its agent never asks.
"""

from __future__ import annotations

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.draws import count_bits
from redline.worlds.cage2.rules.memory import thermometer
from redline.worlds.cage2.rules.scenario import HOSTS, MEANDER, NUM_HOSTS, PORTS, RED_AGENTS
from redline.worlds.encoding import Field

MOST_DECOYS = 4
PORTS_PER_WORD = 7  # hosts whose eight remembered ports share a word
NUM_STAGES = 15
TARGET_AT, SUCCESS_AT, OT_AT, FLAGS_AT, SUBNETS_AT, SWEPT_AT, AGENT_AT = 15, 19, 22, 25, 28, 31, 34
OP_SERVER_STAGE = 12  # whether B_line has tried it changes what it does next


@kernel
def bit_of(index):
    """A one at `index`; nothing where there is none."""
    return (1 << index) if index >= 0 else 0


@kernel
def pack_truth(env, packed, i):
    """Write all that matters to the future of env `i` into its words."""
    decoys = low = high = 0
    for host in range(NUM_HOSTS):
        decoys |= thermometer(count_bits(int(env.decoys[host])), MOST_DECOYS) << (MOST_DECOYS * host)
        if host < PORTS_PER_WORD:
            low |= int(env.ports[host]) << (8 * host)
        else:
            high |= int(env.ports[host]) << (8 * (host - PORTS_PER_WORD))
    asks = int(env.red_agent == MEANDER)  # B_line follows its plan, whatever it knows
    packed[i, 0] = four(env.seen, env.unseen, env.root, env.dead_mail)
    packed[i, 1] = decoys
    packed[i, 2] = low
    packed[i, 3] = high
    packed[i, 4] = four(asks * env.known_hosts, asks * env.known_names, env.scanned, env.exploited)
    packed[i, 5] = four(env.escalated, env.mapped, bit_of(int(env.last_exploited)), bit_of(int(env.last_escalated)))
    packed[i, 6] = mind(env, asks)


@kernel
def four(first, second, third, last):
    """Four masks of hosts in a word."""
    return int(first) | (int(second) << 13) | (int(third) << 26) | (int(last) << 39)


@kernel
def mind(env, asks):
    """What Red is up to."""
    target = bit_of(int(env.target) - 9) if env.target >= 9 else 0
    flags = int(env.knows_ot) | (((int(env.issued) >> OP_SERVER_STAGE) & 1) << 1) | (int(env.scan_empty) << 2)
    return (
        bit_of(int(env.stage)) | (target << TARGET_AT)
        | (bit_of(int(env.red_success)) << SUCCESS_AT) | (bit_of(int(env.ot)) << OT_AT) | (flags << FLAGS_AT)
        | (asks * int(env.known_subnets) << SUBNETS_AT) | (int(env.swept) << SWEPT_AT)
        | (bit_of(int(env.red_agent)) << AGENT_AT)
    )  # fmt: skip


def truth_fields() -> list[Field]:
    """Names and places of the numbers."""
    fields = _of_hosts(0, "seen", "unseen", "root", "dead_mail")
    fields += [Field(f"{host}.decoys>{k}", 1, MOST_DECOYS * h + k) for h, host in enumerate(HOSTS) for k in range(4)]
    for h, host in enumerate(HOSTS):
        word, place = 2 + h // PORTS_PER_WORD, h % PORTS_PER_WORD
        fields += [Field(f"{host}.red_knows_{port}", word, 8 * place + p) for p, port in enumerate(PORTS[:8])]
    fields += _of_hosts(4, "known", "named", "scanned", "exploited")
    fields += _of_hosts(5, "escalated", "mapped", "just_exploited", "just_escalated")
    return fields + [Field(f"red.{name}", 6, k) for k, name in enumerate(_mind_names())]


def _of_hosts(word: int, *what: str) -> list[Field]:
    return [
        Field(f"{host}.{each}", word, NUM_HOSTS * k + h) for k, each in enumerate(what) for h, host in enumerate(HOSTS)
    ]


def _mind_names() -> list[str]:
    return [
        *(f"stage{k}" for k in range(NUM_STAGES)),
        *(f"target.{host}" for host in HOSTS[9:]),
        "failed", "succeeded", "success_unknown", "ot_running", "ot_stopped", "ot_unstoppable", "knows_ot",
        "tried_op_server", "scan_empty",
        *(f"knows_subnet{k}" for k in range(3)),
        *(f"swept_subnet{k}" for k in range(3)),
        *(f"is_{agent}" for agent in RED_AGENTS),
    ]  # fmt: skip
