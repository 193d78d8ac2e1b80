"""A tower that multiplies 8-bit integers, by ONNX Runtime, for inference."""

import os
import tempfile

import keras
import numpy as np

from realm_tf.errors import InputError

# The first with Gelu; LayerNormalization is of 17.
_OPSET = 20
_MASKED = -1e9
_FLOAT, _INT = 1, 6


class Int8Tower:
    """The Transformer layers of an `Embedder` with weights of 8 bits.

    Weights are rounded once, with a scale for each output of a layer, inputs of
    each product as they come, with a scale for each batch. Weights take 7 of
    the 8 bits, as products of 8 would overflow on processors without VNNI.
    Embedding tables, softmax, LayerNorm, the second product of each
    feed-forward layer, whose inputs are a few large numbers and many small
    ones, and what follows the layers compute in float32. Results are for
    inference: no gradient goes through.

    Args:
        tower: `Embedder`. Later changes of its weights do not matter.

    Raises:
        InputError: if ONNX Runtime is not installed.

    References:
        [ONNX Runtime, Quantize ONNX models](https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).
    """

    def __init__(self, tower):
        try:
            import onnx  # noqa: F401
            import onnxruntime
            from onnxruntime import quantization
        except ImportError as error:
            raise InputError(
                "--precision int8 needs ONNX Runtime, which is not installed "
                "here: run `pip install 'realm-tf[int8]'`."
            ) from error
        self.embedding_dim = tower.embedding_dim
        self._tower = tower
        with tempfile.TemporaryDirectory() as directory:
            paths = [os.path.join(directory, name) for name in ("f32", "int8")]
            kept = _save(tower.encoder, paths[0])
            quantization.quantize_dynamic(
                *paths,
                nodes_to_exclude=kept,
                op_types_to_quantize=["MatMul"],
                per_channel=True,
                reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
            )
            self._session = onnxruntime.InferenceSession(
                paths[1], providers=["CPUExecutionProvider"]
            )

    def predict_on_batch(self, inputs: dict) -> np.ndarray:
        """As `keras.Model.predict_on_batch` of the `Embedder`."""
        layers = [
            each
            for each in self._tower.layers
            if not isinstance(each, keras.layers.InputLayer)
            and each is not self._tower.encoder
        ]
        if self._tower.prefix_ids:
            prefix, *layers = layers
            inputs = prefix(inputs)
        padding_mask = np.asarray(inputs["padding_mask"])
        (sequence,) = self._session.run(
            None,
            {
                "token_ids": np.asarray(inputs["token_ids"], "int32"),
                "segment_ids": np.asarray(inputs["segment_ids"], "int32"),
                "positions": np.arange(padding_mask.shape[1], dtype="int32"),
                "bias": np.where(padding_mask, 0.0, _MASKED)[
                    :, None, None
                ].astype("float32"),
            },
        )
        # The tower's own layers compute the rest: the last are a chain.
        if self._tower.pooling == "cls":
            x = self._tower.encoder.get_layer("pooled_dense")(sequence[:, 0])
        else:
            pool, *layers = layers
            x = pool(sequence, padding_mask)
        for layer in layers:
            x = layer(x)
        return np.asarray(x)


def _save(encoder, path):
    """Writes an encoder's graph: wordpieces to the last layer's output.

    Returns:
        list of str, the products that stay in float32.
    """
    import onnx

    graph = _Graph()
    embeddings = [
        graph.add(
            "Gather", graph.weight(encoder.get_layer(layer).weights[0]), ids
        )
        for layer, ids in (
            ("token_embedding", "token_ids"),
            ("segment_embedding", "segment_ids"),
            ("position_embedding", "positions"),
        )
    ]
    x = graph.add("Add", graph.add("Add", *embeddings[:2]), embeddings[2])
    x = graph.layer_norm(x, encoder.get_layer("embeddings_layer_norm"))
    for number in range(encoder.num_layers):
        x = _layer(
            graph, x, encoder, encoder.get_layer(f"transformer_layer_{number}")
        )
    info = onnx.helper.make_tensor_value_info
    inputs = [
        info("token_ids", _INT, ["b", "l"]),
        info("segment_ids", _INT, ["b", "l"]),
        info("positions", _INT, ["l"]),
        info("bias", _FLOAT, ["b", 1, 1, "l"]),
    ]
    outputs = [info(x, _FLOAT, ["b", "l", encoder.hidden_dim])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "encoder", inputs, outputs, graph.weights
        ),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        # The runtime may not know newer versions.
        ir_version=10,
    )
    onnx.save(model, path)
    return graph.in_float32


def _layer(graph, x, encoder, layer):
    """One Transformer layer, the norm after each residual, as BERT."""
    layers = layer.weight_layers
    hidden_dim, num_heads = encoder.hidden_dim, encoder.num_heads
    split = graph.weight([0, 0, num_heads, hidden_dim // num_heads], "int64")

    def heads(dense, order, scale=1.0):
        kernel = np.asarray(dense.kernel).reshape(hidden_dim, hidden_dim)
        product = graph.dense(x, scale * kernel, scale * dense.bias)
        return graph.add(
            "Transpose", graph.add("Reshape", product, split), perm=order
        )

    scale = (hidden_dim // num_heads) ** -0.5
    queries = heads(layers["query"], (0, 2, 1, 3), scale)
    keys = heads(layers["key"], (0, 2, 3, 1))
    values = heads(layers["value"], (0, 2, 1, 3))
    scores = graph.add("Add", graph.add("MatMul", queries, keys), "bias")
    found = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    found = graph.add(
        "Reshape",
        graph.add("Transpose", found, perm=(0, 2, 1, 3)),
        graph.weight([0, 0, hidden_dim], "int64"),
    )
    output = layers["output"]
    kernel = np.asarray(output.kernel).reshape(hidden_dim, hidden_dim)
    found = graph.dense(found, kernel, output.bias)
    x = graph.layer_norm(graph.add("Add", x, found), layers["attention_norm"])
    dense = layers["intermediate"]
    found = graph.add(
        "Gelu",
        graph.dense(x, dense.kernel, dense.bias),
        approximate="none" if encoder.activation == "gelu" else "tanh",
    )
    dense = layers["feedforward"]
    found = graph.dense(found, dense.kernel, dense.bias, in_float32=True)
    return graph.layer_norm(
        graph.add("Add", x, found), layers["feedforward_norm"]
    )


class _Graph:
    """Nodes and weights of an ONNX graph, each named by its number."""

    def __init__(self):
        self.nodes, self.weights, self.in_float32 = [], [], []

    def add(self, op: str, *inputs: str, **attributes) -> str:
        """Adds a node of one output; returns its name."""
        import onnx

        name = f"{op}-{len(self.nodes)}"
        self.nodes.append(
            onnx.helper.make_node(op, inputs, [name], name=name, **attributes)
        )
        return name

    def weight(self, values, dtype="float32") -> str:
        import onnx

        name = f"weight-{len(self.weights)}"
        array = np.asarray(values).astype(dtype)
        self.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def dense(self, x, kernel, bias, *, in_float32=False):
        product = self.add("MatMul", x, self.weight(kernel))
        if in_float32:
            self.in_float32.append(product)
        return self.add("Add", product, self.weight(np.ravel(bias)))

    def layer_norm(self, x, layer):
        weights = map(self.weight, (layer.gamma, layer.beta))
        return self.add(
            "LayerNormalization", x, *weights, epsilon=layer.epsilon
        )
