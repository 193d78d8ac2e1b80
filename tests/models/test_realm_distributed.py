"""RealmModel on eight devices, where each holds a part of the index."""

import eight_devices
import numpy as np
import pytest

_ON_EIGHT_DEVICES = """
    from realm_tf.models.block_table import BlockTable
    from realm_tf.models.knowledge_augmented_encoder import (
        KnowledgeAugmentedEncoder,
    )
    from realm_tf.models.realm import RealmModel
    from realm_tf.retrieval.brute_force import BruteForce

    random = np.random.default_rng(0)
    # 21 blocks: three for each device, and three rows of padding.
    bodies = random.integers(10, 50, (21, 6)).astype("int32")
    titles = random.integers(50, 60, (21, 2)).astype("int32")
    block_id = random.integers(0, 21, 16).astype("int32")
    token_ids = np.pad(bodies[block_id], [[0, 0], [1, 1]])
    token_ids[:, 0], token_ids[:, -1] = 2, 3
    positions = random.integers(1, 7, (16, 1)).astype("int32")
    mask_ids = np.take_along_axis(token_ids, positions, axis=1)
    np.put_along_axis(token_ids, positions, 4, axis=1)
    batch = {
        "token_ids": token_ids,
        "padding_mask": np.ones_like(token_ids),
        "mask_positions": positions,
        "mask_ids": mask_ids,
        "mask_weights": np.ones_like(mask_ids),
        "sentence_ids": bodies[block_id],
        "block_id": block_id,
    }
    embeddings = random.normal(size=(21, 6)).astype("float32")

    def make_model(tower):
        return RealmModel(
            tower,
            tower,
            KnowledgeAugmentedEncoder(BertEncoder(60, 1, 2, 8, 16)),
            BruteForce(embeddings, rows_per_block=2),
            BlockTable(
                bodies,
                np.full(21, 6),
                title_ids=titles,
                title_lengths=np.full(21, 2),
            ),
            cls_id=2,
            sep_id=3,
            num_retrieved=3,
            max_block_length=11,
            max_joint_length=16,
        )
"""


@pytest.mark.slow
def test_eight_devices_give_the_loss_of_one():
    """Each holds a part of the index. Nearly all of it is XLA compiling."""
    one, eight = eight_devices.losses_of_one_and_of_eight(_ON_EIGHT_DEVICES)
    assert (one["num_devices"], eight["num_devices"]) == (1, 8)
    np.testing.assert_allclose(
        eight["metrics"], one["metrics"], rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(eight["losses"], one["losses"], rtol=1e-4)
    assert one["losses"][-1] < one["losses"][0]
