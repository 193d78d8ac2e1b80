import eight_devices
import keras
import numpy as np
import pytest

from realm_tf.models.embedder import Embedder
from realm_tf.models.inverse_cloze import IctModel

JIT = keras.backend.backend() == "jax"
METRICS = ("accuracy", "accuracy_removed", "accuracy_left")


@pytest.fixture
def towers(make_encoder, randomize):
    """Two embedders of other weights."""
    found = []
    for seed in (1, 2):
        encoder = make_encoder(seed=seed, num_layers=1, dropout=0.0)
        tower = Embedder(encoder, projection_dim=6, dropout=0.0)
        randomize(tower, seed=seed)
        found.append(tower)
    return found


def _batch(rows=6, *, seed=0, num_fillers=0):
    random = np.random.default_rng(seed)
    batch = {}
    for name, length in (("query", 5), ("block", 9)):
        lengths = random.integers(2, length + 1, size=rows)
        mask = np.arange(length) < lengths[:, None]
        ids = random.integers(5, 60, size=(rows, length))
        batch[f"{name}_token_ids"] = np.where(mask, ids, 0).astype("int32")
        batch[f"{name}_padding_mask"] = mask.astype("int32")
    batch["block_segment_ids"] = batch["block_padding_mask"] * (
        np.arange(9) > 3
    ).astype("int32")
    batch["removed"] = (np.arange(rows) % 3 > 0).astype("int32")
    batch["block_id"] = np.arange(100, 100 + rows, dtype="int32")
    batch["block_id"][rows - num_fillers :] = -1
    return batch


def _embed(tower, batch, name):
    segments = batch.get(f"{name}_segment_ids")
    if segments is None:
        segments = np.zeros_like(batch[f"{name}_token_ids"])
    inputs = {
        "token_ids": batch[f"{name}_token_ids"],
        "segment_ids": segments,
        "padding_mask": batch[f"{name}_padding_mask"],
    }
    inputs = {k: keras.ops.convert_to_tensor(v) for k, v in inputs.items()}
    return np.asarray(tower(inputs), "float64")


def _expected(query_tower, block_tower, batch, scale=1.0):
    """Loss and metrics by a loop in float64."""
    kept = np.flatnonzero(batch["block_id"] >= 0)
    queries = scale * _embed(query_tower, batch, "query")[kept]
    blocks = _embed(block_tower, batch, "block")[kept]
    found, correct = [], []
    for row, query in enumerate(queries):
        scores = [float(np.dot(query, block)) for block in blocks]
        largest = max(scores)
        total = sum(np.exp(score - largest) for score in scores)
        found.append(largest + np.log(total) - scores[row])
        correct.append(scores[row] == largest)
    correct = np.array(correct, float)
    removed = batch["removed"][kept] > 0
    return {
        "loss": np.mean(found),
        "accuracy": np.mean(correct),
        "accuracy_removed": np.mean(correct[removed]),
        "accuracy_left": np.mean(correct[~removed]),
    }


def _evaluate(model, batch, size=None):
    return model.evaluate(
        batch,
        batch_size=size or len(batch["block_id"]),
        verbose=0,
        return_dict=True,
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("num_fillers", [0, 2])
def test_loss_and_metrics_against_a_loop(towers, shared, scale, num_fillers):
    query_tower, block_tower = towers
    if shared:
        block_tower = query_tower
    model = IctModel(query_tower, block_tower, score_scale=scale)
    model.compile(jit_compile=JIT)
    batch = _batch(num_fillers=num_fillers)
    found = _evaluate(model, batch)
    expected = _expected(query_tower, block_tower, batch, scale)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


def test_fillers_change_nothing(towers):
    model = IctModel(*towers)
    model.compile(jit_compile=JIT)
    batch = _batch(rows=6, num_fillers=2)
    short = {name: array[:4] for name, array in batch.items()}
    assert _evaluate(model, batch) == pytest.approx(
        _evaluate(model, short), rel=1e-5
    )


def test_metrics_are_means_over_examples_not_batches(towers):
    model = IctModel(*towers)
    model.compile(jit_compile=JIT)
    batch = _batch(rows=12)
    halves = [
        {k: v[part] for k, v in batch.items()}
        for part in (slice(6), slice(6, 12))
    ]
    found = _evaluate(model, batch, size=6)
    for name, weights in (
        ("accuracy", np.ones(12)),
        ("accuracy_removed", batch["removed"]),
        ("accuracy_left", 1 - batch["removed"]),
    ):
        each = [_expected(*towers, half)[name] for half in halves]
        counts = [weights[:6].sum(), weights[6:].sum()]
        assert found[name] == pytest.approx(np.dot(each, counts) / sum(counts))


def test_the_gradient_of_the_embeddings():
    """p_ij - 1 on the own block, p_ij on the others, over the batch size."""
    random = np.random.default_rng(4)
    values = {
        "query_embeddings": random.normal(size=(5, 3)).astype("float32"),
        "block_embeddings": random.normal(size=(5, 3)).astype("float32"),
    }
    x = {"block_id": np.arange(5), "removed": np.zeros(5, "int32")}
    scores = (
        values["query_embeddings"].astype("float64")
        @ values["block_embeddings"].T
    )
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    weights = (weights - np.eye(5)) / 5
    expected = {
        "query_embeddings": weights @ values["block_embeddings"],
        "block_embeddings": weights.T @ values["query_embeddings"],
    }
    found = _gradients(x, values)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5)


def _gradients(x, values):
    class Tower(keras.layers.Layer):
        embedding_dim = 3

    model = IctModel(Tower(), Tower())
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tensors = {k: tf.constant(v) for k, v in values.items()}
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = model.compute_loss(x, y_pred=tensors)
        found = tape.gradient(loss, tensors)
    else:
        import jax

        def loss(tensors):
            with keras.StatelessScope():
                return model.compute_loss(x, y_pred=tensors)

        found = jax.grad(loss)(values)
    return {k: np.asarray(v) for k, v in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_it_learns(towers, shared):
    model = IctModel(towers[0], towers[0] if shared else towers[1])
    assert len(model.trainable_variables) == sum(
        len(tower.trainable_variables)
        for tower in ({towers[0]} if shared else set(towers))
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-2), jit_compile=JIT)
    batch = _batch(rows=8)
    rows = model.fit(
        batch, batch_size=8, epochs=60, verbose=0, shuffle=False
    ).history
    assert rows["loss"][-1] < 0.25 * rows["loss"][0]
    for name in METRICS:
        assert rows[name][-1] == 1.0


def test_mixed_precision_scores_in_float32(make_encoder):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        tower = Embedder(make_encoder(num_layers=1), projection_dim=6)
        model = IctModel(tower, tower)
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(jit_compile=JIT)
    batch = _batch()
    outputs = model.predict(batch, verbose=0)
    assert {v.dtype.name for v in outputs.values()} == {"float32"}
    expected = _expected(tower, tower, batch)["loss"]
    assert _evaluate(model, batch)["loss"] == pytest.approx(expected, rel=0.02)


def test_towers_of_other_widths_are_refused(make_encoder):
    encoder = make_encoder()
    with pytest.raises(ValueError, match="embedding_dim=4.*embedding_dim=5"):
        IctModel(
            Embedder(encoder, projection_dim=4),
            Embedder(encoder, projection_dim=5),
        )


@pytest.mark.skipif(JIT, reason="tf.distribute is TensorFlow's")
def test_a_tensorflow_strategy_is_refused(towers):
    import tensorflow as tf

    class Two:
        num_replicas_in_sync = 2

    model = IctModel(*towers)
    batch = _batch()
    outputs = model(batch)
    before = tf.distribute.get_strategy
    tf.distribute.get_strategy = Two
    try:
        with pytest.raises(ValueError, match="has 2: use the JAX backend"):
            model.compute_loss(batch, y_pred=outputs)
    finally:
        tf.distribute.get_strategy = before


@pytest.mark.skipif(not JIT, reason="several devices are JAX's")
def test_eight_devices_give_the_loss_of_one():
    """The blocks of all devices are candidates; the last batch is part full."""
    code = """
        from realm_tf.models.inverse_cloze import IctModel

        random = np.random.default_rng(0)
        batch = {
            "query_token_ids": random.integers(5, 60, size=(32, 5)),
            "query_padding_mask": np.ones((32, 5)),
            "block_token_ids": random.integers(5, 60, size=(32, 9)),
            "block_padding_mask": np.ones((32, 9)),
            "block_segment_ids": np.zeros((32, 9)),
            "removed": np.arange(32) % 2,
            "block_id": np.where(np.arange(32) < 27, np.arange(32), -1),
        }
        batch = {k: v.astype("int32") for k, v in batch.items()}

        def make_model(tower):
            return IctModel(tower, tower)
    """
    one, eight = eight_devices.losses_of_one_and_of_eight(code)
    assert (one["num_devices"], eight["num_devices"]) == (1, 8)
    for values in ("metrics", "losses"):
        np.testing.assert_allclose(eight[values], one[values], rtol=1e-4)
