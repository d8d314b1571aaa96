from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from redline.compiled.disk import KernelCache
from redline.compiled.stamp import UnseenError, stamp
from redline.learn import loops
from redline.learn.heads import categorical
from redline.learn.network import compiled_pass


def test_exp_is_that_of_numpy_within_float_rounding():
    for x in np.linspace(-49.9, 87, 999).astype(np.float32):
        assert loops.exp(x) == pytest.approx(float(np.exp(np.float64(x))), rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 16, 145])
def test_the_greatest_of_a_row_is_its_maximum(size):
    rng = np.random.default_rng(size)
    for scale in (1e-30, 1.0, 1e30):
        rows = (rng.standard_normal((50, size)) * scale).astype(np.float32)
        for row in (*rows, -np.abs(rows[0]), np.full(size, categorical.MASKED, np.float32), np.zeros(size, np.float32)):
            assert loops.greatest(row) == row.max()


@pytest.mark.parametrize("x", [categorical.MASKED, -1e4, -87.0, -50.1])
def test_exp_of_what_no_draw_could_tell_is_exactly_zero(x):
    assert loops.exp(np.float32(x)) == 0.0


@pytest.mark.parametrize(
    ("compiled", "constant", "function"),
    [(compiled_pass._tanh, "_Q4", "tanh"), (categorical._fill, "_C7", "exp"), (categorical._soften, "_C7", "exp")],
)
def test_the_arithmetic_that_loops_share_is_part_of_the_stamp_of_each(compiled, constant, function, monkeypatch):
    """Machine code on disk is then outdated as soon as that arithmetic is edited."""
    assert isinstance(compiled._cache, KernelCache)
    stamp(compiled)
    monkeypatch.setattr(loops, constant, np.float32(0.5))
    with pytest.raises(UnseenError, match=f"{constant} in {function}"):
        stamp(compiled)


def test_a_loop_has_the_same_stamp_in_every_process():
    """Or it would be compiled anew in each."""
    script = (
        "from redline.compiled.stamp import stamp; from redline.learn.heads import categorical as c;"
        "print(stamp(c._soften), stamp(c._gradient))"
    )
    stamps = {
        subprocess.check_output([sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert len(stamps) == 1
