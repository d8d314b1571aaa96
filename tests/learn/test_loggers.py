"""Metrics go to whoever asked for them, under the names that people know, and nobody can stop a run by failing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.learn import loggers
from redline.learn.config import Saving
from redline.learn.loggers import flat, scalars
from redline.learn.train import Trainer
from tests.learn.test_train import tiny

CHARTS = {
    "charts/episodic_return", "charts/episodic_length", "charts/learning_rate", "charts/SPS", "losses/policy_loss",
    "losses/value_loss", "losses/entropy", "losses/approx_kl", "losses/clipfrac", "losses/explained_variance",
}  # fmt: skip


def train(folder: Path, *more: str) -> int:
    sizes = ["--num-envs", "4", "--num-steps", "10", "--total-steps", "120", "--max-steps", "5", "--eval-episodes", "0"]
    return main(["train", "cage2", *sizes, "--run-dir", str(folder), "-q", *more])


def test_metrics_have_the_names_that_cleanrl_gave_them():
    found = scalars(Trainer(tiny()).update())
    assert found.keys() >= CHARTS
    assert {name.partition("/")[0] for name in found} == {"charts", "losses"}


@pytest.mark.parametrize("asked", [["--tensorboard"], ["--log", "tensorboard"]])
def test_tensorboard_shows_charts_and_hyperparameters(asked, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert train(tmp_path / "run", *asked) == 0
    found = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) >= CHARTS
    assert [event.step for event in found.Scalars("charts/SPS")] == [40, 80, 120]
    assert "_hparams_/session_start_info" in found.summary_metadata


def test_weights_and_biases_gets_it_all(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    said = []
    monkeypatch.setattr(wandb.Run, "log", lambda self, metrics, step: said.append((step, metrics, dict(self.config))))
    assert train(tmp_path / "run", "--log", "wandb") == 0
    assert [step for step, *_ in said] == [40, 80, 120]
    assert all(metrics.keys() >= CHARTS and config["env"] == "cage2" for _, metrics, config in said)
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))


@pytest.mark.parametrize("broken", ["__init__", "write", "close"])
def test_a_logger_that_fails_is_given_up_and_the_run_goes_on(broken, tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise ConnectionError("no network\nat all")

    monkeypatch.setattr(loggers.TensorBoard, broken, fail)
    assert train(tmp_path / "run", "--log", "tensorboard") == 0
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line == "--log tensorboard is given up, and the run goes on without it: ConnectionError: no network at all"


def test_a_logger_that_is_not_installed_is_named_with_lines_that_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        RedlineError, match=r"pip install 'redline\[wandb\]', or in a clone: pip install -e '.\[wandb\]'$"
    ):
        Saving(log=("wandb",))


def test_a_logger_that_does_not_exist_is_answered_with_one_that_does():
    with pytest.raises(RedlineError, match="Did you mean 'tensorboard'"):
        Saving(log=("tensorbord",))


def test_settings_are_laid_flat():
    assert flat({"a": 1, "b": {"c": None, "d": (2, 3)}, "e": {"f": {"g": True}}}) == {
        "a": 1,
        "b.d": "(2, 3)",
        "e.f.g": True,
    }
