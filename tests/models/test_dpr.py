import eight_devices
import keras
import numpy as np
import pytest

from realm_tf.models.dpr import DprModel
from realm_tf.models.dpr import in_batch_ranks
from realm_tf.models.embedder import Embedder

JIT = keras.backend.backend() == "jax"
ROWS, SLOTS = 6, 3


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


def _texts(random, shape, length):
    lengths = random.integers(2, length + 1, size=shape)
    mask = np.arange(length) < lengths[..., None]
    ids = random.integers(5, 60, size=(*shape, length))
    return np.where(mask, ids, 0).astype("int32"), mask.astype("int32")


def _batch(*, rows=ROWS, seed=0, num_fillers=0, num_slots=SLOTS):
    random = np.random.default_rng(seed)
    batch = {}
    for name, shape, length in (
        ("query", (rows,), 5),
        ("block", (rows, num_slots), 9),
    ):
        ids, mask = _texts(random, shape, length)
        batch[f"{name}_token_ids"] = ids
        batch[f"{name}_padding_mask"] = mask
    batch["block_segment_ids"] = batch["block_padding_mask"] * (
        np.arange(9) > 3
    ).astype("int32")
    mask = (random.random((rows, rows * num_slots)) < 0.7).astype("int32")
    mask[np.arange(rows), num_slots * np.arange(rows)] = 1
    if num_fillers:
        mask[-num_fillers:] = 0
        mask[:, -num_fillers * num_slots :] = 0
    batch["candidate_mask"] = mask
    return batch


def _embed(tower, token_ids, segment_ids, padding_mask):
    inputs = {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": padding_mask,
    }
    inputs = {k: keras.ops.convert_to_tensor(v) for k, v in inputs.items()}
    return np.asarray(tower(inputs), "float64")


def _expected(query_tower, block_tower, batch, scale=1.0):
    """Loss and metrics by a loop in float64."""
    queries = scale * _embed(
        query_tower,
        batch["query_token_ids"],
        np.zeros_like(batch["query_token_ids"]),
        batch["query_padding_mask"],
    )
    found = {"loss": [], "accuracy": [], "rank": []}
    num_slots = batch["block_token_ids"].shape[1]
    slots = [(r, s) for r in range(len(queries)) for s in range(num_slots)]
    blocks = _embed(
        block_tower,
        *(
            np.stack([batch[f"block_{name}"][slot] for slot in slots])
            for name in ("token_ids", "segment_ids", "padding_mask")
        ),
    )
    for row, query in enumerate(queries):
        allowed = np.flatnonzero(batch["candidate_mask"][row])
        if not len(allowed):
            continue
        scores = {j: float(np.dot(query, blocks[j])) for j in allowed}
        own = scores[row * num_slots]
        largest = max(scores.values())
        total = sum(np.exp(s - largest) for s in scores.values())
        found["loss"].append(largest + np.log(total) - own)
        rank = 1 + sum(score > own for score in scores.values())
        found["rank"].append(rank)
        found["accuracy"].append(float(rank == 1))
    return {name: np.mean(values) for name, values in found.items()}


def _evaluate(model, batch):
    return model.evaluate(batch, batch_size=ROWS, verbose=0, return_dict=True)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("num_fillers", [0, 2])
def test_loss_and_metrics_against_a_loop(towers, shared, scale, num_fillers):
    query_tower, block_tower = towers
    if shared:
        block_tower = query_tower
    model = DprModel(query_tower, block_tower, score_scale=scale)
    model.compile(jit_compile=JIT)
    batch = _batch(num_fillers=num_fillers)
    found = _evaluate(model, batch)
    expected = _expected(query_tower, block_tower, batch, scale)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert found["rank"] > 1 and found["accuracy"] < 1


def test_what_is_masked_does_not_matter(towers):
    model = DprModel(*towers)
    model.compile(jit_compile=JIT)
    batch = _batch()
    masked = np.zeros((ROWS, SLOTS), bool)
    masked[[1, 4], 2] = True
    batch["candidate_mask"][:, masked.reshape(-1)] = 0
    before = _evaluate(model, batch)
    batch["block_token_ids"][masked] = 7
    assert _evaluate(model, batch) == before
    # Seen by all, it does.
    batch["candidate_mask"][:] = 1
    assert _evaluate(model, batch)["loss"] > before["loss"] + 0.01


def test_without_hard_negatives_and_mask_it_is_the_inverse_cloze_task(towers):
    from realm_tf.models.inverse_cloze import IctModel

    batch = _batch(num_slots=1)
    batch["candidate_mask"][:] = 1
    models = DprModel(*towers, score_scale=2.0), IctModel(*towers, 2.0)
    flat = {
        name: rows[:, 0] if name.startswith("block_") else rows
        for name, rows in batch.items()
        if name != "candidate_mask"
    }
    flat["block_id"] = flat["removed"] = np.arange(ROWS, dtype="int32")
    found = []
    for model, inputs in zip(models, (batch, flat), strict=True):
        model.compile(jit_compile=JIT)
        found.append(_evaluate(model, inputs))
    for name in ("loss", "accuracy"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-6)


def test_ranks_against_a_loop():
    random = np.random.default_rng(3)
    # Integers, so that scores are equal often.
    queries = random.integers(-1, 2, size=(40, 3)).astype("float32")
    blocks = random.integers(-1, 2, size=(12, 3)).astype("float32")
    targets = random.integers(0, 12, size=40).astype("int32")
    mask = random.random((40, 12)) < 0.8
    mask[np.arange(40), targets] = True
    found = np.asarray(in_batch_ranks(queries, blocks, targets, mask))
    for row in range(40):
        scores = blocks @ queries[row]
        order = sorted(np.flatnonzero(mask[row]), key=lambda j: (-scores[j], j))
        assert found[row] == 1 + order.index(targets[row])
    assert found.max() > 6


def test_a_rank_of_one_is_correct():
    from realm_tf import losses

    random = np.random.default_rng(5)
    queries = random.integers(-1, 2, size=(30, 2)).astype("float32")
    blocks = random.integers(-1, 2, size=(6, 2)).astype("float32")
    arguments = (
        queries,
        blocks,
        (np.arange(30) % 6).astype("int32"),
        np.ones((30, 6), bool),
    )
    correct = np.asarray(losses.in_batch_softmax(*arguments)[1])
    assert 0 < correct.sum() < 30
    ranks = np.asarray(in_batch_ranks(*arguments))
    np.testing.assert_array_equal(ranks == 1, correct)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_it_learns_from_hard_negatives(towers, shared):
    model = DprModel(towers[0], towers[0] if shared else towers[1])
    assert len(model.trainable_variables) == sum(
        len(tower.trainable_variables)
        for tower in ({towers[0]} if shared else set(towers))
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-2), jit_compile=JIT)
    batch = _batch()
    batch["candidate_mask"][:] = 1
    before = _evaluate(model, batch)
    assert set(before) == {"loss", "accuracy", "rank"}
    assert before["accuracy"] < 0.5 and before["rank"] > 2
    model.fit(
        ((batch,) for _ in range(60)),
        steps_per_epoch=60,
        shuffle=False,
        verbose=0,
    )
    after = _evaluate(model, batch)
    assert after["loss"] < 0.25 * before["loss"]
    assert after["accuracy"] == after["rank"] == 1.0


def test_towers_of_other_widths_are_refused(make_encoder):
    encoder = make_encoder()
    with pytest.raises(ValueError, match="embedding_dim=4.*embedding_dim=5"):
        DprModel(
            Embedder(encoder, projection_dim=4),
            Embedder(encoder, projection_dim=5),
        )


@pytest.mark.skipif(not JIT, reason="several devices are JAX's")
def test_eight_devices_give_the_loss_of_one():
    """The blocks of all devices are candidates."""
    code = """
        from realm_tf.models.dpr import DprModel

        random = np.random.default_rng(0)
        batch = {
            "query_token_ids": random.integers(5, 60, size=(16, 5)),
            "query_padding_mask": np.ones((16, 5)),
            "block_token_ids": random.integers(5, 60, size=(16, 2, 9)),
            "block_padding_mask": np.ones((16, 2, 9)),
            "block_segment_ids": np.zeros((16, 2, 9)),
            "candidate_mask": random.random((16, 32)) < 0.7,
        }
        batch["candidate_mask"][np.arange(16), 2 * np.arange(16)] = True
        # What fills a last batch.
        batch["candidate_mask"][13:] = False
        batch = {k: v.astype("int32") for k, v in batch.items()}

        def make_model(tower):
            return DprModel(tower, tower)
    """
    one, eight = eight_devices.losses_of_one_and_of_eight(code)
    assert (one["num_devices"], eight["num_devices"]) == (1, 8)
    for values in ("metrics", "losses"):
        np.testing.assert_allclose(eight[values], one[values], rtol=1e-4)
