"""Run exported policies from their bytes, as a recipient would: a step takes and returns the state."""

import jax.export
import numpy as np

from costate._base.errors import ExportError
from costate._base.types import Bool
from costate.deploy import numpy_runtime
from costate.deploy.bundle import Bundle, translated_errors, unpack
from costate.deploy.parity import Step
from costate.deploy.policy import Policy


def bundle_step(content: bytes) -> Step:
    """Load a bundle into JAX again."""
    return Policy(unpack(content)).predict


def trained_step(trained: Bundle, read: Bool[np.ndarray, " I"]) -> Step:
    """Return the policy as it was trained, with all sensors of its task. Those not in ``read`` are 0."""
    policy = Policy(trained)

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        whole = np.zeros((observation.shape[0], read.size), observation.dtype)
        whole[:, read] = observation
        return policy.predict(whole, state, is_first)

    return step


def numpy_step(content: bytes) -> Step:
    """Load a bundle into the NumPy runtime."""
    with translated_errors():
        network = numpy_runtime.network_of(*numpy_runtime.parse_bundle(content))

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        decision = network.step(observation, state, is_first if is_first.any() else None)
        return decision.action, decision.state

    return step


def onnx_step(content: bytes) -> Step:
    """Load an ONNX model into ONNX Runtime, on one thread."""
    try:
        import onnxruntime
    except ImportError as error:  # pragma: no cover
        raise ExportError(
            "Checking an ONNX policy needs ONNX Runtime, which is not installed. Install it with: pip "
            "install 'costate[export]'."
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
    """Load a serialised program into JAX."""
    program = jax.jit(jax.export.deserialize(bytearray(content)).call)

    def step(
        observation: np.ndarray, state: np.ndarray, is_first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        action, after, *_ = program(observation, state, is_first)
        return np.asarray(action), np.asarray(after)

    return step
