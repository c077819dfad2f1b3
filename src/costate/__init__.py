"""Recurrent policies whose hidden state is trained to be the co-state of optimal control."""

import importlib
from typing import TYPE_CHECKING, Any

from costate._lazy import lazy_module, public_modules

if TYPE_CHECKING:
    from costate._errors import CostateError as CostateError
    from costate.config import RunConfig as RunConfig
    from costate.deploy.policy import Policy as Policy
    from costate.envs import TASKS as TASKS
    from costate.envs.sensors import SensorConfig as SensorConfig
    from costate.evaluation import evaluate as evaluate
    from costate.exporting import export as export
    from costate.loading import load as load
    from costate.options import train as train
    from costate.policy import PolicyConfig as PolicyConfig
    from costate.ppo_config import PPOConfig as PPOConfig
    from costate.presets import preset as preset
    from costate.rollout import RolloutConfig as RolloutConfig
    from costate.run_directory import Run as Run
    from costate.run_directory import open_run as open_run
    from costate.training import resume as resume
    from costate.training import resume_together as resume_together
    from costate.training import train_together as train_together

# Imported when they are asked for, so that a policy can be loaded on a machine, and in a time, that training could not be.
_HOMES = {
    "CostateError": "_errors", "RunConfig": "config", "preset": "presets", "Policy": "deploy.policy", "TASKS": "envs", "SensorConfig": "envs.sensors",
    "evaluate": "evaluation", "export": "exporting", "load": "loading", "train": "options", "PolicyConfig": "policy", "PPOConfig": "ppo_config",
    "RolloutConfig": "rollout", "Run": "run_directory", "open_run": "run_directory", "resume": "training", "resume_together": "training",
    "train_together": "training",
}  # fmt: skip
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return lazy_module(__name__, name)
    return getattr(importlib.import_module(f"costate.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *public_modules(__name__)})
