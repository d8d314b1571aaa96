"""PPO for a team: who decides when, what a decision is paid, and that a run goes on as if it had not stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.evaluate import load_policy
from redline.learn.team import TeamTrainer
from redline.learn.team_policy import TeamActor, TeamPolicy
from redline.runs import CHECKPOINTS
from redline.timing.stopwatch import Stopwatch

NUM_ENVS, NUM_STEPS = 3, 9
SMALL = ("--num-envs", "3", "--num-steps", "9", "--minibatches", "1", "--total-steps", "135", "--hidden", "8")


def make(**options) -> TeamTrainer:
    ppo = PPOConfig(minibatches=1, reward_scale=1.0)
    env_options = {"steps": 12, **options}
    return TeamTrainer(TrainConfig("cage4", env_options, 1000, None, NUM_ENVS, NUM_STEPS, hidden=(8,), ppo=ppo))


def test_agents_with_equal_spaces_share_a_policy():
    policy = make().policy
    assert [group.members for group in policy.groups] == [(0, 1, 2, 3), (4,)]
    assert [each.head.num_actions for each in policy.policies] == [82, 242]
    assert [each.encoding.size for each in policy.policies] == [92, 210]


class Ledger:
    """A team's env that writes down who acted and what was paid."""

    def __init__(self, env) -> None:
        self.env, self.acting, self.rewards, self.ended = env, [env.acting.copy()], [], []

    def __getattr__(self, name: str):
        return getattr(self.env, name)

    def step(self, actions: np.ndarray):
        answer = self.env.step(actions)
        self.rewards.append(self.env.shares)
        self.ended.append(answer[3])
        self.acting.append(answer[4]["acting"])
        return answer


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_a_decision_is_paid_the_agents_share_until_its_next_one(gamma):
    trainer = make()
    trainer.team.env = ledger = Ledger(trainer.team.env)
    told = trainer.team.collect(trainer.team_actor, NUM_STEPS, 0, gamma, Stopwatch())
    rewards, ended = np.array(ledger.rewards), np.array(ledger.ended)
    acting = np.array(ledger.acting[:-1])
    for group in told.groups:
        rollout = group.rollout
        for column in range(rollout.rows.shape[1]):
            i, b = column // group.size, group.group.members[column % group.size]
            times = np.flatnonzero(acting[:, i, b])
            expected, lasted = [], []
            for time, following in zip(times, [*times[1:], NUM_STEPS], strict=True):
                over = np.flatnonzero(ended[time:following, i])
                if following < NUM_STEPS or len(over):  # otherwise nobody knows yet what comes of it
                    paid = rewards[time:following, i, b] * gamma ** np.arange(following - time)
                    expected.append((paid.sum(), bool(len(over))))
                    lasted.append(following - time)
            held = rollout.held[:, column]
            found = list(zip(rollout.rewards[held, column], rollout.terminated[held, column], strict=True))
            assert found == expected
            for k in np.flatnonzero(held[:-1] & held[1:] & ~rollout.terminated[:-1, column]):
                discounted = rollout.values[k + 1, column] * gamma ** (lasted[k] - 1)
                assert rollout.next_values[k, column] == np.float32(discounted)
    assert told.num_episodes == ended.sum() > 0 or not ended.any()


def test_who_is_busy_sleeps_and_draws_nothing():
    trainer = make()
    env, actor = trainer.team.env, trainer.team_actor
    actor.begin(1)
    acting = np.zeros((NUM_ENVS, 5), np.bool_)
    acting[1, 2] = acting[2, 4] = True
    before = [each.streams.copy() for each in actor.actors]
    actions, decided = actor.act(trainer.team.obs, trainer.team.infos["action_mask"], acting, env.idle)
    assert (np.where(acting, env.idle, actions) == env.idle).all()
    assert [columns.tolist() for columns, _ in decided] == [[6], [2]]
    drawn = [np.flatnonzero(old != each.streams).tolist() for old, each in zip(before, actor.actors, strict=True)]
    assert drawn == [[6], [2]]


def test_every_agent_is_told_of_and_the_policies_move():
    trainer = make()
    before = trainer.policy.arrays()
    metrics = trainer.update().metrics
    assert {f"blue_agent_{b}.{name}" for b in range(5) for name in ("decisions", "entropy", "kl")} <= metrics.keys()
    assert all(0 < metrics[f"blue_agent_{b}.decisions"] <= 1 for b in range(5))
    after = trainer.policy.arrays()
    assert all((after[name] != array).any() for name, array in before.items() if "weight" in name)


def run(capsys, *arguments: str | Path) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_team_is_trained_resumed_scored_and_reported(tmp_path, capsys):
    folder = tmp_path / "run"
    saving = ("--checkpoint-seconds", "1e-9", "--eval-episodes", "2")
    found = run(capsys, "train", "cage4?steps=12", *SMALL, "--run-dir", folder, *saving)
    assert found["eval_episodes"] == 2 and found["eval_length"] == 10
    shutil.copytree(folder, tmp_path / "copy")
    oldest = min((tmp_path / "copy" / CHECKPOINTS).iterdir())
    run(capsys, "train", "--resume", oldest, "--eval-episodes", "0")
    ends = [checkpoint.load(checkpoint.resolve(path)).arrays for path in (folder, tmp_path / "copy")]
    assert ends[0].keys() == ends[1].keys()
    assert all((array == ends[1][name]).all() for name, array in ends[0].items())
    [scored] = run(capsys, "eval", folder, "--episodes", "2", "--deterministic")["scores"]
    assert scored["episodes"] == 2
    trained = load_policy(folder)
    assert isinstance(trained.policy, TeamPolicy)
    with pytest.raises(RedlineError, match="A team of 5 agents"):
        _ = trained.policy.head
    assert main(["improve", str(folder)]) == 2


def test_what_a_team_cannot_learn_with_is_refused():
    with pytest.raises(RedlineError, match="plain networks"):
        TeamTrainer(TrainConfig("cage4", {"steps": 12}, 1000, num_envs=2, num_steps=2, recurrent="gru"))


def test_equal_seeds_give_equal_teams():
    one, two = make(), make()
    assert one.update().metrics.keys() == two.update().metrics.keys()
    assert (one.policy.vector == two.policy.vector).all()
    assert isinstance(one.team_actor, TeamActor)
