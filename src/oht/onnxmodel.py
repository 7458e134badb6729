"""A policy as an ONNX model, made from plain arrays; needs the package onnx (`oht[onnx]`)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from oht.errors import UserError

OPSET, IR_VERSION = 17, 8  # ONNX of 2022, which runtimes of the years after read
OUTPUT = "action"


def build(
    layout: Mapping[str, Any], arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], norm_epsilon: float
) -> bytes:
    """The model: each part of an observation as an input (batch, ...), `action` (batch, ...) in the env's range out.

    `arrays` and `facts` are those of `policies.SavedPolicy`. A Box observation is the input `obs`; the parts of a Dict
    are named by its keys, nested ones joined by a slash, those of a Tuple by their numbers.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise UserError("ONNX files need the package onnx; pip install 'oht[onnx]'.") from None

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(constants)}"
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def node(kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{kind.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def activated(x: str) -> str:
        match facts["activation"]:
            case "silu":
                return node("Mul", x, node("Sigmoid", x))
            case "gelu":  # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; ONNX has it since opset 20 only
                cube = node("Mul", node("Mul", x, x), node("Mul", x, constant(0.044715)))
                inner = node("Mul", node("Add", x, cube), constant(np.sqrt(2 / np.pi)))
                return node("Mul", node("Mul", x, constant(0.5)), node("Add", node("Tanh", inner), constant(1.0)))
            case simple:
                return node(simple.capitalize(), x)

    def info(name: str, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])

    parts = dict(leaves(layout))
    if OUTPUT in parts:
        raise UserError(f"a part of the observations is called {OUTPUT!r}, the name of the output; save a .npz file.")
    x = node("Concat", *(node("Flatten", name, axis=1) for name in parts), axis=1)
    if "mean" in arrays:
        limit = arrays["clip"]
        x = node("Div", node("Sub", x, constant(arrays["mean"])), constant(arrays["scale"]))
        x = node("Clip", x, constant(-limit), constant(limit))
    low, high = arrays["low"], arrays["high"]
    last = sum(name.startswith("kernel_") for name in arrays) - 1
    for i in range(last):
        x = node("Gemm", x, constant(arrays[f"kernel_{i}"]), constant(arrays[f"bias_{i}"]))
        if f"norm_scale_{i}" in arrays:
            scale, bias = constant(arrays[f"norm_scale_{i}"]), constant(arrays[f"norm_bias_{i}"])
            x = node("LayerNormalization", x, scale, bias, axis=-1, epsilon=norm_epsilon)
        x = activated(x)
    size = low.size  # a Gaussian policy has its log deviation behind the mean
    x = node("Gemm", x, constant(arrays[f"kernel_{last}"][:, :size]), constant(arrays[f"bias_{last}"][:size]))
    unit = node("Reshape", node("Tanh", x), constant([-1, *low.shape], np.int64))
    middle, half = (low.astype(np.float64) + high) / 2, (high.astype(np.float64) - low) / 2
    action = node("Add", node("Mul", unit, constant(half)), constant(middle))
    node("Min", node("Max", action, constant(low)), constant(high), output=OUTPUT)

    inputs = [info(name, shape) for name, shape in parts.items()]
    graph = helper.make_graph(nodes, "policy", inputs, [info(OUTPUT, low.shape)], constants)
    made = {"producer_name": "oht", "ir_version": IR_VERSION, "opset_imports": [helper.make_opsetid("", OPSET)]}
    model = helper.make_model(graph, **made)
    helper.set_model_props(model, {name: str(value) for name, value in facts.items()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def leaves(layout: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, list[int]]]:
    """The name and shape of each array of an observation."""
    if "box" in layout:
        yield path or "obs", layout["box"]
        return
    for key, part in layout["dict"] if "dict" in layout else enumerate(layout["tuple"]):
        yield from leaves(part, f"{path}/{key}" if path else str(key))
