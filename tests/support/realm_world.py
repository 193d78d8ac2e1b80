"""A `RealmModel` over packed blocks, and batches for it."""

import itertools

import keras
import numpy as np
import tiny_models

from realm_tf.models.block_table import BlockTable
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.realm import RealmModel
from realm_tf.retrieval.brute_force import BruteForce

PAD, CLS, SEP, MASK, VOCABULARY = 0, 2, 3, 4, 60
QUERY_LENGTH, BLOCK_LENGTH, DIM = 16, 24, 4
BATCH_SIZE, NUM_RETRIEVED = 4, 3
SCALE = 0.5
JIT = keras.backend.backend() == "jax"


def make_batch(blocks, step):
    """One wordpiece masked in a sentence of each of four blocks."""
    random = np.random.default_rng([9, step])
    batch = {
        "token_ids": np.full((BATCH_SIZE, QUERY_LENGTH), PAD, "int32"),
        "padding_mask": np.zeros((BATCH_SIZE, QUERY_LENGTH), "int32"),
        "mask_positions": np.zeros((BATCH_SIZE, 2), "int32"),
        "mask_ids": np.zeros((BATCH_SIZE, 2), "int32"),
        "mask_weights": np.zeros((BATCH_SIZE, 2), "int32"),
        "sentence_ids": np.full((BATCH_SIZE, QUERY_LENGTH - 2), -1, "int32"),
        "block_id": np.zeros(BATCH_SIZE, "int32"),
    }
    for row, block_id in enumerate(random.integers(len(blocks), size=4)):
        block = blocks[int(block_id)]
        start, limit = block.sentence(0)
        sentence = block.token_ids[start:limit][: QUERY_LENGTH - 2]
        place = int(random.integers(len(sentence)))
        batch["sentence_ids"][row, : len(sentence)] = sentence
        batch["mask_positions"][row, 0] = 1 + place
        batch["mask_ids"][row, 0] = sentence[place]
        batch["mask_weights"][row, 0] = 1
        query = [CLS, *sentence, SEP]
        query[1 + place] = MASK
        batch["token_ids"][row, : len(query)] = query
        batch["padding_mask"][row, : len(query)] = 1
        # The last as of another corpus.
        batch["block_id"][row] = -1 if row == 3 else block_id
    return batch


def make_batches(blocks):
    def batches():
        for step in itertools.count():
            yield make_batch(blocks, step)

    return batches


def make_model(blocks):
    """The same weights every time."""
    keras.utils.set_random_seed(4)

    def encoder():
        return tiny_models.encoder(VOCABULARY, dropout=0.0)

    def tower():
        return Embedder(encoder(), projection_dim=DIM, dropout=0.0)

    token_ids, lengths = blocks.bodies(BLOCK_LENGTH)
    title_ids, title_lengths = blocks.title_table(BLOCK_LENGTH)
    embeddings = np.random.default_rng(0).normal(size=(len(blocks), DIM))
    model = RealmModel(
        tower(),
        tower(),
        KnowledgeAugmentedEncoder(encoder()),
        BruteForce(embeddings.astype("float32")),
        BlockTable(
            token_ids,
            lengths,
            title_ids=title_ids,
            title_lengths=title_lengths,
            article_numbers=blocks.article_numbers(),
        ),
        cls_id=CLS,
        sep_id=SEP,
        score_scale=SCALE,
        num_retrieved=NUM_RETRIEVED,
        max_block_length=BLOCK_LENGTH,
        max_joint_length=32,
    )
    tiny_models.spread(model)
    model.compile(keras.optimizers.SGD(0.01), jit_compile=JIT)
    return model
