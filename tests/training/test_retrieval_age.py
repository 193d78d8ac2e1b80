"""Training with candidates that the host finds."""

import host_retrieval_world as world
import keras
import numpy as np
import pytest

from realm_tf.data.feeding import on_demand
from realm_tf.training.index_refresh import IndexRefresh
from realm_tf.training.index_versions import IndexVersions


class _Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({k: float(v) for k, v in logs.items()})


class _AtEachStep(keras.callbacks.Callback):
    """A version of its own for each step: the weights as they are."""

    def __init__(self, retriever, blocks):
        super().__init__()
        self._retriever, self._blocks = retriever, blocks

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        world.swap(self._retriever, self._blocks, 0)


@pytest.mark.slow
def test_training_is_that_of_a_search_in_the_step(packed_blocks):
    """With a version for each step, the weights at the end are the same."""
    inside = world.make_model(packed_blocks, in_graph=True)
    make = world.make_batches(packed_blocks)
    inside.fit(
        on_demand(make),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[expected := _Seen()],
    )
    outside = world.make_model(packed_blocks, in_graph=False)
    retriever = world.make_retriever(packed_blocks, outside)
    outside.fit(
        on_demand(retriever.batches(make, prefetch=0)),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[
            _AtEachStep(retriever, packed_blocks),
            retriever,
            found := _Seen(),
        ],
    )
    assert [logs.pop("retrieval_age") for logs in found.logs] == [0] * 6
    for one, two in zip(found.logs, expected.logs, strict=True):
        assert one == pytest.approx(two, abs=1e-4)
    for one, two in zip(outside.get_weights(), _trained(inside), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


def _trained(model):
    """Weights without those of index and table."""
    others = [*model.index.weights, *model.block_table.weights]
    others = {id(variable) for variable in others}
    return [np.asarray(v) for v in model.weights if id(v) not in others]


@pytest.mark.slow
def test_the_age_is_of_the_version_that_the_batch_was_searched_with(
    packed_blocks, tmp_path
):
    """Batches wait for their steps, so they are older than the last swap."""
    model = world.make_model(packed_blocks, in_graph=False)
    retriever = world.make_retriever(packed_blocks, model)
    retrieved = retriever.batches(world.make_batches(packed_blocks), prefetch=2)
    seeds = iter((5, 6))
    # The index is drawn again before the third and the fifth step.
    refresh = IndexRefresh(
        retriever,
        model.block_embedder,
        lambda *_: world.make_embeddings(packed_blocks, next(seeds)),
        versions=IndexVersions(str(tmp_path / "index")),
        every_steps=2,
        wait=True,
    )
    model.fit(
        ((batch,) for batch in retrieved(0, 0)),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[refresh, retriever, seen := _Seen()],
    )
    assert next(seeds, None) is None
    ages = [int(line["retrieval_age"]) for line in seen.logs]
    taken_at = [step - age for step, age in enumerate(ages)]
    # Keras reads two batches before the first step.
    assert taken_at[:2] == [0, 0]
    assert set(taken_at) <= {0, 2, 4} and taken_at == sorted(taken_at)
    assert all(age >= step % 2 for step, age in enumerate(ages))
    retriever.close()
