"""What is changed in a traced graph: 8-bit weights and embeddings, one node per attention, nothing unused."""

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.extras import need
from softermax.kernels.plan import MAX_FACTOR, score_factor
from softermax.pytorch import onnx_operator
from softermax.spec import spec_from_dict

LARGE_TABLE = 1 << 18
"""Elements of the smallest embedding that is stored in 8 bits: below them there is little to save."""

_HEADS_FIRST = [0, 2, 1, 3]
_KEYS_LAST = [0, 1, 3, 2]


class Graph:
    """A graph with who makes a value, who uses it, and what it is where that is constant.

    Nodes change in place: whoever changes inputs makes a new `Graph`.
    """

    def __init__(self, proto: Any) -> None:
        self.numpy = need("onnx.numpy_helper", "onnx")
        self.proto = proto.graph
        self.makers = {name: node for node in self.proto.node for name in node.output}
        self.users = self._count_users()

    def _count_users(self) -> Counter[str]:
        users = Counter(name for node in self.proto.node for name in node.input)
        users.update(value.name for value in self.proto.output)
        return users

    @cached_property
    def stored(self) -> dict[str, Any]:
        return {tensor.name: tensor for tensor in self.proto.initializer}

    def constant(self, name: str) -> NDArray[Any] | None:
        """A value that is the same for every input, or None."""
        found: NDArray[Any] | None = None
        if name in self.stored:
            found = self.numpy.to_array(self.stored[name])
        elif self.is_made_by(name, "Constant") and self.makers[name].attribute[0].name == "value":
            found = self.numpy.to_array(self.makers[name].attribute[0].t)
        return found

    def is_made_by(self, name: str, operator: str) -> bool:
        return name in self.makers and self.makers[name].op_type == operator

    def store(self, values: NDArray[Any], name: str) -> None:
        self.proto.initializer.append(self.numpy.from_array(np.ascontiguousarray(values), name))

    def drop_unused(self) -> None:
        """Nodes and stored tensors that no output depends on go."""
        users = self._count_users()
        kept = []
        for node in reversed(self.proto.node):  # a node's users come after it
            if any(users[name] for name in node.output):
                kept.append(node)
            else:
                users.subtract(node.input)
        del self.proto.node[:]
        self.proto.node.extend(reversed(kept))
        tensors = [tensor for tensor in self.proto.initializer if users[tensor.name]]
        del self.proto.initializer[:]
        self.proto.initializer.extend(tensors)


def store_8_bits(proto: Any) -> bool:
    """Weights that are quantised as the first thing become the 8-bit words themselves."""
    _plain_scalars(Graph(proto))
    graph = Graph(proto)
    found = False
    for node in list(graph.proto.node):
        if node.op_type != "QuantizeLinear" or node.input[0] not in graph.stored:
            continue
        values, scale, zero = (graph.constant(name) for name in node.input[:3])
        assert values is not None
        if scale is None or zero is None or zero.any() or zero.dtype != np.int8:
            continue
        if scale.size > 1 and scale.shape != values.shape[:1]:
            continue
        steps = np.rint(values / scale.reshape(-1, *[1] * (values.ndim - 1)))
        graph.store(np.clip(steps, -128, 127).astype(np.int8), node.output[0])
        graph.proto.node.remove(node)
        found = True
    graph.drop_unused()
    return found


def _plain_scalars(graph: Graph) -> None:
    """The scale of a layer with one output is a vector of one for modelopt; ONNX wants it without axes."""
    for node in graph.proto.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        for name in node.input[1:]:
            value = graph.constant(name)
            if value is not None and value.size == 1 and value.ndim and name in graph.makers:
                graph.makers[name].attribute[0].t.CopyFrom(graph.numpy.from_array(value.reshape(())))


def share_tables(proto: Any) -> int:
    """What attentions look up as stored tensors, equal ones once. Returns how many nodes that saves.

    Other constants stay: onnxruntime's optimiser names what it makes of a scale by that scale, and fails if two share it.
    """
    numpy, graph = need("onnx.numpy_helper", "onnx"), proto.graph
    looked_up = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    names: dict[tuple[Any, ...], str] = {}
    instead: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if node.op_type != "Constant" or node.output[0] not in looked_up or node.attribute[0].name != "value":
            kept.append(node)
            continue
        values = numpy.to_array(node.attribute[0].t)
        name = names.setdefault((values.dtype.str, values.shape, values.tobytes()), node.output[0])
        if name == node.output[0]:
            graph.initializer.append(numpy.from_array(values, name))
        instead[node.output[0]] = name
    saved = len(graph.node) - len(kept)
    for node in kept:
        node.input[:] = [instead.get(name, name) for name in node.input]
    del graph.node[:]
    graph.node.extend(kept)
    return saved


def store_embeddings_in_8_bits(proto: Any) -> int:
    """Large tables that are only looked up, row by row: 8-bit words and a scale per row. Returns how many there were."""
    helper = need("onnx.helper", "onnx")
    graph = Graph(proto)
    found = 0
    for at, node in reversed(list(enumerate(graph.proto.node))):
        table = node.input[0] if node.op_type == "Gather" else ""
        if table not in graph.stored or graph.users[table] > 1 or any(a.i for a in node.attribute):
            continue
        values = graph.constant(table)
        assert values is not None
        if values.dtype != np.float32 or values.ndim != 2 or values.size < LARGE_TABLE:
            continue
        scale = np.maximum(np.abs(values).max(1, keepdims=True), np.float32(1e-30)) / np.float32(127)
        graph.store(np.rint(values / scale).astype(np.int8), f"{table}.words")
        graph.store(scale, f"{table}.scale")
        out, rows = node.output[0], node.input[1]
        made = [
            helper.make_node("Gather", [f"{table}.words", rows], [f"{out}.words"], f"{node.name}.words"),
            helper.make_node("Gather", [f"{table}.scale", rows], [f"{out}.scale"], f"{node.name}.scale"),
            helper.make_node("Cast", [f"{out}.words"], [f"{out}.steps"], f"{node.name}.steps", to=1),
            helper.make_node("Mul", [f"{out}.steps", f"{out}.scale"], [out], f"{node.name}.times"),
        ]
        graph.proto.node.remove(node)
        for new in reversed(made):
            graph.proto.node.insert(at, new)
        found += 1
    graph.drop_unused()
    return found


def fuse_attention(proto: Any) -> int:
    """Softermax between 8-bit products becomes one node with them. Returns how many there are.

    What is fused: MatMul of dequantised Q and transposed K, times a constant, Softermax, MatMul with dequantised V.
    """
    graph = Graph(proto)
    found = 0
    for node in list(graph.proto.node):
        if node.domain == onnx_operator.DOMAIN and node.op_type == onnx_operator.ROWS:
            found += _fuse(graph, node)
    graph.drop_unused()
    return found


def _fuse(graph: Graph, softermax: Any) -> bool:
    helper = need("onnx.helper", "onnx")
    weighted = _weighted(graph, softermax.output[0])
    if weighted is None or not graph.is_made_by(softermax.input[0], "Mul"):
        return False
    scores, factor = graph.makers[softermax.input[0]].input
    scale = graph.constant(factor)
    if scale is None or scale.size != 1 or not graph.is_made_by(scores, "MatMul"):
        return False
    queries, keys = graph.makers[scores].input
    if not graph.is_made_by(keys, "Transpose") or _axes(graph.makers[keys]) != _KEYS_LAST:
        return False
    words = [_words(graph, name) for name in (queries, graph.makers[keys].input[0], weighted.input[1])]
    if any(word is None for word in words):
        return False
    (q, q_scale), (k, k_scale), (v, v_scale) = (word for word in words if word is not None)
    spec = spec_from_dict(json.loads(next(a.s for a in softermax.attribute if a.name == "spec")))
    score_scale = q_scale * k_scale * float(scale.reshape(()))
    if abs(score_factor(spec, score_scale)) > MAX_FACTOR:
        return False
    heads_last = all(_is_moved(graph, quantize) for quantize in (q, k, v))
    if heads_last:
        # The core reads the heads where they are.
        for quantize in (q, k, v):
            quantize.input[0] = graph.makers[quantize.input[0]].input[0]
            _quantize_before_reshape(graph, quantize)
    back = _moved_back(graph, weighted.output[0])
    fused = helper.make_node(
        onnx_operator.ATTENTION, [q.output[0], k.output[0], v.output[0], *softermax.input[1:]],
        weighted.output if back is None else back.output, weighted.name, domain=onnx_operator.DOMAIN,
        **onnx_operator.attention_attributes(spec, score_scale, v_scale, heads_last, back is not None),
    )  # fmt: skip
    if back is not None:
        # The core writes the heads where they go.
        graph.proto.node.remove(back)
    weighted.CopyFrom(fused)
    return True


def _weighted(graph: Graph, probabilities: str) -> Any:
    """The product that is the only one to use probabilities, perhaps after a cast to their own type."""
    while graph.users[probabilities] == 1:
        user = next(node for node in graph.proto.node if probabilities in node.input)
        if user.op_type == "MatMul":
            return user if user.input[0] == probabilities else None
        if user.op_type != "Cast" or user.attribute[0].i != 1:
            return None
        probabilities = user.output[0]
    return None


def _words(graph: Graph, name: str) -> tuple[Any, float] | None:
    """Who quantises a dequantised value, and its scale, where it is symmetric int8 with one scale and used once."""
    if not graph.is_made_by(name, "DequantizeLinear") or graph.users[name] != 1:
        return None
    words = graph.makers[name].input[0]
    if not graph.is_made_by(words, "QuantizeLinear") or graph.users[words] != 1:
        return None
    scale, zero = (graph.constant(part) for part in graph.makers[name].input[1:3])
    if scale is None or zero is None or scale.size != 1 or zero.dtype != np.int8 or zero.any():
        return None
    return graph.makers[words], float(scale.reshape(()))


def _is_moved(graph: Graph, quantize: Any) -> bool:
    """Whether heads are moved before their positions, and for this node only."""
    name = quantize.input[0]
    return (
        graph.is_made_by(name, "Transpose")
        and _axes(graph.makers[name]) == _HEADS_FIRST
        and graph.users[name] == 1
    )


def _quantize_before_reshape(graph: Graph, quantize: Any) -> None:
    """The two change places: onnxruntime would quantise before the Reshape, too, and again after it."""
    name = quantize.input[0]
    if not graph.is_made_by(name, "Reshape") or graph.users[name] != 1:
        return
    reshape = graph.makers[name]
    words = f"{quantize.output[0]}.flat"
    first = type(quantize)()
    first.CopyFrom(quantize)
    first.input[0], first.output[0] = reshape.input[0], words
    at = next(i for i, node in enumerate(graph.proto.node) if quantize.output[0] in node.output)
    out = quantize.output[0]
    quantize.CopyFrom(reshape)
    quantize.input[0], quantize.output[0] = words, out
    graph.proto.node.insert(at, first)


def _moved_back(graph: Graph, name: str) -> Any:
    """The node that moves heads after their positions again, where nobody else uses the value."""
    if graph.users[name] != 1:
        return None
    user = next((node for node in graph.proto.node if name in node.input), None)
    return user if user is not None and user.op_type == "Transpose" and _axes(user) == _HEADS_FIRST else None


def _axes(transpose: Any) -> list[int]:
    return list(transpose.attribute[0].ints)
