"""Other people's scripts, watched: exact with a fake clock, and on real PPO runs."""

from __future__ import annotations

import contextlib
import html
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import gymnasium
import pytest
import torch

from redline.errors import RedlineError
from redline.profiler import foreign
from redline.profiler.foreign import NAMES, ScriptProfile, profile_script
from redline.threads import cores

SCRIPTS = Path(__file__).parent / "scripts"
PARTS = """
import gymnasium as gym, torch
from torch import nn
from fake_clock import spend

class Env(gym.Env):
    def __init__(self, length=1000): self.length, self.clock = length, 0
    def step(self, action):
        spend(2)
        self.clock += 1
        return 0, 0.0, self.clock == self.length, False, {}
    def reset(self, *, seed=None, options=None):
        spend(3)
        self.clock = 0
        return 0, {}

class Layer(nn.Module):
    def forward(self, x):
        spend(5)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.weight = Layer(), nn.Parameter(torch.ones(1))
    def forward(self, x):
        spend(1)
        return self.layer(self.weight * x)

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad):
        spend(7)
        return grad

class Sgd(torch.optim.SGD):
    def step(self, closure=None):
        spend(11)
        return super().step(closure)

env, net = Env(), Net()
x = torch.ones(1)
"""
"""Costs of the parts, in seconds: step 2, reset 3, forward 6 (of which a child 5), backward 7, optimizer 11."""


class FakeClock:
    def __init__(self) -> None:
        self.nanoseconds = 1_000_000_007

    def __call__(self) -> int:
        return self.nanoseconds

    def spend(self, seconds: float) -> None:
        self.nanoseconds += round(seconds * 1e9)


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Profiles a script made of the parts above, on a clock that moves only when a part spends time."""
    clock = FakeClock()
    module = type(sys)("fake_clock")
    module.spend = clock.spend
    monkeypatch.setitem(sys.modules, "fake_clock", module)

    def profile(script: str) -> ScriptProfile:
        path = tmp_path / "train.py"
        path.write_text(PARTS + textwrap.dedent(script))
        found = profile_script(path, [], clock)
        assert found.traceback is None, found.traceback
        return found

    return profile


def spans(profile: ScriptProfile) -> dict[str, float]:
    """Seconds of the spans that took any."""
    assert sum(profile.breakdown.seconds.values()) == pytest.approx(profile.breakdown.total_seconds, rel=1e-9)
    return {path[0]: round(seconds, 9) for path, seconds in profile.breakdown.seconds.items() if seconds}


def calls(profile: ScriptProfile) -> dict[str, int]:
    return {
        path[0]: count
        for path, count in profile.breakdown.calls.items()
        if count and path[0] not in ("script", "imports")
    }


# What belongs to which span


def test_every_part_of_a_training_step_gets_its_own_time(watch):
    found = watch("""
        optimizer = Sgd(net.parameters(), lr=0.1)
        env.reset()
        with torch.no_grad():
            net(x)
        spend(100)
        env.step(0)
        loss = Slow.apply(net(x)).sum()
        spend(0.5)  # loss arithmetic
        loss.backward()
        spend(200)
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    """)
    assert spans(found) == {
        "env_step": 2, "env_reset": 3, "policy_forward": 6, "loss": 6.5, "backward": 7, "optimizer": 11, "script": 300,
    }  # fmt: skip
    assert calls(found) == {
        "env_step": 1, "env_reset": 1, "policy_forward": 1, "loss": 1, "backward": 1, "optimizer": 2
    }  # fmt: skip
    assert (found.env_steps, found.episodes) == (1, 0)
    assert found.steps_per_second == pytest.approx(1 / found.breakdown.total_seconds)


def test_a_stack_of_wrappers_is_one_env(watch):
    found = watch("""
        stack = gym.wrappers.TimeLimit(gym.Wrapper(gym.Wrapper(Env())), 5)
        stack.reset()
        stack.step(0)
        stack.step(action=0)
    """)
    assert spans(found) == {"env_step": 4, "env_reset": 3}
    assert calls(found) == {"env_step": 2, "env_reset": 1}
    assert found.env_steps == 2


def test_a_vector_env_counts_its_envs_and_their_resets_are_resets(watch):
    found = watch("""
        Env.observation_space = Env.action_space = gym.spaces.Discrete(2)
        envs = gym.vector.SyncVectorEnv([lambda: Env(length=2)] * 3)
        envs.reset()
        for _ in range(3):
            envs.step([0, 0, 0])
    """)
    assert spans(found) == {"env_step": 2 * 3 * 2, "env_reset": 2 * 3 * 3}  # the third step resets
    assert calls(found) == {"env_step": 3, "env_reset": 1 + 3}
    assert (found.env_steps, found.episodes) == (9, 3)


def test_steps_inside_a_reset_are_not_the_agents(watch):
    found = watch("""
        class Noops(gym.Wrapper):
            def reset(self, **kwargs):
                self.env.reset(**kwargs)
                return self.env.step(0)[0], {}
        Noops(Env()).reset()
    """)
    assert spans(found) == {"env_step": 2, "env_reset": 3}
    assert found.env_steps == 0


def test_a_policy_inside_an_env_takes_its_time_out_of_the_step(watch):
    found = watch("""
        class Opponent(gym.Wrapper):
            def step(self, action):
                with torch.inference_mode():
                    net(x)
                spend(1)
                return self.env.step(action)
        class Careless(gym.Wrapper):
            def step(self, action):
                net(x)
                spend(1)
                return self.env.step(action)
        Opponent(env).step(0)
        Careless(env).step(0)
    """)
    assert spans(found) == {"env_step": 6, "policy_forward": 12}
    assert found.env_steps == 2


def test_acting_with_gradients_is_a_policy_forward_once_the_env_is_stepped(watch):
    found = watch("""
        net(x)
        spend(100)
        env.step(0)
        Slow.apply(net(x)).sum().backward()
        net(x)
    """)
    assert spans(found) == {"policy_forward": 12, "script": 100, "env_step": 2, "loss": 6, "backward": 7}
    assert calls(found) == {"policy_forward": 2, "env_step": 1, "loss": 1, "backward": 1}


def test_a_loss_goes_on_around_forwards_without_gradients(watch):
    found = watch("""
        value = net(x)
        with torch.no_grad():
            net(x)  # a target network
        spend(1)
        Slow.apply(value + net(x)).sum().backward()
    """)
    assert spans(found) == {"loss": 6 + 1 + 6, "policy_forward": 6, "backward": 7}


def test_an_optimizer_that_evaluates_the_loss_itself_keeps_only_its_own_time(watch):
    found = watch("""
        class Twice(torch.optim.SGD):
            def step(self, closure):
                spend(11)
                return closure()
        def closure():
            loss = Slow.apply(net(x)).sum()
            loss.backward()
        Twice(net.parameters(), lr=0.1).step(closure)
    """)
    assert spans(found) == {"optimizer": 11, "loss": 6, "backward": 7}


def test_a_forward_computed_again_by_checkpointing_is_backward(watch):
    found = watch("""
        from torch.utils.checkpoint import checkpoint
        checkpoint(net, x, use_reentrant=False).sum().backward()
    """)
    assert spans(found) == {"loss": 6, "backward": 1}  # it stops once it has what the gradient needs


@pytest.mark.parametrize("call", ["torch.autograd.grad(loss, net.parameters())", "torch.autograd.backward(loss)"])
def test_every_way_to_ask_for_gradients_is_backward(watch, call):
    assert spans(watch(f"loss = Slow.apply(net(x)).sum()\n{call}")) == {"loss": 6, "backward": 7}


def test_functional_calls_are_forwards(watch):
    found = watch("""
        with torch.no_grad():
            torch.func.functional_call(net, dict(net.named_parameters()), x)
    """)
    assert spans(found) == {"policy_forward": 6}


def test_a_failure_inside_a_call_closes_its_span(watch):
    found = watch("""
        class Broken(gym.Env):
            def step(self, action):
                spend(2)
                raise ValueError
        try:
            gym.Wrapper(Broken()).step(0)
        except ValueError:
            spend(100)
    """)
    assert spans(found) == {"env_step": 2, "script": 100}
    assert found.env_steps == 0


def test_a_module_is_wrapped_when_it_is_imported(watch, tmp_path, monkeypatch):
    """Old Gym and TorchRL stand in for themselves: an Env and an EnvBase with the methods we wrap."""
    (tmp_path / "gym").mkdir()
    (tmp_path / "gym" / "__init__.py").write_text("from gym.core import Env")
    (tmp_path / "gym" / "core.py").write_text(
        "from fake_clock import spend\nspend(20)\n"
        "class Env:\n    def step(self, action): spend(2); return 0, 0.0, True, {}"
    )
    (tmp_path / "torchrl" / "envs").mkdir(parents=True)
    (tmp_path / "torchrl" / "envs" / "common.py").write_text(
        "import torch\nfrom fake_clock import spend\n"
        "class EnvBase(torch.nn.Module):\n"
        "    batch_size = torch.Size([4, 2])\n"
        "    def step(self, data): return self._step(data)\n"
        "    def reset(self): spend(3)\n"
    )
    found = watch("""
        import importlib, gym as old
        class Old(old.Env):
            def step(self, action):
                spend(1)
                return super().step(action)
        Old().step(0)
        common = importlib.import_module("torchrl.envs.common")
        class New(common.EnvBase):
            def _step(self, data): spend(2)
        env = New()
        env.reset()
        env.step({})
    """)
    assert spans(found) == {"imports": 20, "env_step": 5, "env_reset": 3}
    assert found.env_steps == 1 + 8
    assert found.episodes is None  # TorchRL's does not tell
    for name in ("gym", "gym.core", "torchrl", "torchrl.envs", "torchrl.envs.common"):
        monkeypatch.delitem(sys.modules, name)


def test_stable_baselines_vector_envs_are_stepped_in_two_halves(watch):
    pytest.importorskip("stable_baselines3")
    found = watch("""
        from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
        Env.observation_space = Env.action_space = gym.spaces.Discrete(2)
        envs = VecMonitor(DummyVecEnv([lambda: Env(length=2)] * 3))
        envs.reset()
        envs.step([0] * 3)
        envs.step_async([0] * 3)
        envs.step_wait()
    """)
    took = spans(found)
    assert (took["env_step"], took["env_reset"]) == (12, 18)
    assert (found.env_steps, found.episodes) == (6, 3)


def test_compiled_modules_stay_whole(watch, capsys):
    """The wrapped call is no reason for torch.compile to break a graph."""
    found = watch("""
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward
        compiled = torch.compile(nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.Tanh(), nn.Linear(2, 1))), backend=backend)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
        print(len(graphs))
    """)
    assert capsys.readouterr().out == "1\n"
    assert calls(found)["policy_forward"] == 3


# The trace


def test_events_nest_and_start_with_the_run(watch):
    found = watch("""
        spend(1)
        class Restless(gym.Wrapper):
            def step(self, action):
                spend(1)
                self.env.reset()
                return self.env.step(action)
        Restless(env).step(0)
        Slow.apply(net(x)).sum().backward()
    """)
    second = 10**9
    assert found.sampled == {}
    assert [event for event in found.events if event[2] != "imports"] == [
        (1 * second, 6 * second, "env_step"),
        (2 * second, 3 * second, "env_reset"),
        (7 * second, 6 * second, "loss"),
        (13 * second, 7 * second, "backward"),
    ]


def test_a_span_with_too_many_events_keeps_some_and_says_so(watch, monkeypatch):
    monkeypatch.setattr(foreign, "MOST_EVENTS_OF_A_SPAN", 10)
    found = watch("""
        env.reset()
        for _ in range(35):
            env.step(0)
    """)
    assert found.sampled == {"env_step": 4}
    kept = [start for start, _, name in found.events if name == "env_step"]
    assert kept == [(3 + 2 * (k - 1)) * 10**9 for k in range(4, 36, 4)]
    assert calls(found)["env_step"] == 35


# Running a script as Python does


def run(name: str, *arguments: str) -> ScriptProfile:
    return profile_script(SCRIPTS / name, arguments)


def test_a_script_finds_its_arguments_its_neighbours_and_itself(capsys):
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    found = run("says_how_it_was_started.py", "--steps", "3")
    path = str(SCRIPTS / "says_how_it_was_started.py")
    assert capsys.readouterr().out == f"{[path, '--steps', '3']}\nTrue True\nhello True False\n"
    assert found.exit_code == 0
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_a_failing_script_keeps_its_own_traceback():
    found = run("fails.py")
    plain = subprocess.run([sys.executable, SCRIPTS / "fails.py"], capture_output=True, text=True, check=False)
    assert found.exit_code == plain.returncode == 1
    assert found.traceback == plain.stderr


def test_a_script_with_a_syntax_error_fails_as_in_python(tmp_path):
    (tmp_path / "typo.py").write_text("x = 1\nfor in x:\n")
    found = profile_script(tmp_path / "typo.py", [])
    plain = subprocess.run([sys.executable, tmp_path / "typo.py"], capture_output=True, text=True, check=False)
    assert found.exit_code == 1
    assert found.traceback is not None
    assert found.traceback.splitlines()[-4:] == plain.stderr.splitlines()[-4:]


def test_a_failing_import_shows_the_files_of_the_script_only(tmp_path):
    (tmp_path / "train.py").write_text("import package.part")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import no_such_module_anywhere")
    found = profile_script(tmp_path / "train.py", [])
    plain = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, check=False)
    assert found.traceback == plain.stderr


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [("sys.exit()", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('enough')", 1, "enough\n")],
)
def test_an_exit_keeps_its_code(tmp_path, capsys, source, code, said):
    (tmp_path / "train.py").write_text(f"import sys\n{source}")
    found = profile_script(tmp_path / "train.py", [])
    assert (found.exit_code, found.traceback, capsys.readouterr().err) == (code, None, said)


def test_an_exit_from_deep_inside_keeps_its_code():
    assert run("leaves.py").exit_code == 3


def test_an_interrupted_script_still_has_a_profile(watch, tmp_path):
    (tmp_path / "train.py").write_text(
        "import gymnasium as gym\n"
        "class Stopped(gym.Env):\n    def step(self, action): raise KeyboardInterrupt\n"
        "Stopped().step(0)"
    )
    found = profile_script(tmp_path / "train.py", [])
    assert found.exit_code == 130
    assert found.traceback is not None and found.traceback.endswith("KeyboardInterrupt\n")
    assert calls(found) == {"env_step": 1}


def test_steps_on_other_threads_count_and_their_time_stands_apart():
    found = run("threads.py")
    assert found.traceback is None
    assert (found.env_steps, found.episodes) == (31, 3)
    assert found.breakdown.calls["env_step",] == 1
    assert found.background.calls == {("env_step",): 30, ("env_reset",): 3}


def test_worker_processes_get_classes_of_the_script():
    done = in_a_fresh_process("workers.py")
    assert done["printed"] == "[2. 2.]"
    assert done["env_steps"] == "12"
    assert float(done["env_step"]) > 0  # waiting for the workers


@pytest.mark.parametrize("name", ["says_how_it_was_started.py", "fails.py", "leaves.py", "cleanrl_style.py"])
def test_nothing_stays_wrapped(name, capsys):
    before = entry_points()
    run(name, *(["--updates", "1"] if name == "cleanrl_style.py" else []))
    assert entry_points() == before


def entry_points() -> list[object]:
    """Everything we wrap, as it is now; hooks torch adds to an optimizer's class on first use aside."""
    torch.optim.Adam([torch.zeros(1)])
    classes = [*foreign._family(gymnasium.Env), *foreign._family(gymnasium.vector.VectorEnv)]
    known = [kind for kind in classes if not kind.__module__.startswith("__main__")]
    found: list[object] = [
        vars(kind).get(name) for kind in known[:40] for name in ("step", "reset", "__init_subclass__")
    ]
    found += [torch.nn.Module.__call__, torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad]
    found += [torch.nn.utils.clip_grad_norm_, torch.optim.Optimizer.__init__, torch.optim.Adam.step]
    return [*found, importlib._bootstrap._find_and_load]


# Real training


def in_a_fresh_process(script: str) -> dict[str, str]:
    """Profile a script where nothing is loaded yet. Returns its last line of output, and the profile's numbers."""
    program = (
        "import sys; from pathlib import Path; from redline.profiler.foreign import profile_script\n"
        "loaded = {'torch', 'gymnasium', 'numpy'} & set(sys.modules)\n"
        "if __name__ == '__main__':\n"
        "    found = profile_script(Path(sys.argv[1]), [])\n"
        "    for path, seconds in found.breakdown.seconds.items(): print(path[0], seconds)\n"
        "    print('env_steps', found.env_steps); print('loaded_before', loaded); print('error', found.traceback)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(foreign.__file__).parents[2])}
    command = [sys.executable, "-c", program, str(SCRIPTS / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    *printed, numbers = done.stdout.split("imports ", 1)
    rows = ("imports " + numbers).strip().splitlines()
    return {"printed": "".join(printed).strip(), **{row.split(" ", 1)[0]: row.split(" ", 1)[1] for row in rows}}


def unwatched(script: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script])
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    return said.getvalue()


@pytest.mark.parametrize(("script", "env_steps"), [("cleanrl_style.py", 512), ("sb3_ppo.py", 2048)])
def test_a_real_ppo_does_the_same_watched(script, env_steps, capsys, monkeypatch, tmp_path):
    if script == "sb3_ppo.py":
        pytest.importorskip("stable_baselines3")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # for the folder that SB3 leaves behind
    found = run(script)
    assert found.traceback is None
    assert capsys.readouterr().out == unwatched(script)
    assert found.env_steps == env_steps
    assert found.episodes is not None and found.episodes > 5
    took = {name: found.breakdown.seconds[name,] for name in NAMES.values() if name != "imports"}  # all loaded already
    assert min(took.values()) > 0, took
    assert sum(found.breakdown.seconds.values()) == pytest.approx(found.breakdown.total_seconds, rel=1e-6)


def test_a_script_pays_for_its_own_imports():
    done = in_a_fresh_process("cleanrl_style.py")
    assert done["error"] == "None"
    assert done["loaded_before"] == "set()"
    assert float(done["imports"]) > 0.1  # torch alone takes longer
    assert done["printed"].startswith("512 ")
    assert min(float(done[name]) for name in NAMES.values()) > 0


# What cannot be run


def test_a_missing_script_names_the_nearest(tmp_path):
    (tmp_path / "train.py").touch()
    with pytest.raises(RedlineError, match=r"There is no script .*trian\.py\. Try --script .*train\.py\."):
        profile_script(tmp_path / "trian.py", [])


def test_a_directory_is_no_script(tmp_path):
    (tmp_path / "agent.py").touch()
    (tmp_path / "train.py").touch()
    with pytest.raises(RedlineError, match=r"is a directory, not a script\. Try --script .*train\.py\."):
        profile_script(tmp_path, [])


def test_a_notebook_is_no_script(tmp_path):
    (tmp_path / "train.ipynb").write_text("{}")
    with pytest.raises(RedlineError, match=r"is not a Python file.* Try --script train\.py\."):
        profile_script(tmp_path / "train.ipynb", [])


def test_a_script_gets_advice_a_page_and_a_rate_without_its_imports(tmp_path):
    script = tmp_path / "slow_steps.py"
    script.write_text(
        "import time, gymnasium as gym\n"
        "class Slow(gym.Wrapper):\n"
        "    def step(self, action):\n"
        "        time.sleep(0.002)\n"
        "        return super().step(action)\n"
        "env = Slow(gym.make('CartPole-v1'))\n"
        "env.reset(seed=0)\n"
        "for _ in range(8):\n"
        "    env.step(0)\n"
    )
    page = tmp_path / "profile.html"
    command = [sys.executable, "-m", "redline", "profile", "--json", "--html", str(page), "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    imports = next(row["seconds"] for row in found["rows"] if row["name"] == "imports")
    assert found["working_seconds"] == pytest.approx(found["total_seconds"] - imports)
    assert found["steps_per_second_without_imports"] > found["steps_per_second"] and imports > 0
    assert "redline.vector(…, 'shared')" in html.unescape(page.read_text())
    assert cores() == 1 or found["advice"][0]["estimate"] > 1.05


def test_an_option_behind_the_script_is_pointed_out(tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("pass\n")
    command = [sys.executable, "-m", "redline", "profile", "--script", str(script), "--html", "page.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "--html went to the script. If it was meant for us: redline profile --html" in done.stdout
    assert "It stepped no env" in done.stdout and "expected" not in done.stdout
