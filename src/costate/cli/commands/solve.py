"""``costate solve``: solve optimal control problems without learning."""

import dataclasses
import inspect
import json
import pathlib
import sys
import textwrap
from typing import Annotated, Any

import tyro

from costate._base.counted import counted
from costate._base.errors import ConfigError
from costate._base.files import check_replaceable, output_folder, remove_file, write_atomically
from costate.cli.arguments import read_arguments
from costate.cli.countdown import countdown
from costate.cli.documents import as_json, document_on_stdout
from costate.control.catalogue import PROBLEMS
from costate.control.problem import ControlProblem
from costate.control.solution import TOLERANCES, Solution

SOLUTION_FILE = "solution.json"
PICTURE_FILE = "solution.png"


@dataclasses.dataclass(frozen=True)
class SolveArguments:
    """Solve an optimal control problem by Pontryagin's minimum principle.

    State, co-state, control and Hamiltonian are plotted over time. Without a problem, list all problems.
    """

    problem: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="PROBLEM", help=f"One of {', '.join(PROBLEMS.names())}."),
    ] = ""
    horizon: float | None = None
    """Final time; None for the problem's own."""
    initial_state: tuple[float, ...] | None = None
    """Initial state; None for the problem's own."""
    out: pathlib.Path | None = None
    """Folder for solution.json and solution.png; None for solutions/PROBLEM."""
    json: bool = False
    """Print the result as one JSON document, and everything else to stderr."""


ARGUMENTS = SolveArguments


def run(arguments: list[str]) -> int:
    """Solve an optimal control problem and draw its co-states."""
    from costate.cli.control_figures import draw_solution
    from costate.control.pontryagin import solve
    from costate.training.startup import keep_compiled_programs

    parsed = read_arguments("solve", SolveArguments, arguments)
    if not parsed.problem:
        print(as_json(problems()) if parsed.json else listing())
        return 0
    problem = _changed(PROBLEMS[parsed.problem](), parsed)
    where = parsed.out or pathlib.Path("solutions") / parsed.problem
    for name in (SOLUTION_FILE, PICTURE_FILE):
        check_replaceable(where / name)
    time = "free final time" if problem.horizon is None else f"horizon {problem.horizon:g}"
    with document_on_stdout(parsed.json) as emit:
        size = f"{counted(problem.state_size, 'state')}, {counted(problem.control_size, 'control')}"
        print(f"solving {parsed.problem}: {size}, {time} → {where}", flush=True)
        keep_compiled_programs()
        with countdown() as tell:
            solution = solve(problem, tell)
        print(table(solution))
        emit(to_json(solution))
        if not solution.converged:
            # Files of an earlier call would pass for the solution of this one.
            remove_earlier(where)
            print(
                f"error: {parsed.problem} was not solved, so no solution is in {where}: {solution.message}.",
                file=sys.stderr,
            )
            return 1
        write_atomically(
            output_folder(where) / SOLUTION_FILE, json.dumps(to_json(solution), indent=1).encode()
        )
        write_atomically(where / PICTURE_FILE, draw_solution(solution))
        print(f"written: {where / SOLUTION_FILE}, {where / PICTURE_FILE}")
    return 0


def problems() -> dict[str, Any]:
    """Return all problems with their descriptions, for scripts."""
    return {
        "format": 1,
        "problems": [
            {"name": name, "description": inspect.getdoc(PROBLEMS[name])} for name in PROBLEMS.names()
        ],
    }


def listing() -> str:
    """Return all problems with their descriptions, and an example of how to solve one, as text."""
    width = max(map(len, PROBLEMS.names()))
    indent = " " * (width + 2)
    lines = [
        textwrap.fill(
            each["description"], 100, initial_indent=f"{each['name']:{width}}  ", subsequent_indent=indent
        )
        for each in problems()["problems"]
    ]
    return "\n".join([*lines, "", f"Solve one of them: costate solve {PROBLEMS.names()[-2]}"])


def remove_earlier(where: pathlib.Path) -> None:
    """Remove the solution that an earlier call left in a folder. Files that costate did not write stay."""
    try:
        document = json.loads((where / SOLUTION_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return
    if (
        isinstance(document, dict)
        and {"format", "problem", "converged", "residuals", "hamiltonians"} <= document.keys()
    ):
        for name in (SOLUTION_FILE, PICTURE_FILE):
            remove_file(where / name)


def _changed(problem: ControlProblem, arguments: SolveArguments) -> ControlProblem:
    """Return the problem with the horizon and the initial state of the command line."""
    import jax
    import jax.numpy as jnp

    if arguments.horizon is not None:
        if problem.horizon is None:
            raise ConfigError(
                f"The final time of {problem.name} is free: the solver finds it. Leave --horizon out."
            )
        problem = dataclasses.replace(problem, horizon=arguments.horizon)
    if arguments.initial_state is not None:
        if len(arguments.initial_state) != problem.state_size:
            given, needed = (
                counted(len(arguments.initial_state), "number"),
                counted(problem.state_size, "state"),
            )
            raise ConfigError(
                f"--initial-state has {given}, but {problem.name} has {needed}. Give one number for each."
            )
        with jax.enable_x64(True):
            problem = dataclasses.replace(
                problem, initial_state=jnp.asarray(arguments.initial_state, jnp.float64)
            )
    return problem


def table(solution: Solution) -> str:
    """Format the result: one quantity per line, with residuals and their tolerances."""
    switches = ", ".join(f"{when:.7f}" for when in solution.switching_times) or "none"
    rows = [
        ("converged", "yes" if solution.converged else "no"),
        ("cost", f"{solution.cost:.9g}"),
        ("final time", f"{solution.final_time:.9g}"),
    ]
    rows += [("control law changes at", switches)]
    residuals, allowed = solution.residuals._asdict(), TOLERANCES._asdict()
    rows += [
        (f"residual of {name.replace('_', ' ')}", f"{value:9.2e}  (at most {allowed[name]:g})")
        for name, value in residuals.items()
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def to_json(solution: Solution) -> dict[str, Any]:
    """Convert a solution to plain numbers. Rows of arrays are times."""
    return {
        "format": 1,
        "problem": solution.name,
        "converged": solution.converged,
        "cost": solution.cost,
        "final_time": solution.final_time,
        "switching_times": solution.switching_times.tolist(),
        "residuals": solution.residuals._asdict(),
        "tolerances": TOLERANCES._asdict(),
        "times": solution.times.tolist(),
        "states": solution.states.tolist(),
        "costates": solution.costates.tolist(),
        "controls": solution.controls.tolist(),
        "slopes": solution.slopes.tolist(),
        "hamiltonians": solution.hamiltonians.tolist(),
    }
