"""A run folder is data: nothing that it names is run or opened unless its owner says so."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import redline
from redline.cli import main
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.learn.stages import Chain
from redline.learn.trust import reach_of, require_trusted
from redline.runs import CONFIG, RESULT, STAGES, Run, within
from redline.signature import is_signed, key_file, signed

FACTORY = """
import gymnasium
from pathlib import Path

def make(note=None):
    if note:
        Path(note).write_text("it ran")
    return gymnasium.make("CartPole-v1")
"""
TINY = ["--num-envs", "2", "--num-steps", "8", "--total-steps", "32", "--eval-episodes", "0", "--quiet"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one's own on an env of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_envs.py").write_text(FACTORY)
    assert main(["train", "external:my_envs:make", *TINY, "--total-steps", "16", "--run-dir", "run"]) == 0
    return tmp_path / "run"


def rewrite(run: Path, **changes: Any) -> None:
    """What a stranger can do: write any config anywhere, with checksums that are right."""
    config = {**json.loads((run / CONFIG).read_text()), **changes}
    (run / CONFIG).write_text(json.dumps(config))
    path = checkpoint.resolve(run)
    found = checkpoint.load(path)
    shutil.rmtree(path)
    values = {**found.values, "config": {**found.values["config"], **changes}}
    checkpoint.save(path.parent, found.step, found.arrays, values)


COMMANDS = (
    ["eval", "run", "--episodes", "1"],
    ["train", "--resume", "run"],
    ["report", "run"],
    ["profile", "--run", "run"],
)
OTHERS = (
    ["play", "run"],
    ["export", "run", "x.pt2"],
    ["improve", "run"],
    ["train", "CartPole-v1", *TINY, "--from", "run"],
    ["eval", "run/checkpoints/step-000000000016", "--episodes", "1"],
)
by_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS], ids=lambda command: command[0])
def test_a_strangers_run_is_refused_with_what_it_would_run(
    run: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    note = run.parent / "note"
    rewrite(run, env_options={"note": str(note)}, total_steps=64)
    assert main(command) == 2
    told = capsys.readouterr().err
    told = told.removeprefix("Playing an episode …\n")
    assert told.count("\n") == 1 and "external:my_envs:make" in told and str(note)[:20] in told and "--trust" in told
    assert not note.exists()


@pytest.mark.parametrize("goal", [64, None])
@pytest.mark.parametrize("command", [["runs", "."], ["compare", "run", "run"]], ids=lambda command: command[0])
def test_a_strangers_world_is_not_imported_to_list_or_compare_its_run(
    run: Path,
    command: list[str],
    goal: int | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "my_world", raising=False)
    (run.parent / "my_world.py").write_text("from pathlib import Path\nPath('note').write_text('it ran')\n")
    rewrite(run, env="world:my_world:WORLD", total_steps=goal)
    assert main(command) == 0
    assert "world:my_world:WORLD" in capsys.readouterr().out
    assert not (run.parent / "note").exists()


@by_command
def test_ones_own_run_goes_on_as_ever(run: Path, command: list[str]) -> None:
    assert main(command) == 0


def test_trust_runs_it_and_makes_it_ones_own(run: Path) -> None:
    note = run.parent / "note"
    rewrite(run, env_options={"note": str(note)}, total_steps=32)
    assert main(["eval", "run", "--episodes", "1", "--trust"]) == 0 and note.exists()
    assert main(["train", "--resume", "run", "--trust", "--eval-episodes", "0", "--quiet"]) == 0
    assert main(["eval", "run", "--episodes", "1"]) == 0


@pytest.mark.parametrize("name", ["metrics.csv", "checkpoints", ".lock"])
def test_a_strangers_run_cannot_have_us_write_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cage2", *TINY, "--run-dir", "run"]) == 0
    rewrite(Path("run"), total_steps=64)
    (tmp_path / "elsewhere").write_text("dear to somebody")
    if name == "checkpoints":
        (tmp_path / "run" / name).rename(tmp_path / "elsewhere-too")
        (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere-too")
    else:
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    assert main(["train", "--resume", "run", "--quiet", "--eval-episodes", "0"]) == 2
    told = capsys.readouterr().err
    assert (f"would write where its link {name} leads" if name != ".lock" else ".lock is no file") in told
    assert (tmp_path / "elsewhere").read_text() == "dear to somebody"


def elsewhere_of(run: Path, name: str) -> Path:
    """A file outside of a run, which `name` in the run now leads to."""
    victim = run.parent / "elsewhere"
    victim.write_text("dear to somebody")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    return victim


@pytest.mark.parametrize("name", [".scores.json.tmp", ".report.html.tmp", "checkpoints"])
@pytest.mark.parametrize("use", ["eval run", "eval run/checkpoints", "report run", "load"])
def test_links_anywhere_in_an_untrusted_run_are_refused(name, use, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cage2", *TINY, "--run-dir", "run"]) == 0
    rewrite(Path("run"), total_steps=64)
    if name == "checkpoints":
        Path("run", name).rename(tmp_path / "outside")
        Path("run", name).symlink_to(tmp_path / "outside")
    else:
        elsewhere_of(tmp_path / "run", name)
    if use == "load":
        with pytest.raises(RedlineError, match=f"would write where its link {name} leads"):
            redline.load("run")
        return
    command, run = use.split()
    more = ["--episodes", "1"] if command == "eval" else []
    assert main([command, run, *more]) == 2
    assert f"would write where its link {name} leads" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".scores.json.tmp", ".report.html.tmp"])
def test_drafts_are_never_written_through_a_link(name, tmp_path, monkeypatch):
    """Not even in a run of one's own, which others may have had in their hands."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cage2", *TINY, "--run-dir", "run"]) == 0
    victim = elsewhere_of(tmp_path / "run", name)
    assert main(["eval", "run", "--episodes", "1"]) == 0
    assert main(["report", "run"]) == 0
    assert victim.read_text() == "dear to somebody"
    assert not Path("run", name).is_symlink()


@pytest.mark.parametrize("name", [".scores.json.tmp", ".report.html.tmp"])
def test_a_pipe_in_the_place_of_a_draft_keeps_nobody_waiting(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cage2", *TINY, "--run-dir", "run"]) == 0
    rewrite(Path("run"), total_steps=64)
    Path("run", name).unlink(missing_ok=True)
    os.mkfifo(Path("run", name))
    assert main(["eval", "run", "--episodes", "1"]) == 0
    assert main(["report", "run"]) == 0


@pytest.mark.parametrize("mode", [0o644, 0o000])
def test_a_key_that_others_can_read_is_named_where_it_is_missed(
    mode: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key_file().chmod(mode)
    try:
        code = main(["eval", "run", "--episodes", "1"])
        told = capsys.readouterr().err
    finally:
        key_file().chmod(0o600)
    assert (code, str(key_file()) in told) == (2, True) if mode or os.geteuid() else code == 0


def test_a_pipe_in_the_place_of_the_key_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key_file().parent.mkdir()
    os.mkfifo(key_file(), 0o600)
    assert not is_signed(signed({"env": "cage2"}))


def test_a_key_lies_where_the_user_is_at_home_not_where_a_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    assert key_file().is_absolute() and tmp_path not in key_file().parents


def test_another_users_key_does_not_count(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody_else"))
    assert main(["eval", "run", "--episodes", "1"]) == 2
    assert not key_file().exists()  # looking makes none


def test_a_world_of_a_stranger_is_not_even_imported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run.parent / "trap.py").write_text("from pathlib import Path\nPath('note').write_text('it ran')\n")
    rewrite(run, env="world:trap:WORLD")
    for command in COMMANDS:
        assert main(command) == 2
        assert "trap:WORLD" in capsys.readouterr().err
    assert not Path("note").exists()


def test_the_key_is_for_its_owners_eyes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    mine = signed({"env": "cage2"})
    assert key_file().stat().st_mode & 0o777 == 0o600 and is_signed(mine)
    assert not is_signed({**mine, "env": "slow"})
    key_file().chmod(0o644)
    assert not is_signed(mine)


def test_without_a_home_runs_are_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/nowhere")
    assert Run.at(tmp_path / "run", {"env": "cage2"}).config == {"env": "cage2"}


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "external:os:system", "env_options": {"command": "id"}},
        {"env": "world:package.module:WORLD"},
        {"env": "package.module:Some-v0"},
        {"env": "cyborg:B_lineAgent"},
        {"env": "CartPole-v1?xml_file=/etc/passwd"},
        {"env": "petri:/etc/passwd.pnml"},
        {"env": "petri:jobshop/secret.txt"},
        {"env": "petri:cluster/secret.json"},
        {"env": "nasim:secret.yaml"},
        {"warm_start": "secret.json"},
        {"network": "package.module:Net"},
        {"collecting": {"ray_address": "10.0.0.1:6379"}},
    ],
    ids=str,
)
def test_whatever_reaches_outside_needs_trust(changes: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="not made by you"):
        require_trusted({**config_to_json(TrainConfig("cage2")), **changes}, Path("run"))


@pytest.mark.parametrize(
    "env",
    ["cage2", "slow?mean_ms=1", "petri:jobshop/ft06", "petri:cluster/J-0?wafers=4", "nasim:medium", "CartPole-v1"],
)
def test_what_comes_with_us_needs_none(env: str) -> None:
    assert reach_of({"env": env, "warm_start": "best"}) == []


def test_what_it_would_run_cannot_write_to_the_terminal() -> None:
    (wish,) = reach_of({"env": "external:a:b", "env_options": {"x": "\x1b[2J\nredline: all is well" + "y" * 500}})
    assert wish.isprintable() and len(wish) <= 160


def test_the_stages_of_a_plan_are_looked_at_too() -> None:
    stage = {"config": config_to_json(TrainConfig("external:os:system"))}
    assert reach_of({**config_to_json(TrainConfig("cage2")), "stages": [stage, "junk"]})


PLAN = Path(__file__).parents[1] / "fuzz" / "seeds" / "stages"


def plan_at(path: Path, **changes: Any) -> Chain:
    """A stranger's run in stages, the first of which has come to something."""
    shutil.copytree(PLAN, path)
    config = json.loads((path / CONFIG).read_text())
    config["stages"][0].update(changes)
    (path / CONFIG).write_text(json.dumps(config))
    (path / STAGES).write_text(json.dumps({"stages": [{"steps": 1, "episodes": 1}]}))
    return Chain(Run.open(path), Saving(), print, print)


def test_the_name_of_a_stage_cannot_lead_out_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    with pytest.raises(RedlineError, match=r"cannot hold anything called '1-x/\.\./"):
        plan_at(tmp_path / "run", name="x/../../../victim")
    assert (tmp_path / "victim").is_dir()


def test_what_a_stage_came_to_names_no_code_either(tmp_path: Path) -> None:
    chain = plan_at(tmp_path / "run")
    config = config_to_json(TrainConfig("external:os:system", {"command": f"touch {tmp_path / 'ran'}"}))
    checkpoint.save(chain.folder(0) / RESULT, 1, {}, {"config": config})
    with pytest.raises(RedlineError, match="was not made by you on this machine, and would"):
        chain.result()
    assert not (tmp_path / "ran").exists()


def test_what_a_guard_judges_by_counts_as_what_a_plan_reaches(tmp_path: Path) -> None:
    stage = {"config": {"env": "CartPole-v1", "env_options": {}}, "guard": {"env_options": {"render_mode": "/a/file"}}}
    assert reach_of({"env": "cage2", "stages": [stage]}) == reach_of(
        {"env": "CartPole-v1", "env_options": {"render_mode": "/a/file"}}
    )
    assert reach_of({"env": "cage2", "stages": [stage]})


@pytest.mark.parametrize("name", ["/etc", "../x", "a/../../b", "", None, 3, "x" * 256, "ü" * 128])
def test_a_name_from_a_file_stays_in_its_folder(name: Any, tmp_path: Path) -> None:
    with pytest.raises(RedlineError, match="cannot hold anything called"):
        within(tmp_path, name)
