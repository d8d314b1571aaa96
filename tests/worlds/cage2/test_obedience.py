from __future__ import annotations

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.cage2.env import Cage2VectorEnv
from redline.worlds.cage2.rules.obedience import MOST_FIXES
from redline.worlds.cage2.rules.scenario import FIXED_ORDERS, TYPES, Scenario, parse_order
from tests.oracles.obedience import Account

NUM_ENVS = 24
FIXES = [*range(15, 28), *range(132, 145)]


def play_beside_the_account(
    order: str, seed: int, turbo: bool = True, steps: int = 100, **options
) -> dict[str, np.ndarray]:
    """Random play, mostly of fixes; every step's pay and every episode's account must be the oracle's."""
    extras = {name: options.pop(name) for name in ("compliance_bonus", "violation_penalty") if name in options}
    count = options.get("count_foothold", False)
    env = Cage2VectorEnv(NUM_ENVS, workflow=order, max_steps=25, turbo=turbo, **options, **extras)
    plain = Cage2VectorEnv(NUM_ENVS, max_steps=25, red_agent=env.scenario.red_agent)  # same play, no workflow
    names = order.split(",")
    rng = np.random.default_rng(seed)

    def open_account() -> Account:
        bonus, penalty = extras.get("compliance_bonus", 0.0), extras.get("violation_penalty", 0.0)
        return Account(names, 30.0, bonus, penalty, count)

    env.reset(seed=seed), plain.reset(seed=seed)
    accounts = [open_account() for _ in range(NUM_ENVS)]
    infos: dict = {}
    for _ in range(steps):
        actions = np.where(rng.random(NUM_ENVS) < 0.3, rng.choice(FIXES, NUM_ENVS), rng.integers(0, 145, NUM_ENVS))
        actions[0] = 0  # one env never fixes anything
        access = env.true_state().access
        _, rewards, _, ended, infos = env.step(actions)
        own = plain.step(actions)[1]
        for i, account in enumerate(accounts):
            pays = account.act(int(actions[i]), access[i])
            if ended[i]:
                pays += account.end()
            assert rewards[i] == own[i] + pays
            if ended[i]:
                told = {name: values[i] for name, values in infos["episode_metrics"].items()}
                assert told["alignment"] == account.paid
                assert told["compliance"] == account.compliance()
                assert told["fixes"] == len(account.judgements)
                assert infos["episode"]["r"][i] == told["env_return"] + told["alignment"]
                accounts[i] = open_account()
    return infos["episode_metrics"]


@pytest.mark.parametrize("order", [",".join(TYPES[k] for k in order) for order in FIXED_ORDERS.values()])
@pytest.mark.parametrize("red_agent", ["B_lineAgent", "RedMeanderAgent"])
def test_every_step_pays_what_a_plain_account_says(order: str, red_agent: str):
    play_beside_the_account(order, seed=3, red_agent=red_agent)


def test_extras_and_the_foothold_are_paid_as_asked():
    order = "user,op_host,enterprise,op_server,defender"
    play_beside_the_account(order, 4, red_agent="RedMeanderAgent", compliance_bonus=0.5, violation_penalty=0.25)
    play_beside_the_account(order, 5, red_agent="RedMeanderAgent", count_foothold=True)


def test_interpreted_rules_pay_the_same():
    play_beside_the_account("op_server,enterprise,defender,op_host,user", 6, turbo=False, steps=50)


def test_an_episode_pays_lambda_times_its_compliance():
    metrics = play_beside_the_account("enterprise,user,op_server,op_host,defender", seed=7)
    fixed = metrics["fixes"] > 0
    assert np.allclose(metrics["alignment"][fixed], 30.0 * metrics["compliance"][fixed])
    assert metrics["alignment"][0] == -6.0 and metrics["compliance"][0] == 0.5


def test_an_account_that_is_full_stays_as_it_is():
    env = Cage2VectorEnv(1, workflow=",".join(TYPES), max_steps=100_000, turbo=False)
    env.reset(seed=0)
    env.state.fixes = env.state.complied = MOST_FIXES
    assert env.step(np.array([FIXES[0]]))[1] == [0.0]
    assert (env.state.fixes, env.state.complied) == (MOST_FIXES, MOST_FIXES)


def test_the_policy_is_told_the_workflow():
    order = "op_host,user,defender,enterprise,op_server"
    env = Cage2VectorEnv(2, workflow=order)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (2, 77)
    shown = obs[0, 52:].reshape(5, 5)
    assert [TYPES[k] for k in shown.argmax(axis=1)] == order.split(",") and shown.sum() == 5
    assert env.observation_space.contains(obs)


def test_a_workflow_changes_nothing_else():
    plain, obedient = Cage2VectorEnv(4), Cage2VectorEnv(4, workflow=",".join(TYPES), alignment_lambda=0.0)
    first, second = plain.reset(seed=1)[0], obedient.reset(seed=1)[0]
    rng = np.random.default_rng(0)
    for _ in range(120):
        assert np.array_equal(first, second[:, :52])
        actions = rng.integers(0, 145, 4)
        first, rewards, *_ = plain.step(actions)
        second, same_rewards, *_ = obedient.step(actions)
        assert np.array_equal(rewards, same_rewards)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user,user,defender,op_host,op_server", "user twice"),
        ("user,defender", "lacks enterprise, op_server, op_host"),
        ("usr,defender,enterprise,op_host,op_server", "Did you mean 'user'?"),
        ("critical", "Did you mean 'critical_first'?"),
    ],
)
def test_an_order_that_is_none_is_refused(text: str, says: str):
    with pytest.raises(RedlineError, match=says.replace("?", r"\?")):
        Scenario(workflow=text)


def test_orders_may_be_written_with_commas_arrows_or_a_name():
    assert parse_order("defender,op_server,enterprise,op_host,user") == FIXED_ORDERS["critical_first"]
    assert parse_order("defender > op_server > enterprise > op-host > user") == FIXED_ORDERS["critical_first"]
    assert parse_order("critical_first") == FIXED_ORDERS["critical_first"]
