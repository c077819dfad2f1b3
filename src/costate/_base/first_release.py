"""Meaning of settings that a stored config does not mention: the values of the first release.

Defaults may change; this table does not. So a config that was stored before a field existed keeps its
meaning, and a config's hash, by which a sweep finds its runs, does not change with a default.

A field that is not listed here was added later, and has always meant its own default. If a new field gets a
default that differs from what runs did before the field existed, add the old behaviour to this table.
"""

import dataclasses
from typing import Any

from costate._base.plain_data import choice, encode

GRU = {"name": "gru", "initialisation": "orthogonal"}
QUADRATIC = {"name": "quadratic", "influence": "constant", "initial_deviation": 1.0}

PPO: dict[str, Any] = {
    "costate_coef": 0.05,
    "costate_hidden": "after",
    "costate_gradient": "feature",
    "costate_average": "own",
    "costate_warmup": 0.0,
    "slow_critic": None,
    "bootstrap": 0.8,
    "spread_bonus": 0.0,
    "terminal_coef": 0.0,
    "epochs": 4,
    "minibatches": 4,
    "bptt_length": None,
    "learning_rate": 2.5e-4,
    "learning_rate_decay": "linear",
    "target_kl": 0.01,
    "adam_epsilon": 1e-5,
    "max_gradient_norm": 0.5,
    "discount": 0.99,
    "trace_decay": 0.95,
    "clip_epsilon": 0.2,
    "value_loss": "clipped",
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "reward_scaling": "running-return",
    "reward_clip": 10.0,
}
SAC: dict[str, Any] = {
    "costate_coef": 0.05,
    "costate_memory": "actor",
    "critic": "sighted",
    "steps_per_update": 16,
    "warmup_steps": 5_000,
    "explorers": 0,
    "observation_statistics": "frozen",
    "head_width": 128,
    "learning_rate": 1e-3,
    "max_gradient_norm": 10.0,
    "discount": 0.99,
    "target_rate": 0.05,
    "initial_temperature": 0.1,
    "target_entropy": -0.5,
    "replay": {
        "capacity": 200_000,
        "window": 48,
        "burn_in": 8,
        "batch": 16,
        "storage": "float32",
        "start": "empty",
    },
}

FIRST_RELEASE: dict[str, Any] = {
    "seed": 0,
    "steps": None,
    "checkpoint_every": 20,
    "policy": {"hidden_size": 128, "core": GRU, "readout": QUADRATIC, "feature_size": None, "ensemble": 1},
    "sensors": {
        "dropout": 0.5,
        "group_dropout": 0.0,
        "sensor_dropout": 0.0,
        "burst_length": None,
        "dark": "zero",
        "stuck": 0.0,
        "stuck_length": 20.0,
        "noise": 0.0,
        "drift": 0.0,
        "delay": 0,
        "delay_jitter": 0,
        "hide": [],
        "mask_input": "none",
    },
    "rollout": {
        "environments": 32,
        "rollout_length": 1000,
        "observation_clip": 10.0,
        "random_keys": "separate",
        "fault_warmup": 0.0,
        "noise_colour": 0.0,
    },
    "learner": {"name": "ppo", **PPO},
    "diverged": "stop",
}
"""Values of a whole run config, except its task, which every config names."""

CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "learner": {"ppo": PPO, "sac": SAC},
    "core": {
        "cornn": {"initialisation": "orthogonal", "time_step": 0.5, "stiffness": 1.0, "damping": 1.0},
        "costate-cell": {"initialisation": "orthogonal", "controls": 8, "slowest_decay": 0.01},
        "ctrnn": {"initialisation": "orthogonal"},
        "frame-stack": {"initialisation": "orthogonal", "frames": 8},
        "gru": {"initialisation": "orthogonal"},
        "gru-reset-after": {"initialisation": "orthogonal"},
        "lstm": {"initialisation": "orthogonal", "forget_bias": 1.0},
        "memoryless": {"initialisation": "orthogonal"},
        "rnn": {"initialisation": "orthogonal"},
        "ssm": {
            "initialisation": "orthogonal",
            "modes": None,
            "fastest": 0.5,
            "slowest": 0.95,
            "largest_phase": 0.3141592653589793,
        },
    },
    "readout": {
        "bang-bang": {"influence": "constant"},
        "bang-off-bang": {"influence": "constant", "fuel_weight": 0.2},
        "quadratic": {"influence": "constant", "initial_deviation": 1.0},
        "tanh": {"influence": "constant", "initial_deviation": 1.0},
    },
}
"""Values of the parts that are chosen by name."""


def filled(data: dict[str, Any], first: dict[str, Any] = FIRST_RELEASE) -> dict[str, Any]:
    """Return stored plain data, with the first release's value for every field that it lacks."""
    result = first | data
    for name, value in data.items():
        if not isinstance(value, dict):
            continue
        usual = CHOSEN[name].get(str(value.get("name")), {}) if name in CHOSEN else first.get(name)
        result[name] = filled(value, usual if isinstance(usual, dict) else {})
    return result


def changes(part: Any, first: dict[str, Any] = FIRST_RELEASE) -> dict[str, Any]:
    """Return the fields of a config that differ from the first release.

    A field that the first release did not have is included if it differs from its default.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        usual = first.get(field.name, encode(field.default))
        if not dataclasses.is_dataclass(value):
            if encode(value) != usual:
                found[field.name] = encode(value)
            continue
        name, usual = choice(value), usual if isinstance(usual, dict) else {}
        inside = changes(value, CHOSEN.get(field.name, {}).get(name["name"], {}) if name else usual)
        if inside or name.get("name") != usual.get("name"):
            found[field.name] = name | inside
    return found
