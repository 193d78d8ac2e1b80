"""RealmModel on eight devices, where each holds a part of the index."""

import json

import eight_devices
import numpy as np
import pytest

# Nearly all of it is XLA compiling.
pytestmark = pytest.mark.slow

_CODE = """
    import contextlib, json
    import keras, numpy as np
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.models.block_table import BlockTable
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.knowledge_augmented_encoder import (
        KnowledgeAugmentedEncoder,
    )
    from realm_tf.models.realm import RealmModel
    from realm_tf.retrieval.brute_force import BruteForce
    from realm_tf.training import devices

    NUM_BLOCKS, ROWS, BATCH_SIZE = 21, 21, 16
    CLS, SEP, MASK = 2, 3, 4

    def integers(low, high, shape):
        return random.integers(low, high, shape).astype("int32")

    random = np.random.default_rng(0)
    bodies = integers(10, 50, (NUM_BLOCKS, 6))
    titles = integers(50, 60, (NUM_BLOCKS, 2))
    block_id = integers(-1, NUM_BLOCKS, ROWS)
    sentences = np.where(
        block_id[:, None] < 0, integers(10, 50, (ROWS, 6)), bodies[block_id]
    )
    positions = integers(1, 7, (ROWS, 1))
    token_ids = np.pad(
        sentences, [[0, 0], [1, 1]], constant_values=((0, 0), (CLS, SEP))
    )
    mask_ids = np.take_along_axis(token_ids, positions, axis=1)
    np.put_along_axis(token_ids, positions, MASK, axis=1)
    data = {
        "token_ids": token_ids,
        "padding_mask": np.ones_like(token_ids),
        "mask_positions": positions,
        "mask_ids": mask_ids,
        "mask_weights": np.ones_like(mask_ids),
        "sentence_ids": sentences,
        "block_id": block_id,
    }
    embeddings = random.normal(size=(2, NUM_BLOCKS, 4)).astype("float32")

    def part(start, limit):
        return {k: v[start:limit] for k, v in data.items()}

    def make_model():
        def encoder():
            return BertEncoder(60, 1, 2, 8, 12, max_sequence_length=32)

        keras.utils.set_random_seed(0)
        query = Embedder(encoder(), projection_dim=4, dropout=0.0)
        block = Embedder(encoder(), projection_dim=4, dropout=0.0)
        reader = KnowledgeAugmentedEncoder(encoder())
        for variable in (
            query.trainable_variables
            + block.trainable_variables
            + reader.trainable_variables
        ):
            if len(variable.shape) > 1:
                variable.assign(15.0 * variable)
        return RealmModel(
            query,
            block,
            reader,
            BruteForce(embeddings[0], rows_per_block=2),
            BlockTable(
                bodies,
                np.full(NUM_BLOCKS, 6),
                title_ids=titles,
                title_lengths=np.full(NUM_BLOCKS, 2),
                article_numbers=np.arange(NUM_BLOCKS) // 2,
            ),
            cls_id=CLS,
            sep_id=SEP,
            num_retrieved=3,
            num_spare=4,
            max_block_length=11,
            max_joint_length=16,
        )

    class Swap(keras.callbacks.Callback):
        # As `training.index_refresh` does.
        def on_train_batch_begin(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 2:
                self.model.jax_state_sync()
                self.model.index.swap(embeddings[1])

    def parts(model):
        shards = model.index.embeddings.value.addressable_shards
        return [list(shard.data.shape) for shard in shards]

    def run(eight):
        with devices.use_all(BATCH_SIZE) if eight else contextlib.ExitStack():
            model = make_model()
            model.compile(keras.optimizers.SGD(0.05))
            found = {"parts": [parts(model)]}
            # The last batch holds 5 rows: eight devices cannot share them.
            whole, rest = part(0, BATCH_SIZE), part(BATCH_SIZE, 21)
            if eight:
                # Rows that losses and metrics leave out.
                rest = {
                    name: np.concatenate([rows, np.repeat(rows[-1:], 11, 0)])
                    for name, rows in rest.items()
                }
                rest["mask_weights"][5:] = 0
                rest["block_id"][5:] = -1
            found["metrics"] = model.evaluate(
                ((batch,) for batch in (whole, rest)),
                steps=2,
                verbose=0,
                return_dict=True,
            )
            outputs = devices.predict(
                model, part(0, 21), batch_size=BATCH_SIZE
            )
            found["outputs"] = {
                k: v.tolist() for k, v in outputs.items() if v.ndim < 4
            }
            found["losses"] = [
                model.fit(
                    whole,
                    batch_size=BATCH_SIZE,
                    shuffle=False,
                    verbose=0,
                    callbacks=[Swap()],
                ).history["loss"][0]
                for _ in range(4)
            ]
            np.testing.assert_array_equal(
                np.asarray(model.index.embeddings)[:NUM_BLOCKS], embeddings[1]
            )
            found["parts"].append(parts(model))
        return found

    print(json.dumps([run(False), run(True)]))
"""


@pytest.fixture(scope="module")
def found():
    """On one device, on eight."""
    printed = eight_devices.run(
        # Compiled sooner, to run slower, but not otherwise.
        _CODE,
        xla_flags="--xla_backend_optimization_level=0",
    )
    return json.loads(printed.splitlines()[-1])


def test_fit_has_the_losses_of_one_device(found):
    one, eight = (each["losses"] for each in found)
    np.testing.assert_allclose(eight, one, rtol=1e-4)
    # Trained, and not by a little.
    assert min(one) < one[0] - 0.1


def test_the_index_is_shared_before_and_after_a_refresh(found):
    one, eight = (each["parts"] for each in found)
    assert one == [[[21, 4]]] * 2
    assert eight == [[[3, 4]] * 8] * 2


def test_evaluate_with_a_last_batch_that_is_not_full(found):
    one, eight = (each["metrics"] for each in found)
    # Keras weights the loss of a batch by its rows, those that fill it too.
    for name in one.keys() - {"loss"}:
        assert eight[name] == pytest.approx(one[name], abs=1e-4), name


def test_predict_with_a_last_batch_that_is_not_full(found):
    one, eight = (each["outputs"] for each in found)
    assert one.keys() == eight.keys()
    for name, rows in one.items():
        assert len(eight[name]) == 21
        np.testing.assert_allclose(eight[name], rows, atol=1e-4, err_msg=name)
