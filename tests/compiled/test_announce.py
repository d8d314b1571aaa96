from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from redline.compiled import announce, announce_compilation, kernel
from redline.compiled.announce import Ticker


class Terminal(io.StringIO):
    """What a user sees, as one string."""

    def isatty(self) -> bool:
        return True


def sit_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "__stderr__", terminal)
    return terminal


def uncached(formula: str, module: str) -> Any:
    """A kernel of a module that no earlier process can have compiled."""
    scope: dict[str, Any] = {"__name__": module, "kernel": kernel}
    exec(f"@kernel\ndef part(n):\n    return n + 1\n\n@kernel\ndef changed(n):\n    return {formula}", scope)
    return scope["changed"]


def test_it_is_said_once_and_only_when_the_kernel_is_really_compiled(capsys):
    changed = uncached("part(n) + 2", "first")
    announce_compilation(changed, "first kernel", 15)
    announce_compilation(changed, "first kernel", 15)
    assert capsys.readouterr().err == ""
    assert changed(1) == 4
    assert capsys.readouterr().err == "Compiling the first kernel (once on this machine, about 15 seconds) …\n"
    announce_compilation(changed, "first kernel", 15)
    changed(1.5)
    assert capsys.readouterr().err == ""


def test_another_kernel_of_the_module_may_be_the_first(capsys):
    announce_compilation(uncached("n", "second"), "second kernel", 15)
    uncached("2 * n", "second")(1)
    assert "Compiling the second kernel" in capsys.readouterr().err
    uncached("3 * n", "second")(1)
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_other_kernels_nor_of_plain_functions(capsys):
    announce_compilation(len, "third kernel", 15)
    uncached("n", "third")(1)
    assert capsys.readouterr().err == ""


def test_a_kernel_that_does_not_compile_leaves_its_line_ended(monkeypatch):
    terminal = sit_at_a_terminal(monkeypatch)
    for n in range(2):
        wrong = uncached("n.no_such_thing", "wrong")
        announce_compilation(wrong, "wrong kernel", 15)
        with pytest.raises(Exception, match="no_such_thing"):
            wrong(1)
        assert terminal.getvalue().count("…\n") == 1, n


def test_a_terminal_shows_the_seconds_pass(monkeypatch):
    terminal = sit_at_a_terminal(monkeypatch)
    monkeypatch.setattr(announce, "PATIENCE", 0.01)
    ticker = Ticker("Compiling …", terminal)
    while " s" not in terminal.getvalue():
        pass
    ticker.stop()
    assert terminal.getvalue() == "Compiling …\rCompiling … 0 s\n"


def test_a_second_kernel_of_the_name_shows_itself_only_if_it_takes_long(monkeypatch):
    terminal = sit_at_a_terminal(monkeypatch)
    Ticker("Compiling …", terminal, is_news=False).stop()
    assert terminal.getvalue() == ""
    monkeypatch.setattr(announce, "PATIENCE", 0.01)
    ticker = Ticker("Compiling …", terminal, is_news=False)
    while " s" not in terminal.getvalue():
        pass
    ticker.stop()
    assert terminal.getvalue() == "\rCompiling … 0 s\n"


def test_whoever_draws_in_the_terminal_gets_whole_lines(monkeypatch):
    stand_in = Terminal()  # is not sys.__stderr__
    Ticker("Compiling …", stand_in).stop()
    assert stand_in.getvalue() == "Compiling …\n"
