"""The commands as a user types them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from redline.cli import COMMANDS, main
from redline.metrics import load_metrics
from redline.runs import Run

DATA = Path(__file__).parents[1] / "data"
SMALL = ["--num-envs", "8", "--num-steps", "20", "--eval-episodes", "10", "-q"]


def redline(*arguments: str | Path) -> int:
    return main([str(each) for each in arguments])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of twelve small updates with several checkpoints."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert (
        redline("train", "cage2", "--total-steps", "1920", "--run-dir", folder, "--checkpoint-seconds", "1e-9", *SMALL)
        == 0
    )
    return folder


def test_help_lists_every_command_and_loads_nothing_heavy():
    code = "import sys; from redline.cli import main; main(['--help']); sys.exit(bool({'torch', 'numba'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    for command in ("train", "eval", "bench", "verify", "report", "envs"):
        assert command in done.stdout


EXPLAINED = [name for name in COMMANDS if name not in ("bench", "completion", "verify")] + [
    "train --help-all",
    "verify cage2",
    *(f"bench {kind}" for kind in ("sim", "engines", "train", "profiler", "search")),
]


@pytest.mark.parametrize("command", EXPLAINED)
def test_every_command_explains_itself_in_plain_words(command: str, capsys: pytest.CaptureFixture[str]):
    assert redline(*command.split(), "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: redline") and "--json" in text and "--quiet, -q" in text
    assert not re.search(r"STR|INT|FLOAT|\{None\}|<factory>|\bclass\b|VALUE", text)
    assert max(map(len, text.splitlines())) <= 110


def test_training_leaves_a_run_folder_that_tells_everything(trained: Path):
    for name in ("config.json", "metrics.csv", "breakdown.json", "scores.json", "report.html"):
        assert (trained / name).exists(), name
    metrics = load_metrics(trained / "metrics.csv")
    assert list(metrics["step"]) == [160 * k for k in range(1, 13)]
    assert len(list((trained / "checkpoints").iterdir())) == 3
    breakdown = json.loads((trained / "breakdown.json").read_text())
    assert {"collect", "learn"} <= set(breakdown["spans"])


def test_train_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("train", "cage2", "--total-steps", "320", "--runs", tmp_path, "--json", *SMALL) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 320
    assert {"steps_per_second", "mean", "stderr", "episodes", "seconds", "run", "report", "breakdown"} <= set(result)


def test_a_gymnasium_env_trains_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("train", "CartPole-v1", "--total-steps", "640", "--runs", tmp_path, "--json", *SMALL) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mean"] > 5
    assert redline("eval", result["run"], "--episodes", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 5


def test_tensorboard_events_are_written_when_asked(tmp_path: Path):
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    assert redline("train", "cage2", "--total-steps", "320", "--run-dir", folder, "--tensorboard", *SMALL) == 0
    assert list((folder / "tensorboard").glob("events*"))


def test_eval_scores_every_setting_of_the_protocol(trained: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("eval", trained, "--episodes", "20", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    settings = {(s["rules"], s["red_agent"], s["length"]) for s in result["scores"]}
    assert len(settings) == 2 * 3 * 3
    assert {"mean", "stderr", "total"} <= set(result)


def test_eval_draws_a_table_beside_the_published_leaderboard(trained: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("eval", trained, "--episodes", "5", "--lengths", "30,100", "--red-agent", "B_lineAgent") == 0
    text = capsys.readouterr().out
    assert "Cardiff" in text and "-13.76" in text and "B_line 100" in text


def test_a_baseline_scores_what_the_specification_says(capsys: pytest.CaptureFixture[str]):
    arguments = ("--episodes", "1000", "--lengths", "100", "--red-agent", "B_lineAgent", "--rules", "final", "--json")
    assert redline("eval", "react-restore", *arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert abs(result["mean"] + 63.80) < 4 * np.hypot(result["stderr"], 0.91)


def test_equal_seeds_score_equally(trained: Path, capsys: pytest.CaptureFixture[str]):
    texts = []
    for _ in range(2):
        assert redline("eval", trained, "--episodes", "30", "--seed", "5", "--json") == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_verify_finds_no_mismatch_in_the_recordings(capsys: pytest.CaptureFixture[str]):
    files = f"{DATA / 'cage2_final.npz'},{DATA / 'cage2_leaderboard.npz'}"
    assert redline("verify", "cage2", "--traces", files, "--json", "-q") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mismatches"] == 0
    assert result["steps"] == 49310 + 24130


def test_verify_shows_the_first_mismatch_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    traces = dict(np.load(DATA / "cage2_final.npz"))
    traces["access"][3, 7, 9] += 1
    np.savez(tmp_path / "wrong.npz", **traces)
    assert redline("verify", "cage2", "--traces", tmp_path / "wrong.npz") == 1
    text = capsys.readouterr().out
    assert "1 mismatches" in text
    assert re.search(r"episode 3, step 7 .*access of User1: expected \d, got \d", text)


def test_envs_lists_options_with_their_meaning(capsys: pytest.CaptureFixture[str]):
    assert redline("envs", "--json") == 0
    options = json.loads(capsys.readouterr().out)["envs"][0]["options"]
    assert all(option["about"] for option in options)
    assert redline("envs", "cage2") == 0
    assert "--red-agent" in capsys.readouterr().out


def test_report_can_be_written_again(trained: Path, capsys: pytest.CaptureFixture[str]):
    (trained / "report.html").unlink()
    assert redline("report", trained) == 0
    assert (trained / "report.html").read_text().startswith("<!")


def test_bench_sim_measures_both_speeds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    import numba  # noqa: F401  (it reads its settings now: what follows is for the processes whose start-up is timed)

    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # else the first of them compiles everything anew
    arguments = ("--batch-sizes", "4,64", "--threads", "1,2", "--seconds", "0.01", "--turns", "1", "--json")
    assert redline("bench", "sim", "cage2", *arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["speed"] for row in result["rates"]} == {"compiled", "interpreted"}
    assert result["steps_per_second"] > 0 and result["first_step_seconds"] > 0


def test_bench_train_runs_everyone_in_turn_and_leaves_no_file_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("redline.bench.train.SETTLING_UPDATES", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert redline("bench", "train", "cage2", "--num-envs", "32", "--num-steps", "64", "--turns", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"deduplicated", "plain", "CleanRL-style loop"} <= set(result["rates"])
    assert result["steps_per_second"] > 0
    left = [path.name for path in tmp_path.iterdir()]
    assert [name for name in left if not name.startswith("torchinductor")] == []  # that one is torch's own cache


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("trian cage2", "Did you mean 'train'?"),
        ("train cage3", "Did you mean 'cage"),
        ("train CartPole-v2x", "Did you mean 'CartPole-v"),
        ("train cage2 --red-agent Bline", "Did you mean 'B_lineAgent'?"),
        ("train cage2 --rules finall", "Did you mean 'final'?"),
        ("train cage2 --observation tabel", "Did you mean 'table'?"),
        ("train cage2 --engine vectr", "Did you mean 'vector'?"),
        ("train cage2 --lerning-rate 1", "Did you mean --learning-rate?"),
        ("train cage2 --num-envs 0", "Try --num-envs"),
        ("train cage2 --num-steps -3", "Try --num-steps"),
        ("train cage2 --total-steps 0", "Try --total-steps"),
        ("train cage2 --epochs 0", "Try --epochs"),
        ("train cage2 --num-envs ten", "num-envs"),
        ("train cage2 --minibatches 7", "Try --minibatches"),
        ("train cage2 --hidden 64,0", "Try --hidden 64,64"),
        ("train cage2 --gamma 1.5", "Try --gamma 0.99"),
        ("train cage2 --device tpu", "auto"),
        ("train cage2 --max-steps -1", "Try --max-steps 100"),
        ("train cage2 --total-steps 5 --total-episodes 5", "one of them"),
        ("train --resume nowhere", "nowhere"),
        ("train --resume nowhere --gamma 0.9", "--gamma"),
        ("train cage2 --run-dir /proc/nowhere/run --total-steps 100", "/proc/nowhere"),
        ("eval nowhere", "nowhere"),
        ("eval sleep --episodes 0", "Try --episodes 1000"),
        ("eval random --seed -1", "Try --seed 0"),
        ("eval sleep --green-agent Gren", "Did you mean 'GreenAgent'?"),
        ("train cage2 --num-envs 1000000000", "GiB"),
        ("train cage2 --hidden 60000,600000", "GiB"),
        (f"train cage2 --hidden {'9' * 400},{'9' * 400}", "GiB"),
        (f"train cage2 --hidden {'4,' * 100}4", "101 hidden layers cannot be learned"),
        ("train Nope-v1", "…"),
        ("eval sleep --lengths 0", "Try --lengths 30,50,100"),
        ("eval sleep --red-agent Meander", "RedMeanderAgent"),
        ("verify cage2", "--traces"),
        ("verify cage2 --traces nowhere.npz", "nowhere.npz"),
        ("verify petri --traces x.npz", "cage2"),
        ("bench simm cage2", "Did you mean 'sim'?"),
        ("bench sim cage2 --turns 0", "Try --turns"),
        ("bench sim cage2 --seconds nan", "Try --seconds"),
        ("bench profiler --seconds inf", "Try --seconds"),
        (f"bench sim cage2 --batch-sizes {10**30}", "at most"),
        (f"train cage2 --epochs {10**30}", "at most"),
        (f"train cage2 --preset none --max-steps {10**30}", "Try --max-steps 100"),
        ("train cage2 --checkpoint-seconds nan", "Try 30"),
        ("train cage2 --total-steps 1e999999999", "must be a whole number"),
        ("train cage2 --alignment-lambda nan", "Try --alignment-lambda"),
        (f"improve champion --horizon {10**30}", "at most"),
        (f"improve champion --lengths {10**30}", "at most"),
        ("improve champion --margin nan", "Try --margin"),
        ("search cage2 --violation-penalty inf", "Try --violation-penalty"),
        (f"sweep cage2 --seeds {10**30}", "at most"),
        ("sweep cage2 --seeds 1000000", "Try --seeds 10"),
        (f"eval sleep --episodes {10**30}", "Try --episodes 1000"),
        ("report nowhere", "nowhere"),
        ("envs cage5", "Did you mean 'cage"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments: str, says: str, capsys: pytest.CaptureFixture[str]):
    assert redline(*arguments.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in said if line.startswith("redline: ")]) == 1
    assert says in said[-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("red"), "lacks red"),
        (lambda t: t.update(obs=t["obs"][:, :, :51]), "obs has shape"),
        (lambda t: t.update(blue_action=t["blue_action"] + 200), "Blue actions must be 0 to 144"),
        (lambda t: t.update(rules=np.array("beta")), "beta"),
        (lambda t: t.update(length=t["length"] + 1000), "claims"),
    ],
)
def test_a_recording_of_the_wrong_shape_is_refused(change, says, tmp_path, capsys):
    traces = dict(np.load(DATA / "cage2_leaderboard.npz"))
    change(traces)
    np.savez(tmp_path / "bad.npz", **traces)
    assert redline("verify", "cage2", "--traces", tmp_path / "bad.npz") == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["empty", "no steps", "an array", "a text", "a folder"])
def test_what_is_no_recording_is_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "odd.npz"
    traces = dict(np.load(DATA / "cage2_leaderboard.npz"))
    if kind == "empty":
        np.savez(path, **{name: array if array.ndim == 0 else array[:0] for name, array in traces.items()})
    elif kind == "no steps":
        np.savez(path, **{**traces, "length": traces["length"] * 0})
    elif kind == "an array":
        np.save(tmp_path / "odd.npy", np.zeros(3))
        (tmp_path / "odd.npy").rename(path)
    elif kind == "a text":
        path.write_text("not a recording")
    else:
        path.mkdir()
    assert redline("verify", "cage2", "--traces", path) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0 and "odd.npz" in said


def test_a_recording_cut_short_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = (DATA / "cage2_leaderboard.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    assert redline("verify", "cage2", "--traces", tmp_path / "cut.npz") == 2
    assert "cut.npz" in capsys.readouterr().err


def damaged(run: Path, tmp_path: Path, damage: str) -> tuple[Path, Path]:
    """A copy of the run whose newest checkpoint is damaged, and that checkpoint."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    newest = sorted((copy / "checkpoints").iterdir())[-1]
    arrays = newest / "arrays.safetensors"
    if damage == "missing":
        arrays.unlink()
    elif damage == "truncated":
        arrays.write_bytes(arrays.read_bytes()[:1000])
    else:
        data = bytearray(arrays.read_bytes())
        data[-1] ^= 1
        arrays.write_bytes(data)
    return copy, newest


@pytest.mark.parametrize("damage", ["missing", "truncated", "tampered"])
@pytest.mark.parametrize("command", [["eval"], ["train", "--resume"]])
def test_a_damaged_checkpoint_is_refused_and_the_previous_one_offered(damage, command, trained, tmp_path, capsys):
    copy, newest = damaged(trained, tmp_path, damage)
    assert redline(*command, copy) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert newest.name in said
    assert sorted((copy / "checkpoints").iterdir())[-2].name in said


def test_a_run_folder_is_never_overwritten(trained: Path, capsys: pytest.CaptureFixture[str]):
    before = (trained / "metrics.csv").read_bytes()
    assert redline("train", "cage2", "--total-steps", "160", "--run-dir", trained, *SMALL) == 2
    assert "--resume" in capsys.readouterr().err
    assert (trained / "metrics.csv").read_bytes() == before


def test_a_finished_run_has_nothing_to_go_on_with(trained: Path, capsys: pytest.CaptureFixture[str]):
    before = (trained / "metrics.csv").read_bytes()
    assert redline("train", "--resume", trained) == 0
    assert "is finished" in capsys.readouterr().out
    assert (trained / "metrics.csv").read_bytes() == before


def test_a_run_belongs_to_one_process_at_a_time(trained: Path, capsys: pytest.CaptureFixture[str]):
    with Run.open(trained).locked():
        assert redline("train", "--resume", trained) == 2
    assert f"process {os.getpid()}" in capsys.readouterr().err


def test_an_older_checkpoint_may_be_resumed_and_later_ones_are_said_to_go(trained: Path, tmp_path: Path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    oldest = sorted((copy / "checkpoints").iterdir())[0]
    assert redline("train", "--resume", oldest, "-q", "--eval-episodes", "0") == 0
    assert "2 checkpoints after it are deleted" in capsys.readouterr().err
    assert weights(copy) == weights(trained)


def test_options_beside_resume_are_refused_with_the_reason(trained: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("train", "--resume", trained, "--seed", "3") == 2
    assert "run's own settings" in capsys.readouterr().err


def test_states_that_are_numbers_can_be_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("train", "CliffWalking-v1", "--total-steps", "640", "--runs", tmp_path, "--json", *SMALL[:4],
                   "--eval-episodes", "0") == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["steps"] == 640


def test_a_reader_may_leave_early():
    command = f"{sys.executable} -m redline envs | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "redline", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_rows(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (folder / "metrics.csv").exists() and (folder / "metrics.csv").read_bytes().count(b"\n") > count:
            return
        time.sleep(0.05)
    raise AssertionError("the run made no progress")


def weights(folder: Path) -> bytes:
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    return (newest / "arrays.safetensors").read_bytes()


LONG = ["--num-envs", "16", "--num-steps", "50", "--minibatches", "4", "--total-steps", "96000", "--eval-episodes", "0"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 120 updates that nobody interrupted."""
    folder = tmp_path_factory.mktemp("long") / "straight"
    assert redline("train", "cage2", *LONG, "--run-dir", folder, "-q") == 0
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(number, code, straight: Path, tmp_path: Path):
    stopped = tmp_path / "stopped"
    process = start("train", "cage2", *LONG, "--run-dir", stopped)
    wait_for_rows(stopped, 5)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"--resume {stopped}" in said.strip().splitlines()[-1]
    assert redline("train", "--resume", stopped, "--eval-episodes", "0", "-q") == 0
    assert weights(stopped) == weights(straight)
    ours, theirs = load_metrics(stopped / "metrics.csv"), load_metrics(straight / "metrics.csv")
    for name in set(ours) - {"seconds", "steps_per_second"}:
        assert np.array_equal(ours[name], theirs[name], equal_nan=True), name


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path):
    slow = ["--no-turbo", "--num-envs", "64", "--num-steps", "2000", "--total-steps", "10000000"]
    process = start("train", "cage2", *slow, "--run-dir", tmp_path / "run")
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)  # now it is in the middle of an update that takes minutes
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode in (-signal.SIGINT, 130)


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from redline.cli import main
import redline.learn.session as session
begin = session.Session.__init__
def filled(self, *args, **kwargs):
    begin(self, *args, **kwargs)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
session.Session.__init__ = filled
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_does_not_stop_the_training(tmp_path: Path):
    folder = tmp_path / "run"
    options = ["--total-steps", "9600", "--num-envs", "16", "--num-steps", "20", "--checkpoint-seconds", "0.01"]
    command = [
        sys.executable,
        "-c",
        FULL_DISK,
        "train",
        "cage2",
        *options,
        "--eval-episodes",
        "0",
        "--run-dir",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    warnings = [line for line in done.stderr.splitlines() if "Cannot write" in line]
    assert len([line for line in warnings if "checkpoint" in line]) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_colours_and_bars_stay_out_of_files(tmp_path: Path):
    process = start(
        "train", "cage2", "--total-steps", "1600", "--num-envs", "16", "--num-steps", "20", "--runs", tmp_path
    )
    shown, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "\x1b[" not in shown + said
    assert "Where the time went" in shown


def test_bench_sim_says_which_rows_it_leaves_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    import numba  # noqa: F401  (see above)

    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    quick = ("--batch-sizes", "4,64", "--seconds", "0.01", "--turns", "1")
    assert redline("bench", "sim", "cage2", "--threads", "1,99", *quick) == 0
    assert (
        "Left out, as every thread needs an env of its own: 99 threads x 4, 99 threads x 64." in capsys.readouterr().out
    )
    assert redline("bench", "sim", "cage2", "--threads", "99", *quick) == 2
    assert "Try --threads 64." in capsys.readouterr().err


def test_quiet_training_prints_results_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = ("train", "cage2", "--total-steps", "160", "--num-envs", "8", "--num-steps", "20", "--eval-episodes", "10")
    assert redline(*run, "--run-dir", tmp_path / "loud") == 0
    loud = capsys.readouterr()
    assert "Where the time went" in loud.out and "Next:" in loud.out and "Training on" in loud.err
    assert redline(*run, "--run-dir", tmp_path / "quiet", "-q") == 0
    quiet = capsys.readouterr()
    assert "Where the time went" not in quiet.out and "Next:" not in quiet.out and not quiet.err
    assert "steps/s" in quiet.out and "Run folder:" in quiet.out
