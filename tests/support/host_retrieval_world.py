"""A `RealmModel` whose candidates the step or the host finds."""

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
from realm_tf.retrieval.host_retrieval import HostRetriever

PAD, CLS, SEP, MASK, VOCABULARY = 0, 2, 3, 4, 60
QUERY_LENGTH, BLOCK_LENGTH, DIM = 16, 24, 4
BATCH_SIZE, NUM_RETRIEVED, NUM_SEARCHED = 4, 3, 7
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
    def batches(epoch=0, step=0):
        while True:
            yield make_batch(blocks, 3 * epoch + step)
            step += 1

    return batches


def make_embeddings(blocks, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=(len(blocks), DIM)).astype("float32")


def make_model(blocks, *, in_graph):
    """The same weights every time."""
    keras.utils.set_random_seed(4)

    def encoder():
        return tiny_models.encoder(VOCABULARY, dropout=0.0)

    def tower():
        return Embedder(encoder(), projection_dim=DIM, dropout=0.0)

    index = table = None
    if in_graph:
        token_ids, lengths = blocks.bodies(BLOCK_LENGTH)
        title_ids, title_lengths = blocks.titles(BLOCK_LENGTH)
        index = BruteForce(make_embeddings(blocks, 0))
        table = BlockTable(
            token_ids,
            lengths,
            title_ids=title_ids,
            title_lengths=title_lengths,
            article_numbers=blocks.article_numbers(),
        )
    model = RealmModel(
        tower(),
        tower(),
        KnowledgeAugmentedEncoder(encoder()),
        index,
        table,
        cls_id=CLS,
        sep_id=SEP,
        score_scale=SCALE,
        num_retrieved=NUM_RETRIEVED,
        num_spare=NUM_SEARCHED - NUM_RETRIEVED,
        max_block_length=BLOCK_LENGTH,
        max_joint_length=32,
    )
    tiny_models.spread(model)
    model.compile(keras.optimizers.SGD(0.01), jit_compile=JIT)
    return model


def make_retriever(blocks, model, *, seed=0, **arguments):
    return HostRetriever(
        blocks,
        make_embeddings(blocks, seed),
        query_tower=model.query_embedder,
        **{
            "num_searched": NUM_SEARCHED,
            "max_block_length": BLOCK_LENGTH,
            "score_scale": SCALE,
            # Not made unless a state is asked for.
            "directory": "not-made",
            **arguments,
        },
    )


def swap(retriever, blocks, seed):
    """New embeddings, as `IndexRefresh` hands them over."""
    retriever.swap(retriever.prepare(make_embeddings(blocks, seed)))


def move(tower, seed):
    random = np.random.default_rng(seed)
    tower.set_weights(
        [
            (w + random.normal(size=w.shape)).astype(w.dtype)
            for w in tower.get_weights()
        ]
    )
