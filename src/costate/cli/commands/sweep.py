"""``costate sweep``: train many runs, here or on a cluster."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from costate._base.errors import ConfigError
from costate._base.files import output_folder
from costate.cli.arguments import read_arguments
from costate.cli.documents import document_on_stdout
from costate.experiments.schedule import AbstractBackend, run_jobs
from costate.experiments.spec import SweepSpec, load_spec
from costate.experiments.sweep import Status, jobs_left, locked, open_sweep, standing
from costate.experiments.watch import AbstractWatch, watch_for_stdout
from costate.experiments.work import Job
from costate.runs.interrupts import INTERRUPTED, stop_requests
from costate.runs.wandb_log import load_wandb

# Seconds between two readings of the folders of running jobs.
REFRESH = 1.0
NOTICE = b"\nStopping: the workers finish their iterations and save; press Ctrl-C again to stop now ...\n"


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep that do not depend on its runs."""

    out: pathlib.Path | None = None
    """Folder of the sweep; None for sweeps/NAME. With Ray, on storage that every node can reach."""
    backend: Literal["local", "ray"] = "local"
    """Where to train the runs: on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of a Ray cluster (host:port, or auto); None to start one on this machine."""
    wandb: str | None = None
    """Weights & Biases project that all runs also log to. Without it nothing is sent anywhere."""
    retry_failed: bool = False
    """Try failed runs again."""
    dry_run: bool = False
    """Print the runs without training them."""
    json: bool = False
    """Print the status of every run as one JSON document at the end, and everything else to stderr."""

    def __post_init__(self) -> None:
        if self.address is not None and self.backend != "ray":
            raise ConfigError("--address names a Ray cluster, so it needs --backend ray.")


@dataclasses.dataclass(frozen=True)
class SweepArguments:
    """Train variants × tasks × seeds.

    Finished runs are skipped, interrupted ones continue, failed ones are listed.
    """

    spec: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPEC")]
    """A TOML file, or a preset: figure2, figure3, better-ppo, robustness, laptop."""
    budget: str | None = None
    """Name of a budget under [budgets] in the file; None for the first, which is the paper's in figure2 and
    figure3.
    """
    options: Annotated[SweepOptions, tyro.conf.arg(name="")] = SweepOptions()


ARGUMENTS = SweepArguments


def run(arguments: list[str]) -> int:
    """Train variants × tasks × seeds, here or on a Ray cluster."""
    parsed = read_arguments("sweep", SweepArguments, arguments)
    spec = load_spec(parsed.spec, parsed.budget)
    folder = parsed.options.out or pathlib.Path("sweeps") / spec.name
    with document_on_stdout(parsed.options.json) as emit:
        code = conduct(spec, folder, parsed.options)
        emit(standings_document(spec, folder))
    return code


def conduct(spec: SweepSpec, folder: pathlib.Path, parsed: SweepOptions) -> int:
    """Train the runs of a sweep that are not finished, and return the exit code."""
    seeds = len({run.config.seed for run in spec.runs})
    sizes = ((len(spec.variants), "variant"), (len(spec.tasks), "task"), (seeds, "seed"))
    cells = " × ".join(f"{count} {what}{'s' if count != 1 else ''}" for count, what in sizes)
    print(
        f"sweep {spec.name}: {len(spec.runs)} run{'s' if len(spec.runs) != 1 else ''} ({cells}) → {folder}",
        flush=True,
    )
    if parsed.dry_run:
        for planned in spec.runs:
            status = standing(folder, spec, planned).status.value
            print(f"  {planned.folder}  {planned.label}, {planned.config.total_steps:,} steps, {status}")
        return 0
    if parsed.wandb is not None:
        load_wandb()
    finished = _sweep(spec, folder, parsed)
    return _conclude(spec, folder, finished)


def standings_document(spec: SweepSpec, folder: pathlib.Path) -> dict[str, Any]:
    """Return the status of every run of a sweep, for scripts."""
    runs = []
    for planned in spec.runs:
        found, config = standing(folder, spec, planned), planned.config
        runs.append(
            {
                "folder": folder / planned.folder,
                "task": config.task,
                "variant": planned.variant,
                "seed": config.seed,
                "status": found.status.value,
                "env_steps": found.env_steps,
                "total_steps": found.total_steps,
                "training_return": found.episode_return,
                "error": found.error,
            }
        )
    return {"format": 1, "name": spec.name, "folder": folder, "runs": runs}


def _sweep(spec: SweepSpec, folder: pathlib.Path, parsed: SweepOptions) -> bool:
    """Train the unfinished runs. Return False if the user stopped the sweep."""
    with contextlib.ExitStack() as stack:
        output_folder(folder)
        stack.enter_context(locked(folder))
        if all(standing(folder, spec, planned).status is Status.FINISHED for planned in spec.runs):
            return True
        backend = stack.enter_context(contextlib.closing(_backend(spec, folder, parsed)))
        together = open_sweep(folder, spec, backend.places(), retry_failed=parsed.retry_failed)
        jobs = jobs_left(folder, spec, together, parsed.wandb)
        watch = stack.enter_context(contextlib.closing(watch_for_stdout()))
        stop = stack.enter_context(stop_requests(NOTICE))
        return run_jobs(backend, jobs, spec.resources.retries, stop, _Progress(spec, folder, watch).look)


def _backend(spec: SweepSpec, folder: pathlib.Path, parsed: SweepOptions) -> AbstractBackend:
    if parsed.backend == "ray":
        from costate.experiments.ray_cluster import RayBackend

        return RayBackend(parsed.address, spec.resources, folder)
    from costate.experiments.local import LocalBackend

    return LocalBackend(spec.resources.cores)


class _Progress:
    """Status of every run. Only runs that may have changed are read again."""

    def __init__(self, spec: SweepSpec, folder: pathlib.Path, watch: AbstractWatch) -> None:
        self._spec, self._folder, self._watch = spec, folder, watch
        self._standings = {planned.folder: standing(folder, spec, planned) for planned in spec.runs}
        self._running: frozenset[str] = frozenset()
        self._last = 0.0

    def look(self, jobs: Sequence[Job]) -> None:
        running = frozenset(run for job in jobs for run in job.runs)
        now = time.monotonic()
        if running == self._running and now - self._last < REFRESH:
            return
        for planned in self._spec.runs:
            if planned.folder in running | self._running:
                self._standings[planned.folder] = standing(
                    self._folder, self._spec, planned, running=planned.folder in running
                )
        self._running, self._last = running, now
        self._watch.show(tuple(self._standings.values()))


def _conclude(spec: SweepSpec, folder: pathlib.Path, finished: bool) -> int:
    standings = [standing(folder, spec, planned) for planned in spec.runs]
    failed = [s for s in standings if s.status is Status.FAILED]
    for s in failed:
        print(f"failed: {s.planned.label} ({folder / s.planned.folder}): {s.error}")
    if not finished:
        done = sum(s.status is Status.FINISHED for s in standings)
        print(
            f"stopped and saved; continue with the same command: {done} of {len(standings)} runs are finished"
        )
        return INTERRUPTED
    if failed:
        print(
            f"{len(failed)} of {len(standings)} runs failed; their logs are in {folder}/logs; try them again "
            "with --retry-failed"
        )
        return 1
    unfinished = [s for s in standings if s.status is not Status.FINISHED]
    if unfinished:
        which = ", ".join(f"{s.planned.label} ({s.status.value})" for s in unfinished)
        print(
            f"{len(unfinished)} of {len(standings)} runs are not finished: {which}; their logs are in "
            f"{folder}/logs"
        )
        return 1
    print(f"done: {len(standings)} runs in {folder}; see them with: costate report {folder}")
    return 0
