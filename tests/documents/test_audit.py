"""The offline audit of pinned dependencies: hand-written advisories, the command, and the last record."""

import contextlib
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "audit.py"
# Most commands are run in this process, by the function that the script calls: a process each would take
# longer than all comparisons together.
specification = importlib.util.spec_from_file_location("costate_audit_tool", TOOL)
audit = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(audit)
AGAIN = (
    "run `make audit ADVISORIES=path/to/advisory-database` (a clone of pypa/advisory-database) "
    "and commit docs/audit.json"
)


def advisory(name="robot", events=(), identifier="PYSEC-2024-1", **more):
    """A record about one package with one range."""
    affected = {
        "package": {"name": name, "ecosystem": "PyPI"},
        "ranges": [{"type": "ECOSYSTEM", "events": [dict([event]) for event in events]}],
    }
    return {
        "id": identifier,
        "modified": "2024-03-01T10:00:00Z",
        "published": "2024-02-01T10:00:00Z",
        "affected": [affected],
        **more,
    }


def command(folder, pins, *records, accepted=None, more=()):
    """Write pins and records; return the words of the command that a user would type."""
    folder.mkdir(exist_ok=True)
    database = folder / "database"
    database.mkdir(exist_ok=True)
    for number, record in enumerate(records):
        text = record if isinstance(record, str) else json.dumps(record)
        (database / f"{number}.{'yaml' if isinstance(record, str) else 'json'}").write_text(text)
    (folder / "pins.txt").write_text(pins)
    if accepted is not None:
        (folder / "accepted.toml").write_text(accepted)
    words = [
        database,
        "--pins",
        folder / "pins.txt",
        "--out",
        folder / "audit.json",
        "--accepted",
        folder / "accepted.toml",
        *more,
    ]
    return [str(word) for word in words]


def run_audit(*arguments, **settings):
    """Return the command's exit code and its output."""
    words, out, err = command(*arguments, **settings), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = audit.main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def found(folder):
    return [
        (finding["name"], finding["version"], finding["id"])
        for finding in json.loads((folder / "audit.json").read_text())["findings"]
    ]


SEVERAL = [
    ("introduced", "0"),
    ("fixed", "1.6.2"),
    ("introduced", "1.7"),
    ("fixed", "1.7.4"),
    ("introduced", "2.0.0rc1"),
    ("last_affected", "2.1"),
]
# The newer interval first, as some records have it.
UNSORTED = [("introduced", "2.0.0"), ("fixed", "2.0.6"), ("introduced", "0"), ("fixed", "1.26.17")]
ONE_VERSION = [("introduced", "3.1"), ("last_affected", "3.1")]
RELEASE_CANDIDATE = [("introduced", "1.2"), ("fixed", "1.3rc2")]


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        (
            SEVERAL,
            ["0.0.1", "1.6.1", "1.7", "1.7.3", "2.0.0rc1", "2.0", "2.1", "2.1.0"],
            ["1.6.2", "1.6.9", "1.7.4", "2.0.0b3", "2.1.post1", "2.1.1", "3"],
        ),
        (UNSORTED, ["1.26.16", "2.0.0", "2.0.5"], ["1.26.17", "1.27", "2.0.0a1", "2.0.6", "10.0"]),
        (ONE_VERSION, ["3.1", "3.1.0"], ["3.0", "3.1.1", "3.1rc1"]),
        (
            RELEASE_CANDIDATE,
            ["1.2", "1.2.9", "1.3.dev1", "1.3b1", "1.3rc1"],
            ["1.2rc1", "1.3rc2", "1.3", "1.10"],
        ),
        ([("introduced", "0")], ["0.dev1", "0", "999!1"], []),
        (
            [("introduced", "1.0"), ("fixed", "2.0"), ("introduced", "2.0"), ("fixed", "2.1")],
            ["1.0", "2.0", "2.0.5"],
            ["0.9", "2.1"],
        ),
        ([], [], ["1.0"]),
    ],
)
def test_a_version_is_affected_inside_an_interval_and_not_outside(events, inside, outside):
    ends = [audit.Event(kind, version) for kind, version in events]
    assert [
        version for version in inside + outside if audit.lies_within(audit.Version(version), ends)
    ] == inside


def test_an_affected_pin_is_shown_with_what_mends_it_and_fails(tmp_path):
    record = advisory("robot", SEVERAL, aliases=["CVE-2024-7", "GHSA-aaaa-bbbb-cccc"])
    run = run_audit(tmp_path, "# exact\nrobot==1.7.3  # here\nsensor==4.0\n", record)
    assert run.returncode == 1
    table, counts = run.stdout.splitlines()[1:]
    assert table.split() == [
        "robot==1.7.3",
        "PYSEC-2024-1",
        "CVE-2024-7,",
        "GHSA-aaaa-bbbb-cccc",
        "1.7.4",
        "no",
    ]
    assert counts.startswith(
        "2 pins, 1 advisories (newest of 2024-03-01), 1 of them about pinned packages: 1 affected, 0 "
        "accepted;"
    )
    assert json.loads((tmp_path / "audit.json").read_text())["findings"] == [
        {
            "name": "robot",
            "version": "1.7.3",
            "id": "PYSEC-2024-1",
            "aliases": ["CVE-2024-7", "GHSA-aaaa-bbbb-cccc"],
            "fixed_in": ["1.7.4"],
            "accepted": None,
        }
    ]


def test_the_record_names_every_pin_and_every_advisory_that_was_looked_at(tmp_path):
    records = [
        advisory("robot", [("introduced", "0"), ("fixed", "1.0")], "PYSEC-2024-2"),
        advisory("Robot", [("introduced", "0"), ("fixed", "1.1")], "PYSEC-2024-1"),
        advisory("other", [("introduced", "0")], "PYSEC-2024-3", modified="2026-09-10T11:02:18.565556Z"),
        advisory("robot", [("introduced", "0")], "PYSEC-2024-4", withdrawn="2024-05-01T00:00:00Z"),
    ]
    run = run_audit(tmp_path, "robot==2.0\nsensor==4.0\n", *records, more=("--source", "by hand"))
    assert run.returncode == 0, run.stderr
    record = json.loads((tmp_path / "audit.json").read_text())
    assert record["database"] == {"source": "by hand", "newest": "2026-09-10", "records": 4, "withdrawn": 1}
    assert record["pins"] == {
        "robot": {"version": "2.0", "looked_at": ["PYSEC-2024-1", "PYSEC-2024-2"]},
        "sensor": {"version": "4.0", "looked_at": []},
    }
    assert record["findings"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.json", "database", "pins.txt"]


def test_names_are_compared_as_pep_503_says(tmp_path):
    run = run_audit(tmp_path, "Soft.Robot_Arm==1.0\n", advisory("soft-robot.arm", [("introduced", "0")]))
    assert run.returncode == 1
    assert found(tmp_path) == [("soft-robot-arm", "1.0", "PYSEC-2024-1")]
    assert "no version known" in run.stdout


def test_a_list_of_versions_counts_beside_the_ranges(tmp_path):
    listed = advisory("robot", [("introduced", "5"), ("fixed", "6")])
    listed["affected"][0]["versions"] = ["0.7.4.svn.r2010", "1.10", "1.2.0"]
    for version, code in [("1.10.0", 1), ("1.2", 1), ("1.1", 0), ("5.5", 1)]:
        assert run_audit(tmp_path / version, f"robot=={version}\n", listed).returncode == code, version


def test_yaml_keeps_versions_as_they_are_written(tmp_path):
    """To most YAML readers an unquoted 1.10 is the number 1.1; and some intervals have an empty end."""
    record = """
id: PYSEC-2024-1
modified: 2024-03-01T10:00:00Z
withdrawn: null
aliases:
affected:
- package: {name: robot, ecosystem: PyPI}
  ranges:
  - type: GIT
    repo: https://example.org/robot
    events: [{introduced: 0}, {fixed: bd8153872e9c6fc98f4023df9c2deaffea2fa463}]
  - type: ECOSYSTEM
    events: [{introduced: 1.10}, {}]
- package: {name: sensor, ecosystem: npm}
  ranges: [{type: SEMVER, events: [{introduced: 0}]}]
"""
    assert run_audit(tmp_path, "robot==1.9\nsensor==1.0\n", record).returncode == 0
    assert run_audit(tmp_path, "robot==1.11\nsensor==1.0\n", record).returncode == 1
    assert found(tmp_path) == [("robot", "1.11", "PYSEC-2024-1")]


def test_only_the_folder_of_records_is_read_in_a_clone(tmp_path):
    clone = tmp_path / "database"
    for path, text in [
        (".github/workflows/ci.yaml", "on: push"),
        ("triage/notes.yaml", "- none"),
        ("vulns/robot/1.yaml", json.dumps(advisory())),
    ]:
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    run = run_audit(tmp_path, "robot==1.0\n")
    assert run.returncode == 0, run.stderr
    assert "1 advisories" in run.stdout


def test_an_accepted_advisory_passes_and_keeps_its_reason(tmp_path):
    record = advisory("robot", [("introduced", "0"), ("last_affected", "2.0")], aliases=["CVE-2024-7"])
    run = run_audit(
        tmp_path,
        "robot==1.0\n",
        record,
        accepted='[accepted]\nCVE-2024-7 = "only on Windows"\nCVE-2020-1 = "long ago"\n',
    )
    assert run.returncode == 0
    assert "after 2.0" in run.stdout
    assert "CVE-2020-1 is accepted" in run.stdout
    assert "remove it there" in run.stdout
    assert json.loads((tmp_path / "audit.json").read_text())["findings"][0]["accepted"] == "only on Windows"


NO_ADVISORY = ["cannot be read", "must be one OSV record", "remove it if it is not an advisory"]


@pytest.mark.parametrize(
    ("pins", "record", "accepted", "says"),
    [
        (
            "robot>=1.0\n",
            advisory(),
            None,
            ["'robot>=1.0'", "line 1", "Write name==version", "the installed version"],
        ),
        ("\nrobot==1.*\n", advisory(), None, ["'robot==1.*'", "line 2", "Write name==version"]),
        ("-r others.txt\n", advisory(), None, ["'-r others.txt'", "Write name==version"]),
        ("robot @ https://example.org/robot.whl\n", advisory(), None, ["not an exact pin"]),
        ("robot==1.0\nRobot==1.1\n", advisory(), None, ["pins robot twice", "1.0", "1.1", "remove a line"]),
        ("# nothing\n", advisory(), None, ["contains no pins", "name==version"]),
        ("robot==1.0\n", None, None, ["no advisories", ".json, .yaml, .yml", "Clone"]),
        ("robot==1.0\n", "id: [", None, NO_ADVISORY),
        ("robot==1.0\n", "- a list", None, ["the record must be a mapping", *NO_ADVISORY]),
        ("robot==1.0\n", {"modified": "2024-03-01"}, None, ["id must be text and is None", *NO_ADVISORY]),
        ("robot==1.0\n", {"id": "X-1", "modified": "yesterday"}, None, NO_ADVISORY),
        (
            "robot==1.0\n",
            {"id": "X-1", "modified": "2024-03-01", "affects": {}},
            None,
            ["before version 1.0", *NO_ADVISORY],
        ),
        ("robot==1.0\n", {**advisory(), "affected": {}}, None, ["affected must be a list", *NO_ADVISORY]),
        (
            "robot==1.0\n",
            advisory(events=[("introduced", "one")]),
            None,
            ["PYSEC-2024-1 about robot", "'one'", "PEP 440", "newest database"],
        ),
        (
            "robot==1.0\n",
            advisory(),
            '[accepted]\nX-1 = " "\n',
            ["the reason for X-1 is empty", "[accepted]", "Correct the file"],
        ),
        ("robot==1.0\n", advisory(), "accepted", ["accepted.toml", "TOML", "Correct the file"]),
    ],
)
def test_bad_input_is_explained_in_one_paragraph_and_writes_nothing(tmp_path, pins, record, accepted, says):
    run = run_audit(tmp_path, pins, *([record] if record is not None else []), accepted=accepted)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert [text for text in says if text not in run.stderr] == [], run.stderr
    assert not (tmp_path / "audit.json").exists()


def test_a_missing_database_is_named(tmp_path, capsys):
    words = command(tmp_path, "robot==1.0\n", advisory())
    assert audit.main([str(tmp_path / "none"), *words[1:]]) == 2
    assert f"{tmp_path / 'none'} is not there" in capsys.readouterr().err
    assert audit.main([str(tmp_path / "pins.txt"), *words[1:]]) == 2
    assert f"must be a folder; {tmp_path / 'pins.txt'} is a file. Clone" in capsys.readouterr().err
    assert audit.main([words[0], "--pins", str(tmp_path / "none.txt")]) == 2
    assert "Give a text file of name==version lines with --pins" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    run_audit(tmp_path, "robot==1.0\n", advisory())
    before = (tmp_path / "audit.json").read_text()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit.os, "fsync", full_disk)
    run = run_audit(tmp_path, "robot==2.0\n", advisory())
    assert run.returncode == 2
    assert "No space left on device" in run.stderr
    assert (tmp_path / "audit.json").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.json", "database", "pins.txt"]


@pytest.mark.parametrize(("pins", "code"), [("robot==2.0\n", 0), ("robot==1.0\n", 1), ("robot\n", 2)])
def test_the_script_ends_with_the_code_of_the_audit(tmp_path, pins, code):
    words = command(tmp_path, pins, advisory(events=[("introduced", "0"), ("fixed", "1.5")]))
    run = subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, timeout=60)
    assert run.returncode == code
    assert (run.stdout == "", run.stderr == "") == (code == 2, code != 2)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    unwritable = run_audit(
        tmp_path, "robot==1.0\n", advisory(), more=("--out", str(tmp_path / "no" / "audit.json"))
    )
    assert unwritable.returncode == 2
    assert "--out" in unwritable.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_audit_says_what_it_needs():
    run = subprocess.run(
        ["make", "audit", "ADVISORIES="], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode != 0
    assert "make audit ADVISORIES=" in run.stdout
    assert "pypa/advisory-database" in run.stdout


def test_the_last_audit_covers_exactly_the_pins():
    """A pin that changed without a new audit fails here."""
    record = json.loads((ROOT / "docs" / "audit.json").read_text())
    pins = {name: str(version) for name, version in audit.read_pins(ROOT / "constraints.txt").items()}
    audited = {name: pin["version"] for name, pin in record["pins"].items()}
    changed = sorted(
        {
            f"{name}: pinned {pins.get(name, 'not')}, audited {audited.get(name, 'not')}"
            for name, _ in pins.items() ^ audited.items()
        }
    )
    assert changed == [], (
        f"constraints.txt has changed since docs/audit.json was written ({'; '.join(changed)}); {AGAIN}"
    )
    unaccepted = [finding["id"] for finding in record["findings"] if finding["accepted"] is None]
    assert unaccepted == [], (
        "pins are affected by advisories; renew them in constraints.txt, or accept them with a reason in "
        f"tools/accepted.toml, and {AGAIN}"
    )
