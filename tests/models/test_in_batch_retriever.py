"""The Inverse Cloze Task and Dense Passage Retrieval, against loops."""

import keras
import loss_oracle as oracle
import numpy as np
import pytest

from realm_tf.models.embedder import Embedder
from realm_tf.models.in_batch_retriever import DprModel
from realm_tf.models.in_batch_retriever import IctModel

JIT = keras.backend.backend() == "jax"
MODELS = (IctModel, DprModel)
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


def _batch(kind, *, rows=ROWS, num_fillers=0):
    """Random texts; of the Inverse Cloze Task one block a row."""
    random = np.random.default_rng(0)
    batch = {}
    slots = () if kind is IctModel else (SLOTS,)
    for name, shape, length in (
        ("query", (rows,), 5),
        ("block", (rows, *slots), 9),
    ):
        lengths = random.integers(2, length + 1, size=shape)
        mask = np.arange(length) < lengths[..., None]
        ids = random.integers(5, 60, size=(*shape, length))
        batch[f"{name}_token_ids"] = np.where(mask, ids, 0).astype("int32")
        batch[f"{name}_padding_mask"] = mask.astype("int32")
    batch["block_segment_ids"] = batch["block_padding_mask"] * (
        np.arange(9) > 3
    ).astype("int32")
    if kind is IctModel:
        batch["removed"] = (np.arange(rows) % 3 > 0).astype("int32")
        batch["block_id"] = np.arange(100, 100 + rows, dtype="int32")
        batch["block_id"][rows - num_fillers :] = -1
        return batch
    mask = (random.random((rows, rows * SLOTS)) < 0.7).astype("int32")
    mask[np.arange(rows), SLOTS * np.arange(rows)] = 1
    if num_fillers:
        mask[-num_fillers:] = 0
        mask[:, -num_fillers * SLOTS :] = 0
    batch["candidate_mask"] = mask
    return batch


def _embed(tower, *inputs):
    names = ("token_ids", "padding_mask", "segment_ids")
    flat = [rows.reshape(-1, rows.shape[-1]) for rows in inputs]
    return np.asarray(
        tower(
            {
                name: keras.ops.convert_to_tensor(rows)
                for name, rows in zip(names, flat, strict=True)
            }
        ),
        "float64",
    )


def _expected(query_tower, block_tower, batch, scale=1.0):
    """Loss and metrics by a loop in float64."""
    query_ids = batch["query_token_ids"]
    queries = scale * _embed(
        query_tower,
        query_ids,
        batch["query_padding_mask"],
        np.zeros_like(query_ids),
    )
    blocks = _embed(
        block_tower,
        *(
            batch[f"block_{name}"]
            for name in ("token_ids", "padding_mask", "segment_ids")
        ),
    )
    mask = batch.get("candidate_mask")
    if mask is None:
        is_example = batch["block_id"] >= 0
        mask = np.outer(is_example, is_example)
    targets = np.arange(len(queries)) * (len(blocks) // len(queries))
    losses, ranks = oracle.in_batch(queries, blocks, targets, mask > 0)
    rows = np.flatnonzero(np.any(mask, axis=1))
    losses, ranks = losses[rows], ranks[rows]
    correct = ranks == 1
    found = {"loss": np.mean(losses), "accuracy": np.mean(correct)}
    if "removed" not in batch:
        return {**found, "rank": np.mean(ranks)}
    removed = batch["removed"][rows] > 0
    return {
        **found,
        "accuracy_removed": np.mean(correct[removed]),
        "accuracy_left": np.mean(correct[~removed]),
    }


def _evaluate(model, batch):
    return model.evaluate(
        batch,
        batch_size=len(batch["query_token_ids"]),
        verbose=0,
        return_dict=True,
    )


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("shared", "scale", "num_fillers"), [(True, 1.0, 0), (False, 3.0, 2)]
)
def test_loss_and_metrics_by_a_loop(towers, kind, shared, scale, num_fillers):
    query_tower, block_tower = towers
    if shared:
        block_tower = query_tower
    model = kind(query_tower, block_tower, score_scale=scale)
    model.compile(jit_compile=JIT)
    batch = _batch(kind, num_fillers=num_fillers)
    expected = _expected(query_tower, block_tower, batch, scale)
    assert _evaluate(model, batch) == pytest.approx(expected, rel=1e-5)
    assert expected["accuracy"] < 1
