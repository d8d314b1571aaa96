"""Whatever a command is at, a signal that asks it to end does so with the right code, one line, and nothing lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from redline.learn import checkpoint
from redline.signals import Interrupt, Interrupted, exit_code_of, held_back

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
COMMAND = """
import atexit, ctypes, os, signal, sys, threading, time
import redline.cli as cli
from redline.signals import Interrupt

def tell(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)
    return 0

def work(arguments):
    {}

cli.command = lambda name: work
sys.argv = ["redline", "eval", "x"]
sys.exit(cli.main())
"""


def run(work: str) -> subprocess.CompletedProcess[str]:
    """A command that does nothing but this."""
    script = COMMAND.format(work.replace("\n", "\n    "))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_is_ended_by_any_signal_with_one_line(number: int) -> None:
    done = run(f"return tell({int(number)}, {int(number)})")
    assert (done.returncode, done.stderr) == (128 + number, "redline: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_whoever_raises_another_interrupt_in_the_place_of_ours_changes_no_exit_code(number: int) -> None:
    as_ray_does = "raise KeyboardInterrupt from None"
    done = run(f"try:\n    tell({int(number)})\nexcept KeyboardInterrupt:\n    {as_ray_does}")
    assert (done.returncode, done.stderr) == (128 + number, "redline: interrupted\n")


def test_another_signal_while_a_command_tidies_up_is_the_same_one() -> None:
    done = run("try:\n    tell(2)\nfinally:\n    tell(2, 15, 1)\n    print('tidy')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "tidy\n", "redline: interrupted\n")


def test_a_signal_that_comes_when_all_is_done_changes_nothing() -> None:
    done = run("atexit.register(tell, 2, 15)\nprint('done')\nreturn 2")
    assert (done.returncode, done.stdout, done.stderr) == (2, "done\n", "")


def test_a_signal_that_comes_when_python_is_gone_changes_nothing() -> None:
    libc = "libc = ctypes.CDLL(None)\nlibc.on_exit(getattr(libc, 'raise'), None)\n"
    assert run(f"{libc}return 2  # so that the process raises signal 2 at its very end").returncode == 2


def test_what_nohup_has_made_deaf_stays_so() -> None:
    script = COMMAND.format("return tell(1)").replace("import redline.cli", "signal.signal(1, 1)\nimport redline.cli")
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0


def test_a_second_signal_is_the_same_one_however_late_it_is_heard() -> None:
    listening = (
        "now = iter(range(0, 10**6, 100))\ntime.monotonic = lambda: next(now)\nwith Interrupt().listening() as asked:\n"
    )
    done = run(f"{listening}    tell(2)\n    tell(2)\n    return asked.exit_code")
    assert (done.returncode, done.stderr) == (130, "")


def test_another_second_leaves_at_once() -> None:
    done = run("with Interrupt().listening():\n    tell(2)\n    time.sleep(1.5)\n    tell(2)\n    time.sleep(1000)")
    assert done.returncode == -signal.SIGINT


def test_a_signal_is_held_back_though_other_threads_would_take_it() -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt), held_back():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            waited = True
        assert waited
    finally:
        over.set()
        other.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_held_back_is_heard_by_whoever_listens() -> None:
    before, asked = signal.getsignal(signal.SIGTERM), Interrupt()
    with held_back():
        os.kill(os.getpid(), signal.SIGTERM)
        with asked.listening():
            pass
        assert asked.exit_code == 143 and signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_code_of_an_interruption_tells_the_signal() -> None:
    assert exit_code_of(Interrupted(signal.SIGTERM)) == 143 and exit_code_of(KeyboardInterrupt()) == 130


def test_a_run_whose_terminal_goes_is_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--num-envs", "4", "--num-steps", "10", "--total-steps", "1000000000", "--run-dir", str(run)]
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "redline", "train", "slow?mean_ms=0.2", *options])
    while not (run / "metrics.csv").exists():
        os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGHUP
    assert checkpoint.load(checkpoint.latest(run / "checkpoints")).step > 0
