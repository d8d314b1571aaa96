from __future__ import annotations

import json
import sys

from redline.cli import main
from redline.learn.acting import Actor
from redline.learn.config import recipe
from redline.learn.evaluate import play, score
from redline.learn.train import Trainer
from redline.worlds.nasim import verify
from redline.worlds.nasim.original import steps_per_second
from redline.worlds.nasim.rules.tables import SUBNET_SCAN
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.registry import make_env


def test_the_networks_are_listed(capsys):
    assert main(["envs", "nasim", "--json"]) == 0
    listed = {network["name"]: network for network in json.loads(capsys.readouterr().out)["networks"]}
    assert len(listed) == 18
    assert listed["nasim:medium"]["actions"] == 192
    assert listed["nasim:medium"]["max_score"] == 190


def test_a_network_is_described(capsys):
    assert main(["envs", "nasim:small-honeypot", "--json"]) == 0
    hosts = {host["host"]: host for host in json.loads(capsys.readouterr().out)["host_list"]}
    assert hosts["3.2"]["value"] == -100
    assert main(["envs", "nasim:small-gen?network_seed=4"]) == 0
    assert "srv_0" in capsys.readouterr().out


def test_the_original_is_measured_where_it_is_installed(monkeypatch):
    assert steps_per_second("nasim:tiny", {}, 0.05) > 1000
    assert steps_per_second("nasim:small-gen", {"network_seed": 1, "fully_obs": True}, 0.05) > 500
    monkeypatch.setitem(sys.modules, "nasim", None)
    assert steps_per_second("nasim:tiny", {}, 0.05) is None


def test_verify_finds_no_difference_from_the_original(capsys):
    assert main(["verify", "nasim", "--networks", "tiny,small-gen", "--network-seed", "2", "--steps", "200"]) == 0
    assert capsys.readouterr().out.count("200 steps compared") == 2


def test_verify_tells_of_the_first_difference(monkeypatch, capsys):
    tables = verify.NasimVectorEnv.begin
    monkeypatch.setattr(verify.NasimVectorEnv, "begin", lambda env, *slices: (cheaper_scans(env), tables(env, *slices)))
    assert main(["verify", "nasim", "--networks", "tiny", "--steps", "50", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["first_mismatch"]["what"] == "rewards"
    assert "is -0.5, and -1.0 in the original" in found["first_mismatch"]["text"]


def cheaper_scans(env):
    env.stored.tables.actions.cost[env.stored.tables.actions.kind == SUBNET_SCAN] = 0.5


def test_verify_needs_the_original(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nasim", None)
    assert main(["verify", "nasim", "--networks", "tiny"]) == 2
    assert "pip install nasim==0.12.0" in capsys.readouterr().err


def test_a_run_is_scored_beside_the_best_return(tmp_path, capsys):
    run = tmp_path / "run"
    settings = ["--num-envs", "8", "--num-steps", "32", "--total-steps", "512", "--minibatches", "2"]
    assert main(["train", "nasim:tiny", *settings, "--run-dir", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_score"] == 195
    assert main(["eval", str(run), "--episodes", "20", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["share"] == scored["mean"] / 195


def test_the_recipe_wins_nine_tenths_of_the_best_return():
    trainer = Trainer(recipe("nasim:tiny"))
    for _ in trainer:
        pass
    env = make_env("nasim:tiny", 64, encoded=True)
    found = score(play(env, Actor(trainer.policy, 64, 1, False, False), 256, seed=1))
    trainer.close()
    assert found.mean >= 0.9 * FIXED["tiny"].max_score
