"""Recurrent policies whose hidden state is trained to be the co-state of optimal control."""

from costate._errors import CostateError as CostateError
from costate.config import RunConfig as RunConfig
from costate.config import preset as preset
from costate.envs.sensors import SensorConfig as SensorConfig
from costate.evaluation import evaluate as evaluate
from costate.policy import PolicyConfig as PolicyConfig
from costate.ppo_config import PPOConfig as PPOConfig
from costate.rollout import RolloutConfig as RolloutConfig
from costate.run_directory import Run as Run
from costate.run_directory import open_run as open_run
from costate.training import resume as resume
from costate.training import resume_together as resume_together
from costate.training import train as train
from costate.training import train_together as train_together
