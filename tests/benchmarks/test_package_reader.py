"""What the package's reader learns from, and what is made of its weights."""

import numpy as np
import package_reader
import pytest
import teaching_data


@pytest.mark.parametrize(
    ("answers", "kind", "expected"),
    [
        (["port 80"], "string", [(2, 1)]),
        (["PORT"], "string", [(2, 0)]),
        (["o"], "string", []),
        # Of a pattern, the whole wordpiece.
        (["por"], "regex", [(2, 0)]),
        (["8."], "regex", [(3, 0)]),
        (["port", "80"], "string", [(2, 0), (3, 0)]),
        # A pattern that is none matches nothing.
        (["(("], "regex", []),
    ],
)
def test_right_spans_cover_the_answers(answers, kind, expected):
    text = "go to port 80"
    starts, limits = np.array([0, 3, 6, 11]), np.array([2, 5, 10, 13])
    row = {"answers": answers, "type": kind}
    assert teaching_data.right_spans(row, text, starts, limits) == expected


def test_wide_answers_are_no_spans():
    text = " ".join("a" * 40)
    starts = np.arange(0, 80, 2)
    row = {
        "answers": [" ".join("a" * 33), " ".join("a" * 32)],
        "type": "string",
    }
    found = teaching_data.right_spans(row, text, starts, starts + 1)
    assert found == [(0, teaching_data.MAX_WIDTH - 1)]


def _arrays(encoder, random):
    """By the names of `teach_reader.py`."""
    hidden, inner = encoder.hidden_dim, encoder.intermediate_dim
    sizes = {
        "embeddings.word_embeddings.weight": (encoder.vocabulary_size, hidden),
        "embeddings.position_embeddings.weight": (
            encoder.max_sequence_length,
            hidden,
        ),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    layers = {"embeddings.LayerNorm": (hidden,)}
    for number in range(encoder.num_layers):
        for theirs in package_reader._LAYERS.values():
            size = (hidden, hidden)
            if theirs.endswith("LayerNorm"):
                size = (hidden,)
            elif theirs == "intermediate.dense":
                size = (inner, hidden)
            elif theirs == "output.dense":
                size = (hidden, inner)
            layers[f"encoder.layer.{number}.{theirs}"] = size
    for name, size in layers.items():
        sizes[f"{name}.weight"], sizes[f"{name}.bias"] = size, size[:1]
    sizes = {f"encoder.{name}": size for name, size in sizes.items()}
    for name in ("start", "end"):
        sizes |= {f"{name}.weight": (256, hidden), f"{name}.bias": (256,)}
    sizes |= {"norm.weight": (256,), "norm.bias": (256,)}
    sizes |= {"out.weight": (1, 256)}
    sizes |= {"none.weight": (1, hidden), "none.bias": (1,)}
    return {
        name: random.normal(0, 0.5, size).astype("float32")
        for name, size in sizes.items()
    }


def test_the_reader_has_every_array(make_encoder, token_batch):
    arrays = _arrays(make_encoder(), np.random.default_rng(0))

    def scores(arrays):
        reader = package_reader.make_reader(make_encoder(), dict(arrays))
        return reader, np.asarray(reader(token_batch))

    reader, expected = scores(arrays)
    assert expected.shape[-1] == 16
    query = "encoder.encoder.layer.0.attention.self.query.weight"
    layer = reader.encoder.get_layer("transformer_layer_0")
    kernels = {v.path: np.asarray(v) for v in layer.weights}
    (kernel,) = (v for path, v in kernels.items() if "query/kernel" in path)
    np.testing.assert_array_equal(
        kernel.reshape(kernel.shape[0], -1), arrays[query].T
    )
    for name, value in arrays.items():
        # A bias of keys or of all scores of a softmax changes nothing.
        if name.endswith("self.key.bias"):
            continue
        _, found = scores({**arrays, name: 2 * value})
        assert np.abs(found - expected).max() > 1e-5, name
