import sys

import gymnasium as gym
import pytest

from redline.errors import RedlineError
from redline.worlds.python.external import load_factory, make_external

GOOD = """
import gymnasium as gym

seen = []

class Room(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    @classmethod
    def small(cls):
        return cls()

def make_room(size=3):
    seen.append(size)
    return Room()

def make_many():
    return gym.make_vec("CartPole-v1", num_envs=2)

class OldEnv:
    def reset(self): ...
    def step(self, action): ...

class Spaceless(Room):
    action_space = None

def forget():
    OldEnv()

def fail():
    raise KeyError("my own trouble")

number = 3
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The working directory, not yet importable, with a way to write modules into it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def rooms(workplace):
    workplace("rooms.py", GOOD)


def message(spec, **options):
    """The one line somebody sees who asks for `spec`."""
    with pytest.raises(RedlineError) as error:
        make_external(spec, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.usefixtures("rooms")
def test_a_factory_in_the_working_directory_makes_the_env_with_its_options():
    env = make_external("external:rooms:make_room", size=5)
    assert isinstance(env, gym.Env)
    assert load_factory("external:rooms:seen.copy")() == [5]


@pytest.mark.usefixtures("rooms")
@pytest.mark.parametrize("attribute", ["Room", "Room.small"])
def test_a_class_and_a_dotted_name_are_factories_too(attribute):
    assert type(make_external(f"external:rooms:{attribute}")).__name__ == "Room"


def test_a_module_may_sit_in_a_package(workplace):
    workplace("house/__init__.py", "")
    workplace("house/rooms.py", GOOD)
    assert load_factory("external:house.rooms:make_room").__module__ == "house.rooms"


def test_an_installed_package_needs_no_file_here():
    assert load_factory("external:gymnasium.envs.classic_control:CartPoleEnv").__name__ == "CartPoleEnv"


@pytest.mark.usefixtures("rooms")
def test_the_working_directory_becomes_importable_once():
    load_factory("external:rooms:make_room")
    after_one = list(sys.path)
    load_factory("external:rooms:make_room")
    assert sys.path == after_one


@pytest.mark.parametrize(
    "spec", ["external:", "external:rooms", "external:rooms:", "external::make",
             "external:./rooms:make", "external:rooms:make:it", "external:rooms:make()"],
)  # fmt: skip
def test_a_name_without_a_factory_is_told_the_right_form(spec):
    assert (
        message(spec)
        == f"The env {spec!r} does not name a factory. Write external:package.module:factory, or external:./file.py:factory."
    )


def test_a_missing_module_is_named_with_the_places_searched(workplace, tmp_path):
    text = message("external:nowhere_at_all.rooms:make")
    assert "no module 'nowhere_at_all'" in text and str(tmp_path) in text and "installed packages" in text
    workplace("house/__init__.py", "")
    assert "no module 'house.cellar'" in message("external:house.cellar:make")


def test_a_module_that_fails_to_import_tells_type_message_and_place(workplace, tmp_path):
    workplace("broken.py", "x = 1\n\nraise ValueError('no licence\\nfound')\n")
    text = message("external:broken:make")
    assert text == f"The module 'broken' cannot be imported: ValueError: no licence found ({tmp_path}/broken.py:3)."


def test_a_module_with_a_missing_dependency_tells_which_and_where(workplace, tmp_path):
    workplace("needy.py", "\nimport not_a_module_at_all\n")
    text = message("external:needy:make")
    assert "ModuleNotFoundError: No module named 'not_a_module_at_all'" in text and f"{tmp_path}/needy.py:2" in text


def test_a_module_with_a_slip_of_the_pen_tells_where(workplace, tmp_path):
    workplace("slip.py", "def make(:\n")
    assert f"SyntaxError: invalid syntax ({tmp_path}/slip.py:1)" in message("external:slip:make")


def test_a_script_that_exits_when_imported_does_not_take_redline_along(workplace, tmp_path):
    workplace("script.py", "import sys\nsys.exit(3)\n")
    assert f"SystemExit: 3 ({tmp_path}/script.py:2)" in message("external:script:make")


@pytest.mark.usefixtures("rooms")
def test_a_misspelt_factory_gets_the_nearest_name():
    assert "no rooms factory 'make_rom'. Did you mean 'make_room'?" in message("external:rooms:make_rom")
    assert "no rooms.Room factory 'smal'. Did you mean 'small'?" in message("external:rooms:Room.smal")


def test_a_module_without_anything_callable_says_so(workplace):
    workplace("empty.py", "")
    assert message("external:empty:make") == "There is no empty factory 'make', nor anything else that could be called."


@pytest.mark.usefixtures("rooms")
def test_what_cannot_be_called_is_refused():
    assert "an object of type int, which cannot be called" in message("external:rooms:number")


@pytest.mark.usefixtures("rooms")
def test_an_option_the_factory_does_not_take_is_named():
    text = message("external:rooms:make_room", colour="red")
    assert "(size=3)" in text and "'colour'" in text


@pytest.mark.usefixtures("rooms")
@pytest.mark.parametrize(
    ("attribute", "advice"),
    [
        ("make_many", "Return a single one"),
        ("OldEnv", "type OldEnv, which is no gymnasium.Env though it has step and reset. Wrap it"),
        ("forget", "returns None, which is no gymnasium.Env. Return one."),
        ("Spaceless", "whose action_space is None. Give it a space, such as gymnasium.spaces.Discrete(2)."),
    ],
)
def test_a_factory_that_makes_no_env_is_told_what_to_return(attribute, advice):
    assert advice in message(f"external:rooms:{attribute}")


@pytest.mark.usefixtures("rooms")
def test_trouble_inside_the_factory_is_left_as_it_is():
    with pytest.raises(KeyError, match="my own trouble"):
        make_external("external:rooms:fail")
