"""Exported policies run from their bytes, as who receives them will: a step that takes and returns the state."""

import jax.export
import numpy as np

from costate._base.errors import ExportError
from costate._base.types import Bool
from costate.deploy import numpy_runtime
from costate.deploy.bundle import Bundle, in_own_words, unpack
from costate.deploy.parity import Step
from costate.deploy.policy import Policy


def bundle_step(content: bytes) -> Step:
    """A bundle, loaded into JAX again."""
    return Policy(unpack(content)).predict


def trained_step(trained: Bundle, read: Bool[np.ndarray, " I"]) -> Step:
    """The policy as it was trained, with all sensors of its task, of which those that are not ``read`` show 0."""
    policy = Policy(trained)

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        whole = np.zeros((observation.shape[0], read.size), observation.dtype)
        whole[:, read] = observation
        return policy.predict(whole, state, is_first)

    return step


def numpy_step(content: bytes) -> Step:
    """A bundle in the NumPy runtime."""
    with in_own_words():
        network = numpy_runtime.network_of(*numpy_runtime.parse_bundle(content))

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        decision = network.step(observation, state, is_first if is_first.any() else None)
        return decision.action, decision.state

    return step


def onnx_step(content: bytes) -> Step:
    """An ONNX model in ONNX Runtime, on one thread."""
    try:
        import onnxruntime
    except ImportError as error:  # pragma: no cover
        raise ExportError(
            "An ONNX policy is compared by ONNX Runtime, which is not installed. Install it with: pip install 'costate[export]'."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        action, after = session.run(
            ["action", "next_state"], {"observation": observation, "state": state, "is_first": is_first}
        )
        return action, after

    return step


def stablehlo_step(content: bytes) -> Step:
    """A serialised program, run by JAX."""
    program = jax.jit(jax.export.deserialize(bytearray(content)).call)

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        action, after, *_ = program(observation, state, is_first)
        return np.asarray(action), np.asarray(after)

    return step
