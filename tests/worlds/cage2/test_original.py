"""The adapter for CybORG, on a tiny stand-in with the same habits, and on the real one where it is installed."""

import importlib.util
import random
import sys

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.cage2.env import Cage2VectorEnv
from redline.worlds.cage2.original import INSTALL, make_cyborg
from redline.worlds.cage2.rules.scenario import describe_action

FAKE = {
    "__init__.py": """
        import sys
        print("A lecture about upgrading.", file=sys.stderr)
        from CybORG.CybORG import CybORG
    """,
    "CybORG.py": """
        import random
        from pathlib import Path
        from types import SimpleNamespace as Thing

        class Whole:
            def __init__(self, hosts):
                self.data = {name: {"System info": {"Hostname": name, "OSType": "LINUX"},
                                    "Processes": [{"Process Name": process.name} for process in host.processes],
                                    "Sessions": [{"Agent": "Red", "Username": "root"}] * len(host.sessions["Red"])}
                             for name, host in hosts.items()}
            def filter_addresses(self, ips=None):
                pass

        class Controller:
            INFO_DICT = {"True": {}}
            def __init__(self):
                self.wholes_built = 0
            def reset(self):
                self.state = Thing(sessions={"Red": {}}, hosts={})
                for name in ("User1", "Op_Server0"):
                    self.state.hosts[name] = Thing(os_type="LINUX", processes=[Thing(name="OTService")],
                                                   sessions={"Red": []})
            def get_true_state(self, info):
                self.wholes_built += 1
                return Whole(self.state.hosts)
            def step(self, agent, action):
                host = self.state.hosts[random.choice(["User1", "Op_Server0"])]
                ident = len(self.state.sessions["Red"])
                self.state.sessions["Red"][ident] = Thing(username=random.choice(["root", "pi"]))
                if self.state.sessions["Red"][ident].username == "root":
                    host.sessions["Red"].append(ident)
                true_state = self.get_true_state(self.INFO_DICT["True"])
                true_state.filter_addresses(ips=[])
                held = [info for info in true_state.data.values()
                        if {"Agent": "Red", "Username": "root"} in info["Sessions"] and info["Processes"]
                        and info["System info"]["OSType"] == "LINUX"]
                return round(-0.1 * len(held) - len(str(action)) / 10, 1)

        class CybORG:
            def __init__(self, scenario_file, environment, agents):
                assert Path(scenario_file).read_text() == "CAGE-2"
                self.agents, self.environment_controller = agents, Controller()
                random.random()
    """,
    "Agents/__init__.py": """
        class B_lineAgent: ...
        class RedMeanderAgent: ...
        class SleepAgent: ...
        class GreenAgent: ...
    """,
    "Agents/Wrappers/__init__.py": """
        import random
        from types import SimpleNamespace as Thing
        import numpy as np
        from redline.worlds.cage2.rules.scenario import describe_action

        class Enum:
            possible_actions = [describe_action(action) for action in range(145)]
            lists_made = 0
            def action_space_change(self, space):
                self.lists_made += 1
                return 145

        class ChallengeWrapper:
            def __init__(self, agent_name, env):
                assert agent_name == "Blue"
                self.simulator, self.env = env, Thing(env=Enum())
            def reset(self):
                self.simulator.environment_controller.reset()
                return np.zeros(52, int)
            def step(self, action):
                enum = self.env.env
                reward = self.simulator.environment_controller.step("Blue", enum.possible_actions[action])
                assert enum.action_space_change({}) == 145
                bits = np.array([random.randrange(2) for _ in range(52)])
                return bits, reward, False, {"large": self}
    """,
    "Shared/Scenarios/Scenario2.yaml": "CAGE-2",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder first on the import path, with no CybORG imported before or after."""
    monkeypatch.syspath_prepend(tmp_path)
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "CybORG"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path / "CybORG"
    for name in [name for name in sys.modules if name.partition(".")[0] == "CybORG"]:
        del sys.modules[name]


@pytest.fixture
def fake(folder):
    for path, text in FAKE.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.splitlines()]
        (folder / path).write_text("\n".join(lines))
    return folder


@pytest.fixture
def real():
    if importlib.util.find_spec("CybORG") is None:
        pytest.skip("CybORG is not installed")


def play(env, seed, num_steps=40):
    script = random.Random(seed)
    obs, _ = env.reset(seed=seed)
    return [obs.tolist(), *(answer(env, script) for _ in range(num_steps))]


def answer(env, script):
    obs, *rest = env.step(script.randrange(145))
    return [obs.tolist(), *rest]


def message(red_agent="B_lineAgent", **options):
    """The one line somebody sees who asks for this env."""
    with pytest.raises(RedlineError) as error:
        make_cyborg(red_agent, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_cyborg_the_error_tells_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "CybORG", None)
    assert message() == f"The env 'cyborg' needs CybORG, which is not installed. Try: {INSTALL}"


def test_a_package_cyborg_needs_is_named_when_missing(fake):
    (fake / "Agents" / "__init__.py").write_text("import a_gym_of_old")
    assert "needs a_gym_of_old, which is not installed" in message()


def test_an_installation_without_data_files_is_told_from_a_missing_one(fake):
    (fake / "__init__.py").write_text("open('version.txt that is not there')")
    assert "not a whole CAGE-2 one" in message() and INSTALL in message()


def test_a_cyborg_of_another_challenge_is_refused(fake):
    (fake / "Shared" / "Scenarios" / "Scenario2.yaml").unlink()
    assert "has no CAGE-2 scenario" in message()
    (fake / "Agents" / "Wrappers" / "__init__.py").write_text("")
    del sys.modules["CybORG.Agents.Wrappers"]
    assert "ChallengeWrapper" in message()


def test_actions_in_another_order_are_refused(fake):
    path = fake / "Agents" / "Wrappers" / "__init__.py"
    path.write_text(path.read_text().replace("range(145)]", "reversed(range(145))]"))
    assert "not CAGE-2's 145 in their order" in message()


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("red_agent", "options", "says"),
    [
        ("b_line", {}, "no red agent 'b_line'. Did you mean 'B_lineAgent'?"),
        ("B_lineAgent", {"max_step": 3}, "no cyborg option 'max_step'. Did you mean 'max_steps'?"),
        ("B_lineAgent", {"max_steps": -1}, "Try --max-steps 100"),
        ("B_lineAgent", {"green_agent": "Green"}, "Did you mean 'GreenAgent'?"),
    ],
)
def test_what_cannot_be_played_is_refused(red_agent, options, says):
    assert says in message(red_agent, **options)


@pytest.mark.usefixtures("fake")
def test_the_chosen_agents_play():
    env = make_cyborg("RedMeanderAgent", green_agent="GreenAgent")
    names = {side: agent.__name__ for side, agent in env.unwrapped.cyborg.agents.items()}
    assert names == {"Red": "RedMeanderAgent", "Green": "GreenAgent"}


@pytest.mark.usefixtures("fake")
def test_its_spaces_are_those_of_our_own_env():
    env, ours = make_cyborg("B_lineAgent"), Cage2VectorEnv(1, turbo=False)
    assert env.observation_space == ours.single_observation_space
    assert env.action_space == ours.single_action_space


@pytest.mark.usefixtures("fake")
def test_four_answers_of_the_old_api_become_five():
    env = make_cyborg("B_lineAgent", max_steps=2)
    obs, info = env.reset(seed=0)
    assert env.observation_space.contains(obs) and info == {}
    obs, reward, terminated, truncated, info = env.step(np.int64(3))
    assert env.observation_space.contains(obs) and type(reward) is float
    assert (terminated, truncated, info) == (False, False, {})
    assert env.step(3)[2:4] == (False, True)


@pytest.mark.usefixtures("fake")
def test_max_steps_counts_from_the_latest_reset():
    env = make_cyborg("B_lineAgent", max_steps=3)
    assert [step[3] for step in play(env, 0, 2)[1:]] == [False, False]
    assert [step[3] for step in play(env, 0, 3)[1:]] == [False, False, True]


@pytest.mark.usefixtures("fake")
def test_a_seed_plays_what_the_original_plays_after_seeding_the_global_generator():
    env = make_cyborg("B_lineAgent")
    env.reset(seed=11)
    ours = [env.step(0)[0].tolist() for _ in range(5)]
    random.seed(11)
    env._challenge.reset()
    assert [env._challenge.step(0)[0].tolist() for _ in range(5)] == ours


@pytest.mark.usefixtures("fake")
def test_envs_with_equal_seeds_play_equal_episodes_interleaved_or_not():
    assert_episodes_are_reproducible()


@pytest.mark.usefixtures("fake")
def test_other_seeds_and_no_seed_play_other_episodes():
    env = make_cyborg("B_lineAgent")
    assert play(env, 1) != play(env, 2)
    assert play(make_cyborg("B_lineAgent"), None) != play(make_cyborg("B_lineAgent"), None)


@pytest.mark.usefixtures("fake")
def test_nobody_elses_randomness_is_disturbed():
    assert_globals_are_left_alone()


@pytest.mark.usefixtures("fake")
def test_an_error_inside_gives_the_global_generator_back():
    env = make_cyborg("B_lineAgent")
    env.reset(seed=0)
    env._challenge.step = lambda action: random.seed(0) or 1 / 0
    before = random.getstate()
    with pytest.raises(ZeroDivisionError):
        env.step(0)
    assert random.getstate() == before


@pytest.mark.usefixtures("fake")
def test_skipping_what_nobody_reads_changes_nothing():
    whole, lean = make_cyborg("B_lineAgent", lean=False), make_cyborg("B_lineAgent")
    assert play(whole, 4) == play(lean, 4)
    assert [env.cyborg.environment_controller.wholes_built for env in (whole, lean)] == [40, 0]
    assert [env._challenge.env.env.lists_made for env in (whole, lean)] == [40, 0]


@pytest.mark.usefixtures("fake")
def test_who_asks_for_the_true_state_gets_all_of_it():
    env = make_cyborg("B_lineAgent")
    play(env, 4)
    controller = env.cyborg.environment_controller
    assert type(controller.get_true_state({})).__name__ == "Whole"


@pytest.mark.usefixtures("fake")
def test_importing_it_says_nothing(capsys):
    make_cyborg("B_lineAgent")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("fake")
def test_a_step_before_the_first_reset_and_a_missing_action_are_refused():
    env = make_cyborg("B_lineAgent")
    with pytest.raises(RedlineError, match="Call reset first"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(RedlineError, match="0 to 144; got 145"):
        env.step(145)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("red_agent", ["B_lineAgent", "RedMeanderAgent", "SleepAgent"])
@pytest.mark.parametrize("green_agent", ["SleepAgent", "GreenAgent"])
def test_the_real_one_plays_the_same_episodes_lean_or_not(red_agent, green_agent):
    whole, lean = (make_cyborg(red_agent, green_agent=green_agent, lean=lean) for lean in (False, True))
    for seed in range(2):
        assert play(whole, seed) == play(lean, seed)
        assert whole._stream == lean._stream  # not one draw more or less


@pytest.mark.usefixtures("real")
def test_the_real_one_is_reproducible_and_leaves_globals_alone():
    assert_episodes_are_reproducible()
    assert_globals_are_left_alone()


@pytest.mark.usefixtures("real")
def test_the_real_one_numbers_its_actions_as_we_do():
    env = make_cyborg("B_lineAgent", lean=False)
    for action in (0, 1, 2, 27, 28, 131, 132, 144):
        env.reset(seed=0)
        env.step(action)
        assert str(env.cyborg.get_last_action("Blue")) == describe_action(action)


def assert_episodes_are_reproducible():
    one, other = make_cyborg("B_lineAgent"), make_cyborg("B_lineAgent")
    alone = play(one, 7)
    assert play(other, 7) == alone

    scripts = random.Random(7), random.Random(7)
    episodes = [[env.reset(seed=7)[0].tolist()] for env in (one, other)]
    for _ in range(40):
        for env, script, episode in zip((one, other), scripts, episodes, strict=True):
            episode.append(answer(env, script))
    assert episodes == [alone, alone]


def assert_globals_are_left_alone():
    before, numpy_before = random.getstate(), np.random.get_state()
    play(make_cyborg("B_lineAgent"), 3)
    assert random.getstate() == before
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_before, strict=True))
