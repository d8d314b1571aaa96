from __future__ import annotations

import runpy
import sys

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

from redline.errors import RedlineError
from redline.search import gp as gp_module
from redline.search.gp import FEWEST_TO_FIT, Mallows, WorkflowGP
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, DISTANCES
from tests.oracles.workflows import relabel

EVERY_ID = np.arange(120)
LENGTHS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]


def fitted(ids, values, noise=None) -> WorkflowGP:
    gp = WorkflowGP(DISTANCES, seed=0)
    gp.fit(ids, values, noise)
    return gp


def draw_landscape(seed: int, length: float, scale: float) -> np.ndarray:
    """The values of all 120 workflows, drawn from the prior around -50."""
    covariance = scale * np.exp(-length * DISTANCES)
    return -50 + np.linalg.cholesky(covariance) @ np.random.default_rng(seed).normal(size=120)


def some_observations(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(seed).permutation(120)[:count]
    return ids, draw_landscape(seed, length=3.0, scale=100.0)[ids]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_kernel_is_positive_definite_on_all_workflows(length):
    assert np.linalg.eigvalsh(Mallows(DISTANCES, length)(EVERY_ID)).min() > 1e-9


@pytest.mark.parametrize("length", LENGTHS)
def test_the_kernels_gradient_is_what_finite_differences_say(length):
    kernel = ConstantKernel(2.0) * Mallows(DISTANCES, length) + WhiteKernel(0.3)
    ids = EVERY_ID[::9]
    _, gradient = kernel(ids, eval_gradient=True)
    step = 1e-6
    for axis in range(3):
        nudge = step * np.eye(3)[axis]
        above = kernel.clone_with_theta(kernel.theta + nudge)(ids)
        below = kernel.clone_with_theta(kernel.theta - nudge)(ids)
        np.testing.assert_allclose(gradient[:, :, axis], (above - below) / (2 * step), atol=1e-8)


def test_a_fixed_length_has_no_gradient():
    _, gradient = Mallows(DISTANCES, 2.0, "fixed")(EVERY_ID, eval_gradient=True)
    assert gradient.shape == (120, 120, 0)


def test_without_observations_all_workflows_are_alike():
    for gp in (WorkflowGP(DISTANCES), fitted([], [])):
        mean, std = gp.predict()
        assert mean.tolist() == [0.0] * 120
        assert std.tolist() == [1.0] * 120


@pytest.mark.parametrize(
    ("ids", "values"), [([7], [-50.0]), ([7, 90], [-50.0, -20.0]), ([3, 50, 70, 90, 110, 119], [-50.0] * 6)]
)
def test_few_or_equal_values_are_enough(ids, values):
    mean, std = fitted(ids, values).predict()
    assert np.isfinite(mean).all()
    assert mean.min() >= min(values) - 1e-9
    assert mean.max() <= max(values) + 1e-9
    assert (std > 0).all()
    assert std[ids].max() < np.delete(std, ids).max()


@pytest.mark.parametrize("count", [1, 2, FEWEST_TO_FIT, 30])
def test_without_noise_the_posterior_goes_through_the_observations(count):
    ids, values = some_observations(count)
    mean, std = fitted(ids, values, noise=np.zeros(count)).predict()
    np.testing.assert_allclose(mean[ids], values, atol=1e-5)
    np.testing.assert_allclose(std[ids], 0, atol=1e-2)
    assert np.delete(std, ids).min() > 0.1


def test_a_noisier_observation_is_trusted_less():
    ids, values = [0, 119], [-60.0, -40.0]
    mean, std = fitted(ids, values, noise=[0.01, 50.0]).predict()
    assert abs(mean[0] - values[0]) < abs(mean[119] - values[1])
    assert std[0] < std[119]


def test_std_is_that_of_the_truth_and_not_of_the_next_observation():
    seen = [5, 40, 80, 100]
    ids = np.repeat(seen, 25)
    values = draw_landscape(0, length=3.0, scale=100.0)[ids] + 4 * np.random.default_rng(1).normal(size=100)
    gp = fitted(ids, values)
    _, std = gp.predict()
    assert gp.hyperparameters.noise == pytest.approx(4**2, rel=0.3)
    assert std[seen] == pytest.approx(4 / np.sqrt(25), rel=0.3)


def test_the_order_of_the_observations_makes_no_difference():
    ids, values = some_observations(12)
    noise = np.linspace(0.1, 3.0, 12)
    for known in (None, noise):
        forwards = fitted(ids, values, known)
        backwards = fitted(ids[::-1], values[::-1], None if known is None else known[::-1])
        assert forwards.hyperparameters == backwards.hyperparameters
        assert np.array_equal(forwards.predict(), backwards.predict())


def test_relabelling_the_types_relabels_the_predictions():
    renamed = np.array([relabel(workflow, [3, 4, 0, 2, 1]).id for workflow in ALL_WORKFLOWS])
    ids, values = some_observations(12)
    mean, std = fitted(ids, values).predict()
    renamed_mean, renamed_std = fitted(renamed[ids], values).predict()
    np.testing.assert_allclose(renamed_mean[renamed], mean, rtol=1e-4)
    np.testing.assert_allclose(renamed_std[renamed], std, rtol=1e-2)


def test_units_do_not_matter():
    ids, values = some_observations(12)
    mean, std = fitted(ids, values).predict()
    scaled_mean, scaled_std = fitted(ids, 1000 * values + 7).predict()
    np.testing.assert_allclose(scaled_mean, 1000 * mean + 7, rtol=1e-6)
    np.testing.assert_allclose(scaled_std, 1000 * std, rtol=1e-5)


def test_hyperparameters_come_back_from_data_drawn_with_them():
    drawn_with = np.array([100.0, 4.0, 9.0])
    twice = np.repeat(EVERY_ID[::2], 2)  # seen once each, noise and a rough landscape look the same
    found = []
    for seed in range(4):
        truth = draw_landscape(seed, scale=100.0, length=4.0)
        observed = truth[twice] + 3 * np.random.default_rng([seed, 1]).normal(size=len(twice))
        found.append(fitted(twice, observed).hyperparameters)
    ratios = np.median(found, axis=0) / drawn_with
    assert (ratios > 0.5).all()
    assert (ratios < 2.0).all()


def test_pending_workflows_move_no_mean_and_shrink_the_std_around_them():
    gp = fitted([4, 70], [-60.0, -40.0])
    mean, std = gp.predict()
    mean_after, std_after = gp.predict([33])
    assert np.array_equal(mean_after, mean)
    assert (std_after <= std).all()
    assert std_after[33] < 0.2 * std[33]


def test_a_pending_workflow_counts_as_observed_at_its_mean():
    gp = fitted([4, 70], [-60.0, -40.0], noise=[2.0, 2.0])
    mean, std = gp.predict([33])
    scale, length, noise = gp.hyperparameters
    prior = scale * np.exp(-length * DISTANCES)
    known = [4, 70, 33]
    gain = np.linalg.solve(prior[np.ix_(known, known)] + noise * np.eye(3), prior[known])
    above_average = np.array([-60.0, -40.0, mean[33]]) + 50
    np.testing.assert_allclose(above_average @ gain - 50, mean)
    np.testing.assert_allclose(np.sqrt(scale - (prior[known] * gain).sum(axis=0)), std)


def test_a_missing_scikit_learn_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[search\]'"):
        runpy.run_path(gp_module.__file__)
