"""Recurrent policies whose hidden state is trained to be the co-state of optimal control."""

import importlib
from typing import TYPE_CHECKING, Any

from costate._base.lazy import lazy_module, public_modules

if TYPE_CHECKING:
    from costate._base.errors import CostateError as CostateError
    from costate.config.presets import preset as preset
    from costate.config.run_config import RunConfig as RunConfig
    from costate.deploy.policy import Policy as Policy
    from costate.envs import TASKS as TASKS
    from costate.envs.sensors import SensorConfig as SensorConfig
    from costate.learners.ppo.config import PPOConfig as PPOConfig
    from costate.learners.rollout import RolloutConfig as RolloutConfig
    from costate.policies.policy import PolicyConfig as PolicyConfig
    from costate.runs.run_directory import Run as Run
    from costate.runs.run_directory import open_run as open_run
    from costate.trained import true_costates as true_costates
    from costate.trained.evaluation import evaluate as evaluate
    from costate.trained.exporting import export as export
    from costate.trained.loading import load as load
    from costate.training.loop import resume as resume
    from costate.training.loop import resume_together as resume_together
    from costate.training.loop import train_together as train_together
    from costate.training.options import train as train

# Imported on first use, so that loading a policy is fast and needs no package that only training needs.
_HOMES = {
    "CostateError": "_base.errors",
    "Policy": "deploy.policy",
    "PolicyConfig": "policies.policy",
    "PPOConfig": "learners.ppo.config",
    "RolloutConfig": "learners.rollout",
    "Run": "runs.run_directory",
    "RunConfig": "config.run_config",
    "SensorConfig": "envs.sensors",
    "TASKS": "envs",
    "evaluate": "trained.evaluation",
    "export": "trained.exporting",
    "load": "trained.loading",
    "open_run": "runs.run_directory",
    "preset": "config.presets",
    "resume": "training.loop",
    "resume_together": "training.loop",
    "train": "training.options",
    "train_together": "training.loop",
}
# Modules that users call by a shorter name.
_MODULES = {"true_costates": "trained.true_costates"}
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"costate.{_MODULES[name]}")
    if name not in _HOMES:
        return lazy_module(__name__, name)
    return getattr(importlib.import_module(f"costate.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *public_modules(__name__)})
