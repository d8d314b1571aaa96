"""`redline completion`: what the Tab key may finish, for bash, zsh and fish.

A shell's script is a few lines that ask `redline completion --words …` for candidates, so that it never goes out of date:
options are those of the command as it stands on the line, env and all.
"""

from __future__ import annotations

from argparse import Action
from collections.abc import Iterable
from typing import NamedTuple

from redline.cli import COMMANDS, command
from redline.cli.bench import KINDS
from redline.cli.options import HELP, Asked, Parser, asking
from redline.errors import RedlineError, unknown

WORDS = "--words"
BASH = r"""
_redline() {
    local line="${COMP_LINE:0:COMP_POINT}" words current whole candidate about
    read -ra words <<< "$line"
    if [[ "$line" == *[[:space:]] ]]; then words+=(""); fi
    current="${words[${#words[@]} - 1]}"
    whole="${current%"${current##*[:=]}"}"  # bash finishes only what follows the last colon or equals sign
    COMPREPLY=()
    while IFS=$'\t' read -r candidate about; do
        COMPREPLY+=("${candidate#"$whole"}")
    done < <("${words[0]}" completion --words "${words[@]:1}" 2> /dev/null)
}
complete -o default -F _redline redline
"""
ZSH = r"""
#compdef redline
_redline() {
    local -a candidates
    local candidate about
    while IFS=$'\t' read -r candidate about; do
        candidates+=("${candidate//:/\\:}:$about")
    done < <("${words[1]}" completion --words "${(@)words[2,CURRENT]}" 2> /dev/null)
    if (( $#candidates )); then _describe redline candidates; else _files; fi
}
compdef _redline redline
"""
FISH = r"""
function __redline_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    test (count $current) -gt 0; or set current ""
    $words[1] completion --words $words[2..-1] $current 2> /dev/null
end
complete -c redline -a '(__redline_candidates)'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
HOW = {
    "bash": 'eval "$(redline completion bash)"      # a line for ~/.bashrc',
    "zsh": 'eval "$(redline completion zsh)"       # a line for ~/.zshrc, below compinit',
    "fish": "redline completion fish | source       # a line for ~/.config/fish/config.fish",
}


class Candidate(NamedTuple):
    """A word that may stand where the cursor is, and a few words about it."""

    text: str
    about: str = ""


def run(arguments: list[str]) -> int:
    """Print a shell's script, or the candidates for the last of the words that it asks about."""
    if not arguments or arguments[0] in HELP:
        print("usage: redline completion bash|zsh|fish\n\n" + "\n".join(f"  {line}" for line in HOW.values()))
        return 0
    if arguments[0] == WORDS:
        for candidate in candidates(arguments[1:] or [""]):
            print(f"{candidate.text}\t{candidate.about}")
        return 0
    if arguments[0] not in SHELLS:
        raise unknown("shell to complete in", arguments[0], SHELLS)
    print(SHELLS[arguments[0]].strip())
    return 0


def candidates(words: list[str]) -> list[Candidate]:
    """The words that may stand in place of the last one; none where that is up to the user, or the name of a file."""
    *before, current = words
    found = [Candidate(*each) for each in (_commands(before) or _arguments(before, current))]
    return [each for each in found if each.text.startswith(current)]


def _commands(before: list[str]) -> Iterable[tuple[str, str]]:
    """The commands, or what follows a command that has commands of its own."""
    if not before:
        return COMMANDS.items()
    return {"bench": KINDS, "completion": HOW}.get(" ".join(before), {}).items()


def _arguments(before: list[str], current: str) -> Iterable[tuple[str, str]]:
    """Words that may follow a command and the arguments it has so far: options, names of envs, choices."""
    parser = _asked(before)
    if parser is None:
        return []
    options = parser.switches()
    waiting = options.get(before[-1])
    if waiting is not None and waiting.nargs != 0:
        return [(choice, "") for choice in _values(waiting)]
    if current.startswith("-"):
        return [(spelling, str(each.help)) for spelling, each in options.items()]
    words = parser.words()
    return [(name, "") for each in words for name in _values(each)]


def _asked(before: list[str]) -> Parser | None:
    """The parser of the command that the words begin with; None where that is no command."""
    name, rest = ("_".join(before[:2]), before[2:]) if before[0] == "bench" else (before[0], before[1:])
    if name not in (*COMMANDS, *(f"bench_{kind}" for kind in KINDS)):
        return None
    for arguments in ([*rest, "--help"], ["--help"]):  # where the env is unknown or half written, there are options yet
        try:
            with asking():
                command(name)(arguments)
        except Asked as answer:
            return answer.parser
        except (RedlineError, OSError):
            continue
    return None


def _values(argument: Action) -> Iterable[str]:
    """The values of an argument that can be listed."""
    if argument.dest in ("env", "world", "target"):
        from redline.worlds.registry import known_names

        return known_names()
    if argument.dest == "engine":
        from redline.engines import AUTO, ENGINES

        return [*ENGINES, AUTO]
    metavar = str(argument.metavar)
    return metavar.split("|") if "|" in metavar else []
