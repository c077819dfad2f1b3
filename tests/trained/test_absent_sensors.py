"""Policies that were trained with hidden sensors do not read them, in whatever form they are used."""

import dataclasses
import json
import pathlib

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from deployed import random_bundle
from shown_runs import made_run

import costate
from costate._base.errors import ExportError, MisuseError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.deploy import numpy_runtime
from costate.deploy.absent import inputs_without, without_groups
from costate.deploy.bundle import pack, unpack
from costate.deploy.parity import check_parity
from costate.deploy.policy import Policy
from costate.deploy.runners import numpy_step, trained_step
from costate.envs.base import AbstractActuators, TimeStep
from costate.envs.sensors import SensorConfig
from costate.learners import LEARNERS
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.run_directory import Run
from costate.trained.trained import load_controller

SMALL = PolicyConfig(hidden_size=7)
HIDDEN = SensorConfig(0.25, hide=("velocity",))


@pytest.fixture(scope="module", params=["ppo", "sac"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a cart-pole with hidden velocities and arbitrary statistics, also of the hidden sensors."""
    config = RunConfig(
        "CartpoleSwingup",
        policy=SMALL,
        rollout=RolloutConfig(4, 1000),
        sensors=HIDDEN,
        learner=LEARNERS[request.param](),
    )
    return made_run(tmp_path_factory.mktemp("absent") / "run", config)


class Bounds(AbstractActuators):
    batch_size, action_size = 3, 1
    action_low, action_high = np.asarray([-1.0]), np.asarray([1.0])


@pytest.mark.quick("5.0-none-ppo", "5.0-bits-sac", "None-bits-ppo")
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
@pytest.mark.parametrize("mask_input", ["none", "bit", "bits"])
@pytest.mark.parametrize("clip", [5.0, None])
def test_without_a_group_it_acts_as_if_that_always_read_zero(
    algorithm: str, mask_input: str, clip: float | None
) -> None:
    """Statistics are random, so that a hidden sensor's zero is no zero to the encoder."""
    whole = random_bundle(SMALL, algorithm=algorithm, mask_input=mask_input, observation_clip=clip)
    narrow = without_groups(whole, ["velocity"])
    assert narrow.description["observation"] == [["position", 3]]
    assert narrow.sizes.observation == {"none": 3, "bit": 4, "bits": 6}[mask_input]
    check_parity(
        Policy(narrow), trained_step(whole, inputs_without(whole, ["velocity"])), "reduced", steps=60
    )
    check_parity(Policy(narrow), numpy_step(pack(narrow)), "numpy", steps=60)


def test_a_loaded_run_acts_as_in_training_with_the_hidden_sensors_left_out(run: Run) -> None:
    policy, (_, controller) = costate.load(run), load_controller(run, None, print)
    assert policy.observation_layout == (("position", 3),)
    assert policy.absent_sensors == (("velocity", 2),)
    memory, rng = controller.empty_memory(Bounds()), np.random.default_rng(0)
    policy.reset(3)
    for _ in range(5):
        shown, first = rng.standard_normal((3, 3)).astype(np.float32), rng.random(3) < 0.2
        observation = np.concatenate([shown, np.zeros((3, 2), np.float32)], axis=1)
        now = TimeStep(
            *map(
                jnp.asarray,
                (observation, np.zeros(3, np.float32), np.ones(3, np.float32), first, np.zeros(3, bool)),
            )
        )
        action, memory = controller.decide(Bounds(), now, memory)
        np.testing.assert_allclose(policy.step(shown, first), action, atol=2e-6)


@pytest.mark.quick("sac")
def test_every_exported_form_takes_what_is_left_and_says_so(
    run: Run, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.path), "--format", "numpy", "--out", str(tmp_path / "numpy")]) == 0
    said = capsys.readouterr().out
    assert "reads: position (3)\n" in said
    assert "trained with: 25% blackout, hide velocity; without velocity (2), which it does not read\n" in said
    guide = (tmp_path / "numpy" / "README.md").read_text()
    assert "- `position`: 3\n" in guide
    assert "`velocity`" not in guide
    assert (
        "Sensors in training: 25% blackout, hide velocity; without velocity (2), which it does not read."
        in guide
    )
    agent = numpy_runtime.Policy(tmp_path / "numpy" / "policy.costate")
    np.testing.assert_allclose(
        agent.step([0.1, -0.2, 0.3]), costate.load(run).step([0.1, -0.2, 0.3]), atol=1e-5
    )
    costate.export(run, "onnx", tmp_path / "policy.onnx")
    inputs = {
        each.name: each.shape for each in onnxruntime.InferenceSession(tmp_path / "policy.onnx").get_inputs()
    }
    assert inputs["observation"] == ["batch", 3]
    done = costate.export(run, "stablehlo", tmp_path / "policy.stablehlo")
    assert done.reads == "position (3)"


def test_an_export_whose_reduced_form_differs_from_training_is_refused(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from costate.trained import exporting

    def wrong(bundle, absent):
        narrow = without_groups(bundle, absent)
        return dataclasses.replace(
            narrow,
            tensors=narrow.tensors | {"encoder.bias": narrow.tensors["encoder.bias"] + np.float32(0.1)},
        )

    monkeypatch.setattr(exporting, "without_groups", wrong)
    with pytest.raises(ExportError, match=r"reduced \(without hidden sensors\) form .* nothing was written"):
        costate.export(run, "bundle", tmp_path / "policy.costate")
    assert not (tmp_path / "policy.costate").exists()


@pytest.mark.parametrize("form", ["jax", "numpy"])
def test_a_hidden_group_that_is_given_is_refused_by_its_name(form: str, tmp_path: pathlib.Path) -> None:
    narrow = without_groups(random_bundle(SMALL), ["velocity"])
    (tmp_path / "p.costate").write_bytes(pack(narrow))
    agent = Policy(narrow) if form == "jax" else numpy_runtime.Policy(tmp_path / "p.costate")
    error = MisuseError if form == "jax" else numpy_runtime.MisuseError
    with pytest.raises(
        error,
        match=r"This policy was trained without velocity\. "
        r"Leave that out of the observation, and give only position\.",
    ):
        agent.step({"position": np.zeros(3), "velocity": np.zeros(2)})
    with pytest.raises(
        error,
        match=r"shape \[5\], but this policy reads 3 numbers: position \(3\), and not velocity \(2\), "
        r"which were hidden in training",
    ):
        agent.step(np.zeros(5))
    assert agent.step({"position": np.zeros(3)}).shape == (2,)


def test_a_bundle_that_was_written_with_inputs_for_hidden_sensors_keeps_them() -> None:
    """Programs that feed it must go on to work."""
    old = random_bundle(SMALL, sensors={"dropout": 0.5, "hide": ["velocity"]})
    policy = Policy(unpack(pack(old)))
    assert policy.observation_layout == (("position", 3), ("velocity", 2))
    assert policy.absent_sensors == ()
    assert policy.step(np.zeros(5)).shape == (2,)


@pytest.mark.parametrize("absent", ["velocity", [["velocity"]], [["velocity", -1]], [[3, 1]]])
def test_a_list_of_absent_sensors_that_is_none_is_refused(absent: object) -> None:
    with pytest.raises(costate.CostateError, match="absent sensor"):
        unpack(pack(random_bundle(SMALL, sensors={"absent": absent})))


def test_all_sensors_are_inputs_where_none_was_hidden(tmp_path: pathlib.Path) -> None:
    run = made_run(
        tmp_path / "run", RunConfig("CartpoleSwingup", policy=SMALL, rollout=RolloutConfig(environments=4))
    )
    policy = costate.load(run)
    assert policy.absent_sensors == ()
    assert policy.observation_layout == (("position", 3), ("velocity", 2))
    assert "absent" not in json.dumps(policy.description)
