"""Names of settings in Stable-Baselines3, CleanRL, rsl_rl and Brax.

If another library uses a different name for the same setting, that name is accepted. If it means something
else, a sentence says what to use instead.
"""

from collections.abc import Collection, Iterator, Sequence

_SAME = {
    "algorithm": "algo",
    "seeds": "num_seeds n_seeds",
    "steps": "total_timesteps num_timesteps total_steps total_env_steps num_env_steps timesteps "
    "num_train_steps num_frames",
    "out": "logdir log_dir output_dir save_dir run_dir",
    "wandb": "wandb_project wandb_project_name",
    "episodes": "num_episodes n_episodes n_eval_episodes eval_episodes num_eval_episodes",
    "environments": "num_envs n_envs num_environments n_environments envs",
    "rollout_length": "unroll_length num_steps_per_env",
    "hidden_size": "hidden_dim hidden_units hidden_width lstm_hidden_size rnn_hidden_size rnn_hidden_dim "
    "gru_hidden_size",
    "epochs": "n_epochs num_epochs update_epochs num_learning_epochs num_updates_per_batch ppo_epochs",
    "minibatches": "num_minibatches n_minibatches num_mini_batches",
    "learning_rate": "lr",
    "discount": "gamma discounting discount_factor",
    "trace_decay": "gae_lambda lam",
    "clip_epsilon": "clip_coef clip_range clip_param clip_eps clipping_epsilon ppo_clip",
    "entropy_coef": "ent_coef entropy_cost entropy_coefficient",
    "value_coef": "vf_coef value_loss_coef vf_loss_coef",
    "max_gradient_norm": "max_grad_norm grad_clip",
    "target_kl": "desired_kl",
    "target_rate": "tau polyak",
    "warmup_steps": "learning_starts start_steps",
    "initial_temperature": "init_temperature",
    "replay.capacity": "buffer_size replay_size replay_capacity",
}
OTHER_NAMES = {other: ours for ours, others in _SAME.items() for other in others.split()}
"""Name in another library → our setting with the same meaning. Dots lead into nested settings."""

TASK_NAMES = ("env", "env_id", "env_name", "task")
"""Flags of other libraries for the task, which is a positional argument here."""

_DEVICE = (
    "JAX chooses the device: set JAX_PLATFORMS=cpu or JAX_PLATFORMS=cuda in the environment. "
    "--devices is the number of devices that share the work."
)
_BATCH = (
    "PPO splits a rollout into --minibatches parts; soft actor-critic learns from --replay.batch windows at "
    "a time."
)
_CHOICES = "--core chooses the recurrent core, --readout the control law, and --preset a whole variant."
_UPDATES = "Soft actor-critic makes one update for every --steps-per-update environment steps."
_LENGTH = (
    "--steps is the length of training in environment steps; --rollout-length is the number of steps of each "
    "environment in one iteration."
)
_SCHEDULE = "--learning-rate-decay is linear, none or adaptive."
_CHECKPOINTS = "--checkpoint-every counts iterations, of environments × rollout_length steps each."
_TASK_DECIDES = "The task sets it; a task of your own can set another value."
_FOLDER = "--out is the folder of the run."
EXPLANATIONS = {
    "device": _DEVICE, "cuda": _DEVICE, "gpu": _DEVICE, "use_gpu": _DEVICE, "num_gpus": _DEVICE,
    "batch_size": _BATCH, "minibatch_size": _BATCH, "mini_batch_size": _BATCH,
    "train_freq": _UPDATES, "gradient_steps": _UPDATES,
    "utd_ratio": _UPDATES, "grad_updates_per_step": _UPDATES,
    "num_steps": _LENGTH, "n_steps": _LENGTH, "horizon": _LENGTH,
    "max_iterations": _LENGTH, "num_iterations": _LENGTH,
    "anneal_lr": _SCHEDULE, "lr_schedule": _SCHEDULE, "schedule": _SCHEDULE,
    "save_freq": _CHECKPOINTS, "save_interval": _CHECKPOINTS,
    "checkpoint_freq": _CHECKPOINTS, "checkpoint_interval": _CHECKPOINTS,
    "episode_length": _TASK_DECIDES, "action_repeat": _TASK_DECIDES, "frame_skip": _TASK_DECIDES,
    "exp_name": _FOLDER, "experiment_name": _FOLDER, "run_name": _FOLDER,
    "track": "--wandb PROJECT logs to Weights & Biases.",
    "policy": _CHOICES, "policy_type": _CHOICES,
    "alpha": "--initial-temperature is the initial weight of the entropy; it is learned from there on.",
}  # fmt: skip
"""Name in another library → what to use here instead."""


def instead_of(name: str) -> str:
    """Return a sentence about a name that another library uses; empty for any other name."""
    name = name.lstrip("-").replace("-", "_")
    if name in OTHER_NAMES:
        return f"{name} is called {OTHER_NAMES[name]} here."
    return EXPLANATIONS.get(name, "")


def with_our_names(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Replace flags of other libraries by ours, if the command has our flag and lacks theirs."""
    return list(_replaced(arguments, flags))


def _replaced(arguments: Sequence[str], flags: Collection[str]) -> Iterator[str]:
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        ours = f"--{OTHER_NAMES.get(name, '').replace('_', '-')}"
        if flag.startswith("--") and flag not in flags and ours in flags:
            yield f"{ours}{equals}{value}"
        else:
            yield argument


def task_by_position(arguments: Sequence[str]) -> list[str]:
    """Replace a flag that names the task, as in ``--env NAME``, by the positional argument."""
    kept: list[str] = []
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if not flag.startswith("--") or flag.removeprefix("--").replace("-", "_") not in TASK_NAMES:
            kept.append(argument)
        elif value:
            kept.append(value)
    return kept
