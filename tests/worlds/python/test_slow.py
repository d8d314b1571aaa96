import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from redline.errors import RedlineError
from redline.worlds.python import slow
from redline.worlds.python.slow import Slow, SlowEnv, step_seconds

GRID = (np.arange(100_000) + 0.5) / 100_000  # draws as even as draws can be
QUICK = Slow(mean_ms=0.001, max_steps=0)


class FakeClock:
    """Time that passes only when somebody looks at it or sleeps."""

    def __init__(self, tick):
        self.now, self.tick, self.slept = 0.0, tick, []

    def read(self):
        self.now += self.tick
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock(tick=1e-6)
    monkeypatch.setattr(slow, "perf_counter", clock.read)
    monkeypatch.setattr(slow, "sleep", clock.sleep)
    return clock


def play(env, actions, seed=3):
    obs, _ = env.reset(seed=seed)
    return [obs.tolist(), *((obs.tolist(), *rest) for obs, *rest in map(env.step, actions))]


@pytest.mark.filterwarnings("ignore:.*env.spec.*")  # which only envs made by gym.make have
def test_an_env_keeps_gymnasiums_promises():
    check_env(SlowEnv(QUICK), skip_render_check=True)


def test_the_observation_shows_which_action_is_right():
    env = SlowEnv(QUICK)
    obs, _ = env.reset(seed=0)
    for _ in range(50):
        right = int(np.argmax(obs[:4]) * -1 % 4)  # the saw tooth is highest where it begins anew
        obs, reward, *_ = env.step(right)
        assert reward == 1.0


def test_a_wrong_action_is_not_rewarded():
    rewards = [play(SlowEnv(QUICK), [action])[1][1] for action in range(4)]
    assert sorted(rewards) == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(("num_actions", "size"), [(2, 1), (4, 8), (7, 3), (145, 52)])
def test_every_right_action_looks_different(num_actions, size):
    pictures = slow._pictures(Slow(num_actions=num_actions, size=size))
    assert pictures.shape == (num_actions, size) and len(np.unique(pictures, axis=0)) == num_actions
    assert pictures.min() >= -1 and pictures.max() <= 1


def test_equal_seeds_and_actions_play_equal_episodes():
    actions = [0, 1, 2, 3] * 600  # more than one block of draws
    assert play(SlowEnv(QUICK), actions) == play(SlowEnv(QUICK), actions)
    assert play(SlowEnv(QUICK), actions) != play(SlowEnv(QUICK), actions, seed=4)


def test_a_seed_begins_the_same_episode_whatever_was_played_before():
    env = SlowEnv(QUICK)
    first = play(env, [0] * 20)
    play(env, [1] * 7, seed=99)
    assert play(env, [0] * 20) == first


def test_without_a_seed_the_next_episode_is_another_one():
    env = SlowEnv(QUICK, size=1, num_actions=1000)
    assert env.reset(seed=1)[0] != env.reset()[0]


@pytest.mark.usefixtures("clock")
def test_what_steps_cost_does_not_change_what_happens():
    actions = [0, 3, 1] * 400
    cheap, dear = SlowEnv(mean_ms=0.001), SlowEnv(mean_ms=0.02, max_ms=1.0, reset_ms=2.0)
    assert play(cheap, actions) == play(dear, actions)


def test_equal_seeds_cost_the_same():
    envs = [SlowEnv(QUICK, max_ms=0.002) for _ in range(2)]
    for env in envs:
        env.reset(seed=5)
    assert [envs[0]._next_seconds() for _ in range(1500)] == [envs[1]._next_seconds() for _ in range(1500)]


def test_an_episode_is_truncated_and_never_terminated():
    ends = [step[2:4] for step in play(SlowEnv(QUICK, max_steps=3), [0] * 3)[1:]]
    assert ends == [(False, False), (False, False), (False, True)]


def test_an_answer_is_not_overwritten_by_the_next_one():
    env = SlowEnv(QUICK)
    answers = [env.reset(seed=0)[0]] + [env.step(0)[0] for _ in range(20)]
    before = [obs.copy() for obs in answers]
    answers[0][:] = 9.0
    env.reset(seed=0)
    assert all((obs == old).all() for obs, old in zip(answers[1:], before[1:], strict=True))
    assert (env.reset(seed=0)[0] == before[0]).all()


def test_by_default_every_step_costs_the_mean():
    assert set(step_seconds(Slow(mean_ms=4.0), GRID)) == {0.004}


@pytest.mark.parametrize(("mean_ms", "max_ms"), [(2.5, 2.5), (2.5, 5.0), (2.5, 50.0), (0.02, 0.4), (1.0, 100.0)])
def test_costs_have_the_mean_and_the_maximum_asked_for(mean_ms, max_ms):
    options = Slow(mean_ms=mean_ms, max_ms=max_ms)
    assert step_seconds(options, GRID).mean() * 1e3 == pytest.approx(mean_ms, rel=1e-4)
    assert step_seconds(options, np.array([1.0]))[0] * 1e3 == pytest.approx(max_ms)
    assert step_seconds(options, GRID).min() > 0


def test_most_steps_are_cheap_and_few_cost_nearly_all():
    costs = step_seconds(Slow(mean_ms=1.0, max_ms=20.0), GRID) * 1e3
    assert np.median(costs) < 0.11
    assert 0.02 < (costs > 10.0).mean() < 0.04


def test_a_step_keeps_the_core_busy_until_its_cost_is_spent(clock):
    env = SlowEnv(mean_ms=2.5)
    env.reset(seed=0)
    began = clock.now
    env.step(0)
    assert clock.now - began == pytest.approx(0.0025, abs=3e-6) and not clock.slept


def test_a_waiting_step_sleeps_for_what_is_left_of_its_cost(clock):
    env = SlowEnv(mean_ms=2.5, wait=True)
    env.reset(seed=0)
    clock.slept.clear()
    env.step(0)
    assert clock.slept == [pytest.approx(0.0025 - clock.tick)]


def test_a_reset_costs_what_was_asked_for(clock):
    env = SlowEnv(reset_ms=7.0)
    env.reset(seed=0)
    assert clock.now == pytest.approx(0.007, abs=3e-6)


@pytest.mark.parametrize(
    ("changes", "given", "works"),
    [
        ({"mean_ms": 0.0}, "cost 0.0 ms", "--mean-ms 2.5"),
        ({"mean_ms": float("nan")}, "nan", "--mean-ms 2.5"),
        ({"mean_ms": 2.5, "max_ms": 1.0}, "at most 1.0 ms", "--max-ms 50"),
        ({"max_ms": -1.0}, "-1.0", "--max-ms 50"),
        ({"max_ms": float("inf")}, "inf", "--max-ms 50"),
        ({"reset_ms": -1.0}, "-1.0", "--reset-ms 0"),
        ({"max_steps": -1}, "-1 steps", "--max-steps 100"),
        ({"size": 0}, "0 values", "--size 8"),
        ({"num_actions": 1}, "1 actions", "--num-actions 4"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_one_that_can(changes, given, works):
    with pytest.raises(RedlineError) as error:
        SlowEnv(**changes)
    assert given in str(error.value) and works in str(error.value) and "\n" not in str(error.value)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(RedlineError, match="Call reset first"):
        SlowEnv(QUICK).step(0)


@pytest.mark.parametrize("action", [-1, 4])
def test_an_action_that_does_not_exist_is_refused(action):
    env = SlowEnv(QUICK)
    env.reset(seed=0)
    with pytest.raises(RedlineError, match=f"0 to 3; got {action}"):
        env.step(action)
