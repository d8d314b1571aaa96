"""The learner compiled on another core, while this process compiles the world.

The learner's kernels depend on nothing but the number of layers. On a machine where nothing is compiled yet a second
process begins with the two largest, what the network answers and the gradient, and with those that only some runs need
and that would hold up their first updates. Who needs one that it is at waits for it
(`redline.compiled.turn`), and compiles one that it has not come to.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading

import numpy as np

from redline.compiled.speed import is_cached
from redline.learn.batch import Minibatch
from redline.learn.config import TrainConfig
from redline.learn.gae import gae
from redline.learn.heads.categorical import Categorical, write_gradient
from redline.learn.network.inputs import FEW, seen
from redline.learn.network.layers import Network
from redline.learn.network.one_call import gradient_in_one_call
from redline.learn.network.steady_pass import answer, forward
from redline.threads import cores

BEGIN = "from redline.learn.ahead import main; main(int(sys.argv[1]))"
"""What the other process runs, with modules from where this one takes them and from nowhere else."""

_begun: list[subprocess.Popen[bytes]] = []


def compile_ahead(config: TrainConfig) -> None:
    """Begin to compile the learner of a run on another core, unless that is done already or would be of no use."""
    if _begun or cores() < 2 or config.threads == 1 or not _is_usual(config) or _is_there():
        return
    command = [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{BEGIN}", str(len(config.hidden))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    _begun.append(process)
    threading.Thread(target=process.wait, daemon=True).start()  # or it would stay about as a child that has ended
    atexit.register(_end)


def _is_usual(config: TrainConfig) -> bool:
    """Whether the network is likely to be one of fully connected layers that is worked out here."""
    own = config.network is not None or config.make_network is not None
    usual = config.activation == "tanh" and not config.recurrent and len(config.hidden) > 0
    return usual and not own and config.device != "cuda"


def _is_there() -> bool:
    return is_cached(answer) and is_cached(gradient_in_one_call(write_gradient))


def _end() -> None:
    """Leave nothing behind."""
    for process in _begun:
        process.kill()
        process.wait()


def compile_learner(num_layers: int) -> None:
    """Compile what the network answers, then the gradient, by asking for both of nothing in particular."""
    network = Network(1, 2, (1,) * num_layers)
    weights, inputs = np.zeros(network.num_weights, np.float32), np.ones((1, 1), np.float32)
    forward(network, weights, inputs)
    row, number = np.zeros(1, np.int64), np.ones(1, np.float32)
    batch: Minibatch[np.ndarray] = Minibatch(row, number, number, 0.0, row, row, number, number, number, number, 1)
    gradient_in_one_call(write_gradient)(
        weights, np.empty_like(weights), network.widths, network.num_outputs, network.shared, seen(inputs, FEW),
        np.empty((0, 0), np.bool_), batch, np.float32(0), np.float32(0), np.float32(0), np.zeros(5),
    )  # fmt: skip


def compile_plain_path() -> None:
    """Compile what a run turns to once it finds that its observations hardly repeat, likewise."""
    one = np.float32(1)
    for order in ("F", "C"):  # as columns of envs that have played on, and step by step
        flags, numbers = np.zeros((2, 2), np.bool_, order), np.zeros((2, 2), np.float32, order)
        gae(numbers, numbers, numbers, flags, flags, one, one)
    Categorical(2).draw_once(numbers, flags, np.zeros(2, np.uint64), np.zeros(2, np.int64))


def compile_all(num_layers: int) -> None:
    """Compile the learner, the largest kernels first, and then what is left of it."""
    compile_learner(num_layers)
    compile_plain_path()
    from redline.learn.train import warm_up

    warm_up(TrainConfig("slow", hidden=(1,) * num_layers, total_steps=1), updates=2)


def _end_with_parent() -> None:
    """Its end closes the pipe that we read from."""
    sys.stdin.buffer.read()
    os._exit(1)


def main(num_layers: int) -> None:
    """What the other process does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_all(num_layers)
