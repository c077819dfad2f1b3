"""Presets of PPO: the paper's four variants, the authors' code, and the policy class of Definition 3.2."""

from costate.learners.base import Variant
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.cores.costate_cell import CostateCellConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.gru import ResetAfterGRUConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig, TanhReadoutConfig

PLAIN, LEAKY = PPOConfig(costate_coef=0.0), PolicyConfig(core=CTRNNConfig())

PRESETS: dict[str, Variant] = {
    "gru": Variant(PLAIN),
    "nc-gru": Variant(PPOConfig()),
    "ctrnn": Variant(PLAIN, LEAKY),
    "nc-ctrnn": Variant(PPOConfig(), LEAKY),
    "authors-code": Variant(
        PPOConfig(costate_hidden="before", reward_clip=None),
        PolicyConfig(core=ResetAfterGRUConfig(initialisation="uniform"), readout=TanhReadoutConfig()),
        rollout=RolloutConfig(observation_clip=None, random_keys="shared"),
    ),
    "ncp": Variant(
        PPOConfig(),
        PolicyConfig(core=CostateCellConfig(), readout=QuadraticReadoutConfig(influence="observed")),
    ),
}
