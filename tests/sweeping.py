"""A small real sweep: two runs of a few seconds each, with a checkpoint every few iterations."""

import json
import pathlib

from costate.experiments.spec import SweepSpec, parse_spec

SPEC = """
tasks = ["CartpoleSwingup"]
variants = ["gru", "nc-gru"]
steps = {steps}
[overrides]
checkpoint_every = 5
policy.hidden_size = 8
rollout.environments = 4
ppo.epochs = 1
ppo.minibatches = 1
[evaluation]
dropouts = [0.5]
episodes = 4
"""
# Thirty iterations: long enough to be interrupted in the middle.
STEPS = 120_000


def small_spec(steps: int = STEPS) -> SweepSpec:
    return parse_spec(SPEC.format(steps=steps), "small")


def results(folder: pathlib.Path, spec: SweepSpec) -> dict[str, list]:
    """Return every run's metrics without clocks, and its evaluations without dates."""
    found = {}
    for planned in spec.runs:
        run = folder / planned.folder
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        metrics = [
            {
                name: value
                for name, value in row.items()
                if not name.startswith("time/") and name != "training/sps"
            }
            for row in rows
        ]
        evaluations = [
            json.loads(file.read_text())["evaluation"]
            for file in sorted((run / "evaluations").glob("*.json"))
        ]
        found[planned.label] = [metrics, evaluations]
    return found
