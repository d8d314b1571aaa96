"""`redline new`: a world of one's own to start from."""

from __future__ import annotations

import dataclasses
import importlib.util
import keyword
import shlex
import string
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError
from redline.files import reason
from redline.worlds.registry import all_worlds

TEMPLATES = {  # where each file goes
    "world.py.txt": "{name}.py",
    "test_world.py.txt": "tests/test_{name}.py",
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
}


@dataclass(frozen=True)
class New:
    """Write a working world into a new folder: its rules, tests in three lines, and a package that announces it."""

    name: Annotated[str, "positional"]
    """Name of the world, which is also that of its module and folder."""
    folder: Path = Path(".")
    """Where the new folder goes."""
    seed: int = 0
    """Accepted by every command; nothing is drawn at random here."""
    output: Output = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse a name that could not be used."""
        if not self.name.isidentifier() or keyword.iskeyword(self.name) or self.name != self.name.lower():
            raise RedlineError(f"{self.name!r} cannot be the name of a module. Try small letters, such as my_world.")
        if any(world.name == self.name or world.owns(self.name) for world in all_worlds()):
            raise RedlineError(f"There is a world {self.name!r} already. Try my_{self.name}.")
        if importlib.util.find_spec(self.name) is not None:
            raise RedlineError(
                f"There is a module {self.name!r} already, which would be in the way. Try my_{self.name}."
            )


def run(arguments: list[str]) -> int:
    """Parse and write."""
    command = parse("new", New, arguments)
    folder = command.folder / command.name
    files = written(command.name, folder)
    if command.output.json:
        print_json({"folder": str(folder), "files": [str(file) for file in files]})
        return 0
    for file in files:
        out.print(str(file), soft_wrap=True, markup=False)
    if not command.output.quiet:
        out.print(f"\nNext:  cd {shlex.quote(str(folder))}", soft_wrap=True, markup=False)
        out.print("       python -m pytest", soft_wrap=True)
        out.print(f"       redline train world:{command.name}:WORLD", soft_wrap=True)
    return 0


def written(name: str, folder: Path) -> list[Path]:
    """The files of a new world, written into a folder that must not be there yet."""
    templates = resources.files("redline.cli") / "new_world"
    words = {"name": name, "Name": "".join(part.capitalize() for part in name.split("_"))}
    files = []
    try:
        folder.mkdir(parents=True)
        (folder / "tests").mkdir()
        for template, place in TEMPLATES.items():
            files.append(folder / place.format(name=name))
            text = (templates / template).read_text()
            files[-1].write_text(string.Template(text).substitute(words))
    except FileExistsError as error:
        raise RedlineError(
            f"{folder} is there already, and nothing in it is overwritten. Pass another name."
        ) from error
    except OSError as error:
        raise RedlineError(f"{folder} cannot be written: {reason(error)}. Pass another --folder.") from error
    return files
