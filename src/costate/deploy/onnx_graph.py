"""Export a policy as an ONNX graph, by letting the NumPy runtime compute with graph nodes instead of numbers.

NumPy passes its own functions on to the arguments (``__array_ufunc__``, ``__array_function__``). The
mathematics is therefore written once, and a core with a NumPy form also has an ONNX form.
"""

import json
from typing import Any

import numpy as np

from costate._base.errors import ExportError
from costate.deploy.bundle import Bundle, translated_errors
from costate.deploy.numpy_runtime import Decision, network_of

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:  # pragma: no cover
    raise ExportError(
        "This format needs the package onnx, which is not installed. Install it with: pip install "
        "'costate[export]'."
    ) from error

# Old enough for common runtimes, and new enough for a reduction whose axes are an input.
OPSET, IR_VERSION = 18, 9
INPUTS, OUTPUTS = ("observation", "state", "is_first"), ("action", "next_state", "hidden", "value")
UNARY = {np.tanh: "Tanh", np.negative: "Neg", np.absolute: "Abs"}
BINARY = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.divide: "Div",
    np.matmul: "MatMul",
    np.maximum: "Max",
    np.minimum: "Min",
    np.greater: "Greater",
    np.less: "Less",
}
EVERYTHING = np.iinfo(np.int64).max


class Graph:
    """Nodes and constants, in the order of creation."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []

    def add(self, operation: str, *inputs: Any, **attributes: Any) -> "Node":
        name = f"n{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operation, [self.name_of(each) for each in inputs], [name], **attributes)
        )
        return Node(self, name)

    def name_of(self, operand: Any) -> str:
        """Return the name of a node or a constant. An array that is used twice is stored once."""
        if isinstance(operand, Node):
            return operand.name
        if id(operand) in self._names:
            return self._names[id(operand)]
        array = np.asarray(operand)
        name = f"c{len(self.constants)}"
        self.constants[name] = (
            array if array.dtype == np.int64 and array.ndim == 1 else array.astype(np.float32)
        )
        if isinstance(operand, np.ndarray):
            # Kept alive, so that no other array gets the same address.
            self._names[id(operand)] = name
            self._kept.append(operand)
        return name


class Node(np.lib.mixins.NDArrayOperatorsMixin):
    """An array whose value is computed when the graph runs."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> "Node":
        if method == "__call__" and not options:
            if function in UNARY or function in BINARY:
                return self.graph.add((UNARY | BINARY)[function], *inputs)
            if function is np.logaddexp and isinstance(inputs[1], float) and inputs[1] == 0.0:
                return self.graph.add("Softplus", inputs[0])
        if function is np.maximum and method == "reduce":
            return self.graph.add(
                "ReduceMax", inputs[0], _integers(options["axis"]), keepdims=int(options["keepdims"])
            )
        raise ExportError(
            f"The ONNX export does not know numpy's {function.__name__} ({method}), which this policy's core "
            f"or readout uses. Use --format numpy, bundle or stablehlo; or add the operation to "
            f"costate/deploy/onnx_graph.py."
        )

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> "Node":
        if function is np.where:
            return self.graph.add("Where", *arguments)
        if function is np.concatenate:
            return self.graph.add("Concat", *arguments[0], axis=options["axis"])
        raise ExportError(
            f"{function.__name__} has no ONNX counterpart yet. Add one to costate/deploy/onnx_graph.py."
        )

    def __getitem__(self, index: tuple[slice, slice | None]) -> "Node":
        """Return columns ``[:, a:b]``, or a new axis ``[:, None]``."""
        columns = index[1]
        if columns is None:
            return self.graph.add("Unsqueeze", self, _integers(1))
        start, stop = columns.start or 0, EVERYTHING if columns.stop is None else columns.stop
        return self.graph.add("Slice", self, _integers(start), _integers(stop), _integers(1))


def _integers(value: int) -> np.ndarray:
    return np.asarray([value], np.int64)


def onnx_model(bundle: Bundle) -> bytes:
    """Return the policy as a serialised ONNX model.

    Inputs are observation [B, O], state [B, S] and is_first [B]. Outputs are action, next_state, hidden and
    value.
    """
    with translated_errors():
        network = network_of(bundle.description, bundle.tensors, name=bundle.name)
    graph = Graph()
    observation, state, is_first = (Node(graph, name) for name in INPUTS)
    decision = network.step(observation, state, is_first)
    widths = (network.sizes.observation, network.state_size)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in zip(INPUTS, widths, strict=False)
    ]
    inputs.append(helper.make_tensor_value_info("is_first", TensorProto.BOOL, ["batch"]))
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    outputs = _outputs(
        graph,
        decision,
        (network.sizes.action, network.state_size, network.sizes.hidden * network.sizes.members),
    )
    made = helper.make_graph(graph.nodes, "costate_policy", inputs, outputs, constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="costate"
    )
    helper.set_model_props(model, {"costate": json.dumps(bundle.description, separators=(",", ":"))})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _outputs(graph: Graph, decision: Decision, widths: tuple[int, int, int]) -> list[Any]:
    """Return the named outputs. There is a value only if there is a critic."""
    infos = []
    for name, result, width in zip(OUTPUTS, decision, (*widths, None), strict=True):
        if result is not None:
            graph.nodes.append(helper.make_node("Identity", [graph.name_of(result)], [name]))
            infos.append(
                helper.make_tensor_value_info(
                    name, TensorProto.FLOAT, ["batch"] if width is None else ["batch", width]
                )
            )
    return infos
