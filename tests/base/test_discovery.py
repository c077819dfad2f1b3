"""Entry points: how other packages add parts."""

import pathlib
import sys

import pytest

from costate._base import discovery
from costate._base.errors import ConfigError


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package with one module and one entry point. Undo it afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, source: str) -> pathlib.Path:
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[costate.trials]\nown = {name}\n")
        return tmp_path

    yield install
    for name in ("found_by_costate", "broken_for_costate"):
        sys.modules.pop(name, None)


def test_what_a_package_declares_is_imported(installed):
    installed("found_by_costate", "")
    discovery.load_entry_points("costate.trials")
    assert "found_by_costate" in sys.modules


def test_one_that_cannot_be_imported_is_named_with_its_package_and_the_reason(installed):
    installed("broken_for_costate", "raise RuntimeError('no licence')")
    with pytest.raises(
        ConfigError, match=r"'own'.*the package broken_for_costate.*RuntimeError: no licence.*uninstall"
    ):
        discovery.load_entry_points("costate.trials")


def test_a_group_that_nobody_declares_is_no_matter():
    before = set(sys.modules)
    discovery.load_entry_points("costate.of_nobody")
    assert set(sys.modules) == before, "nothing is imported"
