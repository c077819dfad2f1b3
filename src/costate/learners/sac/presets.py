"""Presets of soft actor-critic: the paper's four variants, off-policy."""

from costate.learners.base import Variant
from costate.learners.sac.config import SACConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.policy import PolicyConfig

PLAIN, LEAKY = SACConfig(costate_coef=0.0), PolicyConfig(core=CTRNNConfig())

PRESETS: dict[str, Variant] = {
    "sac-gru": Variant(PLAIN),
    "nc-sac-gru": Variant(SACConfig()),
    "sac-ctrnn": Variant(PLAIN, LEAKY),
    "nc-sac-ctrnn": Variant(SACConfig(), LEAKY),
}
