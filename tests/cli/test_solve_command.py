"""``costate solve``, used as a user would."""

import json

import numpy as np
import pytest

from costate.cli import main


def test_solve_prints_a_table_and_writes_numbers_and_a_picture(tmp_path, capsys):
    assert (
        main(
            [
                "solve",
                "double-integrator-energy",
                "--horizon",
                "2",
                "--initial-state",
                "-2",
                "0",
                "--out",
                str(tmp_path / "energy"),
            ]
        )
        == 0
    )
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert lines[0] == f"solving double-integrator-energy: 2 states, 1 control, horizon 2 → {tmp_path}/energy"
    assert lines[1].split() == ["converged", "yes"]
    assert len({len(line) - len(line[line.index("  ") :].lstrip()) for line in lines[1:5]}) == 1, (
        "the table is aligned"
    )
    assert lines[-1] == f"written: {tmp_path}/energy/solution.json, {tmp_path}/energy/solution.png"
    found = json.loads((tmp_path / "energy" / "solution.json").read_text())
    # Distance d in time T costs 12 d² / T³.
    assert found["cost"] == pytest.approx(12.0 * 4.0 / 8.0)
    assert found["converged"] is True
    assert np.array(found["states"]).shape == (len(found["times"]), 2)
    assert (tmp_path / "energy" / "solution.png").read_bytes().startswith(b"\x89PNG")


def test_an_infeasible_horizon_fails_loudly_and_leaves_no_picture(tmp_path, capsys):
    earlier = {
        "format": 1,
        "problem": "double-integrator-fuel",
        "converged": True,
        "residuals": {},
        "hamiltonians": [],
    }
    (tmp_path / "solution.json").write_text(json.dumps(earlier))
    (tmp_path / "solution.png").write_text("from an earlier call")
    assert main(["solve", "double-integrator-fuel", "--horizon", "1.9", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "converged" in captured.out
    assert "written" not in captured.out
    assert "The horizon is infeasible" in captured.err
    assert not list(tmp_path.iterdir())


def test_a_script_gets_the_solution_as_one_document(tmp_path, capsys):
    assert (
        main(
            [
                "solve",
                "double-integrator-energy",
                "--horizon",
                "2",
                "--initial-state",
                "-2",
                "0",
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    assert json.loads(captured.out)["cost"] == pytest.approx(12.0 * 4.0 / 8.0)
    assert captured.err.startswith("solving double-integrator-energy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pendulm"], "Did you mean pendulum?"),
        (["double-integrator-time", "--horizon", "3"], "is free"),
        (
            ["pendulum", "--initial-state", "1"],
            "has 1 number, but pendulum has 2 states. Give one number for each.",
        ),
        (["pendulum", "--horizon", "-1"], "horizon is -1.0"),
        (
            ["pendulum", "--initial-state", "nan", "0"],
            "initial_state is [nan, 0.0], but every component must be a finite number. Give 2 numbers",
        ),
        (
            ["pendulum", "--initial-state", "0", "-inf"],
            "initial_state is [0.0, -inf], but every component must be a finite number.",
        ),
        (["pendulum", "--horizon", "1e300"], "pendulum overflows over a horizon of 1e+300"),
    ],
)
def test_bad_requests_are_answered(arguments, message, capsys):
    assert main(["solve", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_what_is_in_the_folder_and_no_solution_of_an_earlier_call_stays(tmp_path, capsys):
    """A student may keep the solution of an exercise under this name."""
    (tmp_path / "solution.json").write_text('{"problem": "3.14"}')
    (tmp_path / "solution.png").write_text("a photograph of the blackboard")
    assert main(["solve", "double-integrator-fuel", "--horizon", "1.9", "--out", str(tmp_path)]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["solution.json", "solution.png"]
    (tmp_path / "solution.json").unlink()
    (tmp_path / "solution.json").mkdir()
    assert main(["solve", "double-integrator-fuel", "--out", str(tmp_path)]) == 1
    assert "solution.json: it is a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["solve", "double-integrator-fuel", "--out", str(tmp_path / "file")]) == 1
    assert "file is a file, but a folder is needed" in capsys.readouterr().err
