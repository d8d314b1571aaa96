"""How rules become machine code: what a world's author needs, and nothing else.

    from redline.compiled import kernel, rule, uniform

    @rule
    def arrive(env, rate):
        if uniform(env) < rate:
            env.waiting += 1

    @kernel
    def step(envs, first, last, actions, rewards):
        for i in range(first, last):
            arrive(envs[i], 0.25)
            ...

A `kernel` is called by Python. A `rule` is called by kernels and other rules; it is `inlined` if small, and `apart` if
large and rare. `uniform` draws from an env's own random stream, which `seed_streams` starts. `at_speed` chooses between
a kernel and its `interpreted` twin, which is the same code run by Python, and `announce_compilation` tells the user why
the first call takes a while.
"""

from redline.compiled.announce import announce_compilation
from redline.compiled.rng import seed_streams, uniform
from redline.compiled.speed import apart, at_speed, inlined, interpreted, kernel, rule

__all__ = [
    "announce_compilation",
    "apart",
    "at_speed",
    "inlined",
    "interpreted",
    "kernel",
    "rule",
    "seed_streams",
    "uniform",
]
