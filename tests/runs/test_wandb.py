"""Weights & Biases: the real package without the network, and a helpful error if it is missing."""

import json
import sys
import time

import pytest

from costate.cli import main
from costate.config.run_config import config_hash
from costate.training.console import SilentReporter
from costate.training.loop import resume, train


def test_rows_go_to_the_project(tmp_path, quick_config, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    run = train(quick_config, tmp_path / "run", wandb="tests").run
    (folder,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert folder.name.endswith(f"{config_hash(quick_config)}-run")
    (record,) = folder.glob("*.wandb")
    content = record.read_bytes()
    # The rows are in the file that `wandb sync` would send.
    for name in (b"training/episode_reward", b"losses/costate", b"env_steps"):
        assert name in content
    assert len(run.read_metrics()) == 3


@pytest.mark.thorough
def test_a_resumed_run_goes_on_under_the_same_id(tmp_path, quick_config, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))

    class Cut(SilentReporter):
        def progress(self, progression):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(quick_config, tmp_path / "run", wandb="tests", reporter=Cut())
    time.sleep(1.1)  # offline folders are named by the second
    assert resume(tmp_path / "run", wandb="tests").finished
    names = {folder.name.rsplit("-", 2)[1] for folder in (tmp_path / "run" / "wandb").glob("offline-run-*")}
    assert names == {config_hash(quick_config)}


def test_without_the_package_the_flag_is_an_error_and_nothing_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "CartpoleSwingup", "--wandb", "project", "--out", str(tmp_path / "run")]) == 1
    assert "pip install 'costate[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_the_flag_it_is_not_even_imported(tmp_path, quick_config, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    run = train(quick_config, tmp_path / "run").run
    assert json.loads(run.metrics.read_text().splitlines()[-1])["iteration"] == 3
