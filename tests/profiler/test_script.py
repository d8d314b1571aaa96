"""Training scripts of other people, sampled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from redline.errors import RedlineError
from redline.profiler.script import (
    BACKWARD,
    ENV_RESET,
    ENV_STEP,
    FORWARD,
    IMPORTS,
    LOSS,
    OPTIMIZER,
    OWN,
    SPANS,
    ScriptProfile,
    advise_script,
    profile_script,
)

SCRIPTS = Path(__file__).parent / "scripts"
PARTS = """
import time
import gymnasium as gym, torch
from torch import nn

class Env(gym.Env):
    def step(self, action):
        time.sleep(0.2)
        return 0, 0.0, False, False, {}
    def reset(self, *, seed=None, options=None):
        time.sleep(0.1)
        return 0, {}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, x):
        time.sleep(0.15)
        return self.weight * x

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.1)
        return grad

env, net, x = gym.Wrapper(Env()), Net(), torch.ones(1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer.register_step_pre_hook(lambda *_: time.sleep(0.1))
"""


def profile(tmp_path: Path, source: str) -> ScriptProfile:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(source))
    return profile_script(script)


def run(*command: object, **more: object) -> subprocess.CompletedProcess[str]:
    words = [str(each) for each in command]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **more)


def test_every_part_of_a_training_step_gets_its_own_time(tmp_path):
    found = profile(
        tmp_path,
        PARTS
        + textwrap.dedent("""
            env.reset()
            with torch.no_grad():
                net(x)
            env.step(0)
            Slow.apply(net(x)).sum().backward()
            optimizer.step()
            time.sleep(0.1)
        """),
    )
    assert found.traceback is None
    wanted = {ENV_STEP: 0.2, ENV_RESET: 0.1, FORWARD: 0.15, LOSS: 0.15, OPTIMIZER: 0.1, BACKWARD: 0.1, OWN: 0.1}
    for span, seconds in wanted.items():
        assert found.seconds[span] == pytest.approx(seconds, abs=0.06), span
    assert sum(found.share(span) for span in SPANS) == pytest.approx(1.0)


def test_waiting_for_worker_processes_is_env_step(tmp_path):
    source = """
        import time
        import gymnasium as gym
        import numpy as np

        class Slow(gym.Env):
            observation_space = gym.spaces.Discrete(2)
            action_space = gym.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return 0, {}
            def step(self, action):
                time.sleep(0.05)
                return 0, 0.0, False, False, {}

        if __name__ == "__main__":
            envs = gym.vector.AsyncVectorEnv([Slow, Slow], context="fork")
            envs.reset()
            for _ in range(10):
                envs.step(np.zeros(2, int))
            envs.close()
    """
    found = profile(tmp_path, source)
    assert found.traceback is None
    assert 0.45 < found.seconds[ENV_STEP] < 1.0


def test_the_timer_leaves_sleeps_as_long_as_they_are(tmp_path):
    source = """
        import subprocess, sys, time
        began = time.perf_counter()
        time.sleep(0.3)
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], check=True)
        assert time.perf_counter() - began > 0.5
    """
    found = profile(tmp_path, source)
    assert found.traceback is None
    assert found.total_seconds > 0.5


@pytest.mark.parametrize(
    ("script", "arguments", "env_steps"),
    [("cleanrl_style.py", ["--updates", "30"], 7680), ("sb3_ppo.py", [], 2048)],
)
def test_a_real_ppo_does_the_same_watched(script, arguments, env_steps):
    plain = run(SCRIPTS / script, *arguments)
    watched = run("-m", "redline", "profile", "--json", "--script", SCRIPTS / script, *arguments)
    assert plain.returncode == watched.returncode == 0, watched.stderr
    result = plain.stdout.splitlines()[-1]
    assert result.startswith(str(env_steps))
    assert result in watched.stdout + watched.stderr
    found = json.loads(watched.stdout)
    rows = {row["name"]: row for row in found["rows"]}
    assert rows[IMPORTS]["seconds"] > 0
    assert rows[IMPORTS]["share"] is None
    for span in (ENV_STEP, FORWARD, LOSS, BACKWARD, OPTIMIZER):
        assert 0 < rows[span]["share"] < 0.7, span
    assert sum(row["share"] or 0.0 for row in found["rows"]) == pytest.approx(1.0)


def test_a_script_finds_its_arguments_its_neighbours_and_itself(capsys):
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    handlers = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
    path = SCRIPTS / "says_how_it_was_started.py"
    found = profile_script(path, ["--steps", "3"])
    assert capsys.readouterr().out == f"{[str(path), '--steps', '3']}\nTrue True\nhello True False\n"
    assert found.exit_code == 0
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)) == handlers


def test_worker_processes_get_classes_of_the_script():
    done = run("-m", "redline", "profile", "--script", SCRIPTS / "workers.py")
    assert done.returncode == 0, done.stderr
    assert "Where the time of" in done.stdout


def test_a_failing_script_keeps_its_own_traceback():
    found = profile_script(SCRIPTS / "fails.py")
    plain = run(SCRIPTS / "fails.py")
    assert found.exit_code == plain.returncode == 1
    assert found.traceback == plain.stderr


def test_a_script_with_a_syntax_error_fails_as_in_python(tmp_path):
    found = profile(tmp_path, "x = 1\nfor in x:\n")
    plain = run(tmp_path / "train.py")
    assert found.exit_code == 1
    assert found.traceback is not None
    assert found.traceback.splitlines()[-4:] == plain.stderr.splitlines()[-4:]


def test_a_failing_import_shows_the_files_of_the_script_only(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import no_such_module_anywhere")
    found = profile(tmp_path, "import package.part")
    assert found.traceback == run(tmp_path / "train.py").stderr


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [("sys.exit()", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('enough')", 1, "enough\n")],
)
def test_an_exit_keeps_its_code(tmp_path, capsys, source, code, said):
    found = profile(tmp_path, f"import sys\n{source}")
    assert (found.exit_code, found.traceback, capsys.readouterr().err) == (code, None, said)


def test_an_exit_from_deep_inside_keeps_its_code():
    assert profile_script(SCRIPTS / "leaves.py").exit_code == 3


def test_ctrl_c_ends_the_script_and_leaves_a_profile(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "redline", "profile", "--script", str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.endswith("KeyboardInterrupt\n")
    assert OWN in stdout


def test_advice_and_table_give_shares_of_the_same_whole():
    found = ScriptProfile({IMPORTS: 90.0, ENV_STEP: 6.0, OWN: 4.0}, exit_code=0, traceback=None)
    assert found.share(ENV_STEP) == pytest.approx(0.6)
    advice = advise_script(found)
    assert all(each.share == found.share(ENV_STEP) for each in advice if each.what == "env.step")


def test_a_short_script_gets_no_advice():
    assert advise_script(ScriptProfile({ENV_STEP: 0.01}, exit_code=0, traceback=None)) == []


def test_a_missing_script_names_the_nearest(tmp_path):
    (tmp_path / "train.py").touch()
    with pytest.raises(RedlineError, match=r"There is no script .*trian\.py\. Try --script .*train\.py\."):
        profile_script(tmp_path / "trian.py")


def test_a_directory_is_no_script(tmp_path):
    with pytest.raises(RedlineError, match="is a directory, not a script"):
        profile_script(tmp_path)


def test_a_notebook_is_no_script(tmp_path):
    (tmp_path / "train.ipynb").write_text("{}")
    with pytest.raises(RedlineError, match=r"is not a Python file\. Try --script train\.py\."):
        profile_script(tmp_path / "train.ipynb")


def test_an_option_behind_the_script_is_pointed_out(tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("pass\n")
    done = run("-m", "redline", "profile", "--script", script, "--json")
    assert "--json went to the script. If it was meant for us: redline profile --json" in done.stderr
