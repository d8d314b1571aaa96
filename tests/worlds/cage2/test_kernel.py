"""The compiled CAGE-2 rules against recordings of the original, against their slow twin, and against themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redline.compiled import rng
from redline.compiled.rng import seed_streams
from redline.compiled.speed import at_speed, interpreted
from redline.errors import RedlineError
from redline.worlds.cage2.recordings import Arrays, Mismatch, load_traces, replay
from redline.worlds.cage2.rules import kernel
from redline.worlds.cage2.rules.observe import encoding_of, observe
from redline.worlds.cage2.rules.scenario import (
    B_LINE,
    DECOYS,
    GREEN_AGENTS,
    HOSTS,
    MEANDER,
    NUM_ACTIONS,
    NUM_HOSTS,
    NUM_REDUCED_ACTIONS,
    OBSERVATIONS,
    RED_AGENTS,
    RED_SLEEP,
    RULES,
    WRAPPERS,
    Scenario,
)
from redline.worlds.cage2.rules.state import new_state
from tests.oracles.cage2 import COMPARED, ENTERPRISE_HOSTS, Drawn, Oracle
from tests.oracles.cage2 import replay as replay_by_twin

DATA = Path(__file__).parents[2] / "data"
GOLDEN, WORD = 0x9E3779B97F4A7C15, 1 << 64
ANALYSE, REMOVE, DECOY, RESTORE = 2, 15, 28, 132
HOST_ID = {name: host for host, name in enumerate(HOSTS)}


# Tools


class Stream:
    """SplitMix64 in whole numbers of any size: the random stream of one env."""

    def __init__(self, counter: int) -> None:
        self.counter = counter

    @classmethod
    def seeded(cls, seed: int) -> Stream:
        return cls(scrambled(scrambled(seed + GOLDEN) ^ GOLDEN))

    def bits(self) -> int:
        self.counter = (self.counter + GOLDEN) % WORD
        return scrambled(self.counter)

    def uniform(self) -> float:
        return (self.bits() >> 11) / (1 << 53)


def scrambled(counter: int) -> int:
    counter %= WORD
    bits = (counter ^ counter >> 30) * 0xBF58476D1CE4E5B9 % WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % WORD
    return bits ^ bits >> 31


class Game:
    """Envs on the bare kernel, without their Gymnasium face."""

    def __init__(self, num_envs: int = 1, seed: int = 0, turbo: bool = True, **options: Any) -> None:
        scenario = Scenario(**options)
        self.num_envs = num_envs
        self.encoding = encoding_of(scenario)
        self.settings = scenario.settings()
        self.state = new_state(num_envs, seed)
        self.packed = np.full((num_envs, *self.encoding.shape), -1, np.int64)
        self.rewards = np.zeros(num_envs)
        self.ended = np.zeros(num_envs, np.bool_)
        self.final_packed = np.zeros_like(self.packed)
        self.final_lost = np.zeros(num_envs, np.int32)
        self._step: Callable[..., None] = at_speed(kernel.step, turbo)
        at_speed(kernel.reset, turbo)(self.state, 0, num_envs, self.settings, self.packed)

    def step(self, actions: Any, slices: list[tuple[int, int]] | None = None) -> None:
        actions = np.broadcast_to(np.asarray(actions, np.int64), self.num_envs).copy()
        for first, last in slices or [(0, self.num_envs)]:
            self._step(
                self.state, first, last, actions, self.settings,
                self.packed, self.rewards, self.ended, self.final_packed, self.final_lost,
            )  # fmt: skip

    @property
    def obs(self) -> np.ndarray:
        """What Blue sees: after the last step of an episode its last observation, not that of the new one."""
        return self.encoding.decode(np.where(self.ended[:, None], self.final_packed, self.packed))

    def everything(self, env: int | slice = slice(None)) -> tuple[bytes, ...]:
        """All the memory of an env, to the last bit."""
        arrays = (self.state, self.packed, self.rewards, self.ended, self.final_packed, self.final_lost)
        return tuple(np.ascontiguousarray(array[env]).tobytes() for array in arrays)


def play(game: Game, script: np.ndarray) -> list[tuple[bytes, ...]]:
    """Everything there is after each step of a script of actions [T, N]."""
    record = []
    for actions in script:
        game.step(actions)
        record.append(game.everything())
    return record


def random_script(num_steps: int, num_envs: int, num_actions: int = NUM_ACTIONS) -> np.ndarray:
    """Actions [T, N]. Blue sleeps half of the time: otherwise Red hardly gets anywhere."""
    generator = np.random.default_rng(1)
    actions = generator.integers(num_actions, size=(num_steps, num_envs))
    return np.where(generator.random((num_steps, num_envs)) < 0.5, actions, 0)


def bits_of(mask: int, count: int = NUM_HOSTS) -> list[int]:
    return [int(mask) >> bit & 1 for bit in range(count)]


# Recordings of the original


@cache
def recording(rules: str) -> Arrays:
    return load_traces(DATA / f"cage2_{rules}.npz")


def excerpt(rules: str, every: int) -> Arrays:
    """A copy of every so-many-th episode."""
    return {name: array[::every].copy() if array.ndim else array for name, array in recording(rules).items()}


def save(path: Path, traces: Arrays) -> Path:
    np.savez(path, **traces)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(("rules", "num_steps"), [("final", 49_310), ("leaderboard", 24_130)])
def test_every_recorded_step_comes_out_as_recorded(rules, num_steps):
    verdict = replay(recording(rules))
    assert (verdict.rules, verdict.steps, verdict.mismatches, verdict.first) == (rules, num_steps, 0, None)


@pytest.mark.parametrize(("rules", "every"), [("final", 19), ("leaderboard", 8)])
def test_recorded_steps_come_out_as_recorded_without_the_compiler(rules, every):
    verdict = replay(excerpt(rules, every), turbo=False)
    assert verdict.episodes > 39
    assert verdict.first is None


def test_a_recording_does_not_fit_the_other_rules():
    first = replay(recording("leaderboard"), rules="final").first
    assert first is not None
    assert (first.what, first.place) == ("red_ports", "Op_Server0")  # a rescan forgot the port of a decoy now gone


TAMPERED = {  # array: column, what the mismatch calls it, where it says it is
    "obs": (4 * 9 + 3, "obs C0", "User1"),
    "reward": (None, "reward", ""),
    "access": (7, "access", "Op_Server0"),
    "blue_success": (None, "blue_success", ""),
    "malware": (12, "malware", "User4"),
    "decoys": (1, "decoys", "Enterprise0"),
    "red_ports": (11, "red_ports", "User3"),
    "red_masks": (2, "red_masks", "column 2"),
    "ot": (0, "ot", "column 0"),
    "agent": (3, "agent", "column 3"),
    "smtp_dead": (11, "smtp_dead", "User3"),
    "obs_cw2": (0, "obs_cw2 A1", "Defender"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_single_wrong_value_is_found_and_named(name):
    column, what, place = TAMPERED[name]
    traces = excerpt("leaderboard", 20)
    place_in_array = (7, 23) if column is None else (7, 23, column)
    right = traces[name][place_in_array].item()
    wrong = 1 if right == 0 else 0
    traces[name][place_in_array] = wrong

    verdict = replay(traces)

    assert verdict.mismatches == 1
    assert verdict.by_array == {name: 1}
    assert verdict.first is not None
    first = verdict.first
    assert (first.episode, first.step, first.what, first.place) == (7, 23, what, place)
    assert (first.expected, first.got) == (wrong, right)


def test_a_wrong_result_of_red_is_found_and_named():
    traces = excerpt("final", 20)
    traces["red"][4, 11, 2] = 3 - traces["red"][4, 11, 2]
    first = replay(traces).first
    assert first is not None
    assert (first.episode, first.step, first.what) == (4, 11, "red success")


def test_a_host_that_red_could_not_have_chosen_is_found():
    traces = excerpt("final", 20)
    episode = np.flatnonzero(traces["red_agent"] == MEANDER)[2]
    traces["red"][episode, 3, 1] = HOST_ID["Op_Server0"]  # step 3 scans a User host; Red has heard of no other
    verdict = replay(traces)
    assert verdict.by_array["choice"] > 0
    assert verdict.first is not None
    assert (verdict.first.episode, verdict.first.step) == (episode, 3)


def test_a_choice_among_exploits_that_was_not_on_offer_is_found():
    traces = excerpt("final", 20)
    episode, step = np.argwhere(traces["red"][:, :, 4] >= 0)[5]
    traces["red"][episode, step, 4] = 7
    verdict = replay(traces)
    assert verdict.by_array["choice"] == 1
    assert verdict.first is not None
    assert (verdict.first.episode, verdict.first.step) == (episode, step)


@pytest.mark.parametrize("host", [HOST_ID["Op_Host0"], 99, -5])
def test_a_host_that_green_could_not_have_chosen_is_found(host):
    traces = excerpt("final", 20)
    episode, step = np.argwhere(traces["green"][:, :, 0] == 1)[5]
    traces["green"][episode, step, 1] = host
    verdict = replay(traces)
    assert verdict.by_array["choice"] == 1
    assert verdict.first is not None
    assert (verdict.first.episode, verdict.first.step) == (episode, step)


def test_the_first_mismatch_is_the_earliest_of_the_first_episode_that_has_one():
    traces = excerpt("final", 20)
    asleep, awake = np.flatnonzero(traces["green_agent"] == 0), np.flatnonzero(traces["green_agent"] == 1)
    episode = awake[0]  # played after all those in which Green sleeps
    for wrong in (asleep[asleep > episode][0], episode):
        traces["reward"][wrong, 10:12] += 1
    traces["reward"][episode, 9] += 1
    verdict = replay(traces)
    assert verdict.mismatches == 5
    assert verdict.first is not None
    assert (verdict.first.episode, verdict.first.step) == (episode, 9)


@pytest.mark.parametrize("green", [0, 1])
def test_a_recording_may_have_one_green_agent_in_all_its_episodes(green):
    traces = recording("final")
    chosen = np.flatnonzero(traces["green_agent"] == green)[:20]
    alike = {name: array[chosen] if array.ndim else array for name, array in traces.items()}
    verdict = replay(alike)
    assert (verdict.episodes, verdict.mismatches) == (20, 0)
    alike["reward"] = alike["reward"] - 1
    assert replay(alike).first is not None


def test_a_mismatch_reads_as_one_line():
    mismatch = Mismatch(3, 14, "access", "User1", 2, 0, "Restore User1")
    assert str(mismatch) == "episode 3, step 14 (Blue: Restore User1): access of User1: expected 2, got 0"


def without_rewards(traces: Arrays) -> None:
    del traces["reward"]


def with_short_observations(traces: Arrays) -> None:
    traces["obs"] = traces["obs"][:, :, :51]


def with_action_145(traces: Arrays) -> None:
    traces["blue_action"][0, 0] = NUM_ACTIONS


def with_a_long_episode(traces: Arrays) -> None:
    traces["length"][0] = 101


def with_unknown_rules(traces: Arrays) -> None:
    traces["rules"] = np.array("house")


def with_an_unknown_red_agent(traces: Arrays) -> None:
    traces["red_agent"][0] = 3


def with_an_unknown_green_agent(traces: Arrays) -> None:
    traces["green_agent"][0] = 2


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (without_rewards, "lacks reward"),
        (with_short_observations, "obs has shape"),
        (with_action_145, "must be 0 to 144"),
        (with_a_long_episode, "claims 101 steps"),
        (with_unknown_rules, "'house'"),
        (with_an_unknown_red_agent, "red_agent must be"),
        (with_an_unknown_green_agent, "green_agent must be"),
    ],
)
def test_a_recording_that_cannot_be_replayed_is_refused(tmp_path, damage, complaint):
    traces = excerpt("final", 100)
    damage(traces)
    with pytest.raises(RedlineError, match=complaint):
        load_traces(save(tmp_path / "traces.npz", traces))


@pytest.mark.parametrize("keep", [0, 100, 100_000])
def test_a_recording_that_is_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / "traces.npz"
    path.write_bytes((DATA / "cage2_final.npz").read_bytes()[:keep])
    with pytest.raises(RedlineError, match="cut short"):
        load_traces(path)


def test_a_recording_with_a_flipped_byte_is_refused(tmp_path):
    path = tmp_path / "traces.npz"
    data = (DATA / "cage2_final.npz").read_bytes()
    for place in range(1_000, len(data), 20_000):  # decompression fails in many ways
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        with pytest.raises(RedlineError):
            load_traces(path)


# The slow, obvious twin


class Play(NamedTuple):
    seed: int
    red: int
    green: int
    rules: str
    wrapper: str
    max_steps: int
    actions: list[int]


ON_THE_WAY = [HOST_ID[name] for name in ("Enterprise0", "Enterprise1", "Enterprise2", "Op_Server0", "User3", "User4")]
any_action = st.integers(0, NUM_ACTIONS - 1)
sleep = st.just(0)
meddling = st.builds(
    lambda block, host: block + host,
    st.sampled_from([ANALYSE, REMOVE, RESTORE, *range(DECOY, RESTORE, NUM_HOSTS)]),
    st.sampled_from(ON_THE_WAY),
)
"""Actions where Red passes through, on hosts with rules of their own."""
LEAVE_ENTERPRISE, LEAVE_SERVER = -1, -2
"""Restore the first Enterprise host (or Op_Server0) that Red holds: it loses the way to Operational (or looks around)."""
close_the_door, defend_the_server = st.just(LEAVE_ENTERPRISE), st.just(LEAVE_SERVER)
defenders = st.sampled_from(
    [
        any_action,
        sleep | any_action,
        sleep | sleep | meddling,
        meddling | any_action,
        sleep | close_the_door,
        sleep | sleep | sleep | close_the_door,
        sleep | sleep | meddling | close_the_door,
        sleep | defend_the_server,
    ]
)
plays = st.builds(
    Play,
    seed=st.integers(0, WORD - 1),
    red=st.sampled_from([B_LINE, B_LINE, MEANDER, MEANDER, RED_SLEEP]),
    green=st.integers(0, 1),
    rules=st.sampled_from(RULES),
    wrapper=st.sampled_from(WRAPPERS),
    max_steps=st.sampled_from([25, 60, 100]),
    actions=defenders.flatmap(lambda action: st.lists(action, min_size=30, max_size=100)),
)


def facts(state: np.recarray) -> dict[str, Any]:
    """The state of the first env, in the oracle's words."""
    env = SimpleNamespace(**dict(zip(state.dtype.names or (), state[0].item(), strict=True)))
    held = [
        2 if root else int(user) for root, user in zip(bits_of(env.root), bits_of(env.seen | env.unseen), strict=True)
    ]
    minds = {
        B_LINE: [env.stage, env.issued, env.target, 0, 0, 0],
        MEANDER: [env.scanned, env.exploited, env.escalated, env.mapped, env.swept, -1],
        RED_SLEEP: [0] * 6,
    }
    red = [env.red_kind, env.red_target, env.red_success, env.red_exploit, env.red_other, env.red_top]
    scanned = sum(1 << host for host in range(NUM_HOSTS) if env.ports[host])
    return {
        "access": held,
        "removable": bits_of(env.seen & ~env.root),
        "blue_success": env.blue_success,
        "red": [*red, env.red_outcome, env.red_detected, env.red_escalation],
        "malware": bits_of(env.malware),
        "decoys": env.decoys.tolist(),
        "red_ports": env.ports.tolist(),
        "red_masks": [scanned, env.known_hosts, env.known_names, env.known_subnets],
        "ot": [env.ot, env.knows_ot],
        "agent": minds[env.red_agent],
        "smtp_dead": bits_of(env.dead_mail),
    }


def facts_of_twin(oracle: Oracle) -> dict[str, Any]:
    removable = [any(s.removable for s in host.sessions) and not host.is_privileged() for host in oracle.hosts]
    return {name: getattr(oracle, name) for name in COMPARED} | {"removable": removable}


def to_evict_red(oracle: Oracle, wish: int) -> int:
    hosts = ENTERPRISE_HOSTS if wish == LEAVE_ENTERPRISE else [HOST_ID["Op_Server0"]]
    return next((RESTORE + host for host in hosts if oracle.hosts[host].sessions), 0)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(plays)
def test_compiled_interpreted_and_twin_agree_on_the_whole_state_at_every_step(a_play):
    seed, red, green, rules, wrapper, max_steps, actions = a_play
    options = {
        "red_agent": RED_AGENTS[red],
        "green_agent": GREEN_AGENTS[green],
        "rules": rules,
        "wrapper": wrapper,
        "max_steps": max_steps,
    }
    compiled, slow = (Game(seed=seed, turbo=turbo, **options) for turbo in (True, False))
    stream = Stream.seeded(seed)
    oracle = Oracle(red, green, rules, wrapper, choices=Drawn(stream.uniform))
    for t, action in enumerate(actions):
        action = action if action >= 0 else to_evict_red(oracle, action)
        compiled.step(action)
        slow.step(action)
        obs, tenths = oracle.step(action)
        ended = (t + 1) % max_steps == 0
        if ended:
            oracle.reset()
        assert compiled.everything() == slow.everything()
        assert compiled.obs[0].tolist() == obs
        assert compiled.rewards[0] == tenths / 10
        assert compiled.ended[0] == ended
        assert facts(compiled.state) == facts_of_twin(oracle)
        assert compiled.state.rng[0] == stream.counter  # no draw more, no draw less


def test_the_twin_itself_replays_the_original():
    for rules, wrapper in (("final", "official"), ("leaderboard", "official"), ("leaderboard", "cw2")):
        for episode in range(0, 300, 25):
            assert replay_by_twin(recording(rules), episode, wrapper) == []


# Envs share nothing


MIXED = {
    "red_agent": "B_lineAgent,RedMeanderAgent,SleepAgent",
    "green_agent": "GreenAgent",
    "rules": "leaderboard",
    "max_steps": 20,
}


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_an_env_does_not_notice_its_neighbours(observation):
    script = random_script(70, 64)
    crowd = Game(num_envs=64, seed=100, observation=observation, **MIXED)
    alone = Game(num_envs=1, seed=117, observation=observation, **MIXED)
    for actions in script:
        crowd.step(actions)
        alone.step(actions[17])
        assert crowd.everything(slice(17, 18)) == alone.everything()


def test_slices_may_be_stepped_in_any_order():
    script = random_script(70, 10)
    whole, sliced = Game(num_envs=10, **MIXED), Game(num_envs=10, **MIXED)
    for actions in script:
        whole.step(actions)
        sliced.step(actions, slices=[(7, 10), (0, 3), (3, 3), (3, 7)])
        assert whole.everything() == sliced.everything()


def test_a_slice_leaves_the_other_envs_alone():
    game = Game(num_envs=4)
    before = game.everything(slice(0, 2)), game.everything(3)
    game.step(5, slices=[(2, 3)])
    assert (game.everything(slice(0, 2)), game.everything(3)) == before
    assert game.state.clock.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_turbo_on_and_off_leave_the_same_bits(observation):
    script = random_script(65, 6)
    fast = play(Game(num_envs=6, observation=observation, **MIXED), script)
    slow = play(Game(num_envs=6, observation=observation, turbo=False, **MIXED), script)
    assert fast == slow


# Statistics of the specification, section 9: mean and standard error of the reference at 30, 50 and 100 steps

EXPECTED = {
    ("final", "SleepAgent", "B_lineAgent", "sleep"): [(-217.45, 0.64), (-479.43, 0.65), (-1134.43, 0.65)],
    ("final", "SleepAgent", "B_lineAgent", "random"): [(-154.16, 2.53), (-339.68, 5.10), (-763.15, 11.15)],
    ("final", "SleepAgent", "B_lineAgent", "react"): [(-14.97, 0.09), (-27.46, 0.26), (-63.80, 0.91)],
    ("final", "SleepAgent", "RedMeanderAgent", "sleep"): [(-41.29, 0.70), (-271.27, 2.25), (-974.93, 2.18)],
    ("final", "SleepAgent", "RedMeanderAgent", "random"): [(-33.12, 0.46), (-164.12, 2.87), (-573.15, 9.08)],
    ("final", "SleepAgent", "RedMeanderAgent", "react"): [(-12.38, 0.03), (-23.90, 0.08), (-57.24, 0.30)],
    ("final", "SleepAgent", "SleepAgent", "random"): [(-2.84, 0.10), (-4.72, 0.12), (-9.21, 0.18)],
    ("final", "GreenAgent", "B_lineAgent", "sleep"): [(-218.16, 0.61), (-480.16, 0.61), (-1135.16, 0.61)],
    ("final", "GreenAgent", "B_lineAgent", "random"): [(-153.58, 2.47), (-336.10, 5.05), (-737.53, 11.22)],
    ("final", "GreenAgent", "B_lineAgent", "react"): [(-15.81, 0.16), (-32.40, 0.47), (-87.30, 1.60)],
    ("final", "GreenAgent", "RedMeanderAgent", "sleep"): [(-39.06, 0.62), (-265.89, 2.26), (-969.17, 2.28)],
    ("final", "GreenAgent", "RedMeanderAgent", "random"): [(-33.85, 0.49), (-168.12, 2.90), (-571.92, 9.02)],
    ("final", "GreenAgent", "RedMeanderAgent", "react"): [(-12.24, 0.05), (-25.89, 0.17), (-72.04, 0.57)],
    ("leaderboard", "SleepAgent", "B_lineAgent", "sleep"): [(-218.01, 0.60), (-480.01, 0.60), (-1135.01, 0.60)],
    ("leaderboard", "SleepAgent", "B_lineAgent", "random"): [(-158.24, 2.45), (-346.10, 4.96), (-743.98, 11.14)],
    ("leaderboard", "SleepAgent", "B_lineAgent", "react"): [(-10.88, 0.17), (-20.39, 0.37), (-51.29, 1.13)],
    ("leaderboard", "SleepAgent", "RedMeanderAgent", "sleep"): [(-39.85, 0.64), (-266.91, 2.21), (-970.03, 2.12)],
    ("leaderboard", "SleepAgent", "RedMeanderAgent", "random"): [(-33.19, 0.45), (-162.42, 2.85), (-573.50, 8.99)],
    ("leaderboard", "SleepAgent", "RedMeanderAgent", "react"): [(-10.73, 0.05), (-20.24, 0.13), (-48.52, 0.40)],
}
NUM_EPISODES = 2_000


def react_restore(obs: np.ndarray) -> np.ndarray:
    """Restore the first host that the table calls compromised."""
    compromised = obs.reshape(-1, NUM_HOSTS, 4)[:, :, 2:].any(axis=2)
    return np.where(compromised.any(axis=1), RESTORE + compromised.argmax(axis=1), 0)


@pytest.mark.parametrize("case", EXPECTED, ids="-".join)
def test_simple_defenders_score_as_they_did_in_the_original(case):
    rules, green, red, blue = case
    game = Game(NUM_EPISODES, seed=2026, max_steps=0, rules=rules, green_agent=green, red_agent=red)
    generator = np.random.default_rng(2026)
    returns = np.zeros((101, NUM_EPISODES))
    for t in range(100):
        if blue == "random":
            game.step(generator.integers(NUM_ACTIONS, size=NUM_EPISODES))
        else:
            game.step(react_restore(game.obs) if blue == "react" else 0)
        returns[t + 1] = returns[t] + game.rewards
    for num_steps, (mean, error) in zip((30, 50, 100), EXPECTED[case], strict=True):
        ours, our_error = returns[num_steps].mean(), returns[num_steps].std() / NUM_EPISODES**0.5
        assert abs(ours - mean) < 4 * np.hypot(error, our_error)


# Red agents drawn from a mixture


@pytest.mark.parametrize("red_agent", RED_AGENTS)
def test_a_single_red_agent_needs_no_draw(red_agent):
    game = Game(num_envs=50, seed=3, red_agent=red_agent)
    assert (game.state.rng == seed_streams(3, 50)).all()
    assert (game.state.red_agent == RED_AGENTS.index(red_agent)).all()


def test_every_episode_draws_its_red_agent_from_the_envs_own_stream():
    game = Game(num_envs=20, seed=7, red_agent="B_lineAgent,SleepAgent,B_lineAgent,RedMeanderAgent", max_steps=1)
    streams = [Stream.seeded(7 + i) for i in range(20)]

    def drawn(draw: float) -> int:
        return B_LINE if draw < 0.5 else MEANDER if draw < 0.75 else RED_SLEEP

    for _ in range(30):  # the first action of every agent needs no draw, so these are the only ones
        assert game.state.red_agent.tolist() == [drawn(stream.uniform()) for stream in streams]
        game.step(0)


@pytest.mark.parametrize(
    ("red_agent", "shares"),
    [
        ("B_lineAgent,RedMeanderAgent", (0.5, 0.5, 0.0)),
        ("RedMeanderAgent, SleepAgent", (0.0, 0.5, 0.5)),
        ("B_lineAgent,SleepAgent", (0.5, 0.0, 0.5)),
        ("B_lineAgent,B_lineAgent,RedMeanderAgent,SleepAgent", (0.5, 0.25, 0.25)),
    ],
)
def test_a_mixture_has_the_shares_it_names(red_agent, shares):
    game = Game(num_envs=1_000, red_agent=red_agent, max_steps=1)
    seen: Counter[int] = Counter()
    for _ in range(40):
        seen.update(game.state.red_agent.tolist())
        game.step(0)
    num_episodes = seen.total()
    for agent, share in enumerate(shares):
        assert abs(seen[agent] - share * num_episodes) <= 4 * (share * (1 - share) * num_episodes) ** 0.5


# The reduced action set


def expanded(game: Game, reduced: int) -> int:
    """The full action that a reduced one stands for in the first env."""
    actions = np.full(1, -1)
    kernel.expand_actions(game.state, 0, 1, np.array([reduced]), actions)
    return int(actions[0])


def test_reduced_actions_without_a_decoy_are_plain_actions():
    game = Game()
    assert [expanded(game, action) for action in range(28)] == list(range(28))  # Sleep, Monitor, Analyse, Remove
    assert [expanded(game, 28 + host) for host in range(NUM_HOSTS)] == [RESTORE + host for host in range(NUM_HOSTS)]


LINUX_SERVER, WINDOWS_USER = ("HarakaSMPT", "Tomcat", "Apache", "Vsftpd"), ("Tomcat", "Apache", "Smss", "Svchost")
NEXT_DECOYS = {  # what the host takes when clean, best first: the order in which Red likes the exploits they defeat
    **dict.fromkeys(["Defender", "Enterprise0", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0"], LINUX_SERVER),
    **dict.fromkeys(["Enterprise1", "Enterprise2"], ("Femitter",)),
    **dict.fromkeys(["User0", "User1"], WINDOWS_USER),
    "User2": ("Femitter", "Tomcat", "Apache", "SSHD"),
    "User3": ("Vsftpd", "SSHD"),
    "User4": ("Vsftpd",),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_reduced_decoy_action_deploys_the_next_best_decoy_and_then_sleeps(host):
    game = Game(red_agent="SleepAgent")
    deploy = NUM_REDUCED_ACTIONS - NUM_HOSTS + HOST_ID[host]
    for _ in range(2):  # a restored host begins anew
        for decoy in NEXT_DECOYS[host]:
            action = expanded(game, deploy)
            assert action == DECOY + NUM_HOSTS * DECOYS.index(decoy) + HOST_ID[host]
            game.step(action)
            assert game.state.blue_success[0] == 1
        assert expanded(game, deploy) == 0
        game.step(RESTORE + HOST_ID[host])


def test_reduced_actions_expand_alike_at_both_speeds():
    game = Game(num_envs=200, red_agent="RedMeanderAgent")
    for actions in random_script(40, 200):
        game.step(actions)
    reduced = np.arange(200) % NUM_REDUCED_ACTIONS
    fast, slow = np.zeros(200, np.int64), np.zeros(200, np.int64)
    kernel.expand_actions(game.state, 0, 200, reduced, fast)
    interpreted(kernel.expand_actions)(game.state, 0, 200, reduced, slow)
    assert (fast == slow).all()


# Other observations, recomputed from plain tables

WATCHED = [host for host, name in enumerate(HOSTS) if not name.startswith("Op_Host")]


class Watch(NamedTuple):
    """The same episodes seen as plain tables and in another way, time first."""

    tables: np.ndarray  # [T, N, 52]
    other: np.ndarray  # [T, N, ...]
    decoys: np.ndarray  # [T, N, 13]


def watch(script: np.ndarray, observation: str, max_steps: int, **options: Any) -> Watch:
    num_envs = script.shape[1]
    options |= {"num_envs": num_envs, "seed": 5, "red_agent": "RedMeanderAgent", "green_agent": "GreenAgent"}
    plain = Game(max_steps=max_steps, **options)
    other = Game(max_steps=max_steps, observation=observation, **options)
    endless = Game(max_steps=0, **options)  # keeps the decoys of an episode's last step, which the others clear
    rows = []
    for actions in script:
        endless.state[:] = plain.state
        for game in (plain, other, endless):
            game.step(actions)
        rows.append((plain.obs, other.obs, endless.state.decoys.copy()))
    return Watch(*(np.stack(column) for column in zip(*rows, strict=True)))


def shows_scan(table: np.ndarray, host: int) -> bool:
    return bool(table[4 * host] == 1 and table[4 * host + 1] == 0)


def test_scan_memory_knows_who_was_scanned_and_who_was_scanned_last():
    num_steps, num_envs, max_steps = 160, 40, 75
    script = np.zeros((num_steps, num_envs), np.int64)
    script[::5] = RESTORE + HOST_ID["Op_Server0"]  # Meander then looks around the Operational subnet
    seen = watch(script, "table+scan", max_steps)
    assert (seen.other[:, :, :52] == seen.tables).all()
    happened: Counter[str] = Counter()
    for i in range(num_envs):
        memory: dict[int, int] = {}
        for t in range(num_steps):
            if t % max_steps == 0:
                memory = dict.fromkeys(WATCHED, 0)
            scans = [host for host in range(NUM_HOSTS) if shows_scan(seen.tables[t, i], host)]
            noticed = [host for host in scans if host in WATCHED]
            if noticed:
                memory = {host: min(value, 1) for host, value in memory.items()} | {noticed[0]: 2}
            assert seen.other[t, i, 52:].tolist() == list(memory.values())
            happened.update(two=len(noticed) > 1, unwatched=len(scans) > len(noticed))
    assert happened["two"] > 100  # otherwise nothing was shown about them
    assert happened["unwatched"] > 100


def test_scan_memory_starts_empty_in_a_new_episode():
    game = Game(observation="table+scan", max_steps=5)
    for _ in range(5):
        game.step(0)
    assert game.obs[0, 52:].any()  # B_line scans a User host in the second step
    assert not game.packed.any()


def test_a_scan_hidden_behind_an_earlier_host_in_the_same_step_is_not_remembered():
    game = Game(observation="table+scan")
    game.state.activity[0] = 0b01 << 4 * HOST_ID["User1"] | 0b01 << 4 * HOST_ID["User4"]
    observe(game.state[0], game.settings, game.packed, 0)
    scanned = dict(zip(game.encoding.names[52:], game.encoding.decode(game.packed)[0, 52:].tolist(), strict=True))
    assert [name for name, value in scanned.items() if value] == ["User1.scanned"]
    assert scanned["User1.scanned"] == 2


@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_history_holds_the_last_tables_newest_first_then_decoys_and_the_last_action(length):
    num_steps, num_envs, max_steps = 45, 12, 20
    script = random_script(num_steps, num_envs)
    seen = watch(script, "history", max_steps, history=length)
    for i in range(num_envs):
        for t in range(num_steps):
            age = t % max_steps  # steps of this episode before this one
            tables = [seen.tables[t - k, i] if k <= age else np.zeros(52, np.int8) for k in range(length)]
            decoys = [bits_of(mask, len(DECOYS)) for mask in seen.decoys[t, i]]
            expected = np.concatenate([*tables, *decoys, last_action(int(script[t, i]))])
            assert (seen.other[t, i] == expected).all()


def last_action(action: int) -> list[int]:
    """One of 13 kinds and, for all but Sleep and Monitor, one of 13 hosts."""
    kind, host = (action, None) if action < 2 else (2 + (action - 2) // NUM_HOSTS, (action - 2) % NUM_HOSTS)
    return [int(k == kind) for k in range(13)] + [int(h == host) for h in range(NUM_HOSTS)]


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_an_encoding_names_every_value_once_and_a_fresh_episode_shows_zeros(observation):
    game = Game(observation=observation)
    assert len(set(game.encoding.names)) == game.encoding.size == game.obs.shape[1]
    assert not game.obs.any()


# Random streams


def test_bits_are_those_of_the_published_splitmix64():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # from seed 1234567
    stream = Stream(1234567)
    assert [stream.bits() for _ in published] == published
    counters = [np.uint64((1234567 + (k + 1) * GOLDEN) % WORD) for k in range(len(published))]
    assert [int(rng.scramble(counter)) for counter in counters] == published


@given(st.integers(0, WORD - 1))
def test_an_env_draws_the_same_numbers_at_both_speeds_and_in_plain_python(seed):
    state = new_state(2, seed=0)
    state.rng = seed
    stream = Stream(seed)
    expected = [stream.uniform() for _ in range(3)]
    assert [rng.uniform(state[0]) for _ in range(3)] == expected
    assert [interpreted(rng.uniform)(state[1]) for _ in range(3)] == expected
    assert state.rng.tolist() == [stream.counter] * 2
    assert all(0 <= draw < 1 for draw in expected)


@given(seed=st.integers(-(1 << 70), 1 << 70), num_envs=st.integers(1, 50))
def test_env_i_of_a_seed_starts_where_env_0_of_seed_plus_i_does(seed, num_envs):
    streams = seed_streams(seed, num_envs)
    assert streams.dtype == np.uint64
    assert streams.tolist() == [int(seed_streams(seed + i, 1)[0]) for i in range(num_envs)]
    assert streams.tolist() == [Stream.seeded(seed + i).counter for i in range(num_envs)]


def test_neighbouring_seeds_start_far_apart():
    counters = np.sort(seed_streams(0, 100_000))
    assert np.diff(counters).min() > 0
