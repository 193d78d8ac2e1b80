"""The arithmetic of `realm plan`, beside Keras and XLA."""

import json

import eight_devices
import pytest

from realm_tf.configs import pretrain
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.training import footprint

_SMALL = {
    "num_layers": 2,
    "hidden_dim": 32,
    "num_heads": 2,
    "intermediate_dim": 64,
    "vocabulary_size": 100,
}


def test_weights_are_those_of_the_models():
    sizes = footprint.Sizes(**_SMALL, embedding_dim=16)
    assert BertEncoder(**_SMALL).count_params() == sizes.encoder_weights
    tower = Embedder(BertEncoder(**_SMALL), projection_dim=16)
    assert tower.count_params() == sizes.tower_weights
    head = KnowledgeAugmentedEncoder(BertEncoder(**_SMALL))
    found = head.count_params()
    assert found == sizes.encoder_weights + sizes.head_weights


def test_bert_base_has_its_published_size():
    # Devlin et al., 2019: 110 million.
    assert footprint.Sizes().encoder_weights == 109_482_240


@pytest.mark.parametrize(
    "batch_size, checkpointing, gigabytes",
    [(8, False, 33.26), (32, True, 23.35)],
)
def test_an_h100_held_as_much(batch_size, checkpointing, gigabytes):
    """The most of `benchmarks/pretraining_device.py`, on 2026-11-26."""
    recipe = pretrain.RECIPES["paper"].replace(
        batch_size=batch_size, gradient_checkpointing=checkpointing
    )
    need = footprint.pretrain(recipe, footprint.Sizes(), 10**6, 1)
    assert gigabytes < need.device_bytes / 1e9 < 1.1 * gigabytes


_XLA = """
    import json, sys
    import jax, keras, numpy as np
    from realm_tf.models import bert_encoder, block_table, embedder, realm
    from realm_tf.models import knowledge_augmented_encoder as knowledge
    from realm_tf.retrieval.brute_force import BruteForce
    from realm_tf.training import devices

    sizes, num_blocks, batch_size, query_length = json.loads(sys.argv[1])

    def ids(*shape):
        return np.random.default_rng(0).integers(5, 100, shape)

    with devices.use_all(batch_size):
        tower = embedder.Embedder(bert_encoder.BertEncoder(**sizes))
        reader = bert_encoder.BertEncoder(**sizes)
        rows = np.full((num_blocks, 64), sizes["vocabulary_size"] - 1)
        lengths = np.full(num_blocks, 3)
        zeros = np.zeros((num_blocks, 128), "float32")
        model = realm.RealmModel(
            tower, tower, knowledge.KnowledgeAugmentedEncoder(reader),
            BruteForce(zeros, rows_per_block=65_536),
            block_table.BlockTable(
                rows, lengths, title_ids=rows, title_lengths=lengths
            ),
            cls_id=2, sep_id=3, max_block_length=64, max_joint_length=104,
        )
        model.compile(keras.optimizers.AdamW(1e-4))
        model.optimizer.build(model.trainable_variables)
        batch = {
            "token_ids": ids(batch_size, query_length),
            "padding_mask": np.ones((batch_size, query_length)),
            "mask_positions": ids(batch_size, 10) % query_length,
            "mask_ids": ids(batch_size, 10),
            "mask_weights": np.ones((batch_size, 10)),
            "sentence_ids": ids(batch_size, query_length - 2),
            "block_id": np.full(batch_size, -1),
        }
        batch = {name: rows.astype("int32") for name, rows in batch.items()}
        model.fit(batch, batch_size=batch_size, verbose=0)
        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        part = jax.sharding.PartitionSpec("batch")
        batch = jax.device_put(batch, jax.sharding.NamedSharding(mesh, part))
        parts = (model.trainable_variables, model.non_trainable_variables)
        parts += (model.optimizer.variables, model.metrics_variables)
        state = tuple([each.value for each in part] for part in parts)
        step = jax.jit(model.train_step).lower(state, (batch, None, None))
        compiled = step.compile()
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
    bytes = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    print(json.dumps([*bytes, costs["flops"]]))
"""


@pytest.mark.slow
def test_xla_needs_as_much():
    """A step on eight devices that share 400,000 blocks."""
    sizes = {"hidden_dim": 128, "intermediate_dim": 512}
    sizes = {**_SMALL, **sizes, "vocabulary_size": 2000}
    recipe = pretrain.RECIPES["paper"].replace(
        batch_size=64,
        max_query_length=40,
        max_block_length=64,
        max_joint_length=104,
    )
    need = footprint.pretrain(
        recipe, footprint.Sizes(**sizes, value_bytes=4), 400_000, 8
    )
    arguments = json.dumps([sizes, 400_000, 64, 40])
    held, more, flop = json.loads(eight_devices.run(_XLA, arguments))
    lasting = ("weights", "AdamW", "embeddings", "wordpieces")
    assert sum(need.memory[n] for n in lasting) == pytest.approx(held, rel=0.02)
    assert need.device_bytes == pytest.approx(held + more, rel=0.1)
    assert need.flop / 8 == pytest.approx(flop, rel=0.1)
