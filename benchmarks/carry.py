"""Carry a sweep from one machine to another in one archive.

    python benchmarks/carry.py pack sweeps/walker_coefficient walker.tar.xz
    python benchmarks/carry.py unpack walker.tar.xz sweeps/walker_coefficient
    costate sweep benchmarks/sweeps/walker_coefficient.toml

The archive contains what reports and unfinished runs need. A finished run needs its curves and evaluations
only, so its weights are left out. An unfinished run comes with its newest checkpoint.
"""

import argparse
import json
import pathlib
import tarfile
from collections.abc import Iterator

from costate.experiments.sweep import MANIFEST
from costate.runs.checkpoint import RECORD_FILE, folders, steps_of
from costate.runs.run_directory import open_run

KEPT = ("config.json", "machine.json", "metrics.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (source, target) in {"pack": ("sweep", "archive"), "unpack": ("archive", "sweep")}.items():
        command = commands.add_parser(name)
        command.add_argument(source, type=pathlib.Path)
        command.add_argument(target, type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "pack":
        pack(arguments.sweep, arguments.archive)
    else:
        unpack(arguments.archive, arguments.sweep)


def pack(sweep: pathlib.Path, archive: pathlib.Path) -> None:
    partial = archive.with_name(f".{archive.name}.partial")
    with tarfile.open(partial, "w:xz") as file:
        for path in contents(sweep):
            file.add(path, path.relative_to(sweep), recursive=False)
    partial.replace(archive)
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")


def contents(sweep: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield every file of the archive."""
    yield sweep / MANIFEST
    for entry in json.loads((sweep / MANIFEST).read_text())["runs"]:
        run = sweep / entry["folder"]
        if not (run / KEPT[0]).is_file():
            continue
        yield from (run / name for name in KEPT if (run / name).is_file())
        yield from sorted((run / "evaluations").glob("*.json*"))
        saved = folders(run / "checkpoints")
        if saved:
            finished = steps_of(saved[-1]) == open_run(run).config.final_steps
            yield from (
                path for path in sorted(saved[-1].iterdir()) if path.name == RECORD_FILE or not finished
            )
            # The best policy so far, which a better one may replace.
            yield from (
                () if finished else sorted(path for path in (run / "best").rglob("*") if path.is_file())
            )
            # The replay of soft actor-critic lies beside its checkpoints.
            yield from (
                ()
                if finished
                else sorted(path for path in (run / "checkpoints" / "replay").rglob("*") if path.is_file())
            )


def unpack(archive: pathlib.Path, sweep: pathlib.Path) -> None:
    if sweep.exists():
        raise SystemExit(f"{sweep} exists. Unpack into a new folder, so that no other sweep is overwritten.")
    with tarfile.open(archive) as file:
        # The filter refuses names that lead out of the folder, links and devices.
        file.extractall(sweep, filter="data")
    print(f"{sweep}: unpacked; continue with `costate sweep`, the same specification and --out {sweep}")


if __name__ == "__main__":
    main()
