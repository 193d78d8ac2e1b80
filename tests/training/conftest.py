"""RealmModel over the tiny world, and a batch of its sentences."""

import numpy as np
import pytest

MAX_QUERY_LENGTH, MAX_MASKED = 16, 3
# (sentence, the word that is masked)
SENTENCES = [
    ("In 1669 the fire was in the city.", "1669"),
    ("The Nile is a river.", "Nile"),
    ("Ada wrote numbers in 1843.", "numbers"),
]


@pytest.fixture
def realm_model(packed_blocks, tokenizer):
    """A compiled `RealmModel` of encoders of 1 layer of width 8."""
    import keras
    import tiny_models

    from realm_tf.models.block_table import BlockTable
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.knowledge_augmented_encoder import (
        KnowledgeAugmentedEncoder,
    )
    from realm_tf.models.realm import RealmModel
    from realm_tf.retrieval.brute_force import BruteForce

    keras.utils.set_random_seed(0)

    def encoder():
        return tiny_models.encoder(tokenizer.vocabulary_size)

    blocks = packed_blocks
    token_ids, lengths = blocks.bodies(32)
    title_ids, title_lengths = blocks.titles(32)
    embedder = Embedder(encoder(), projection_dim=4)
    model = RealmModel(
        embedder,
        embedder,
        KnowledgeAugmentedEncoder(encoder()),
        BruteForce(np.random.default_rng(1).normal(size=(len(blocks), 4))),
        BlockTable(
            token_ids,
            lengths,
            title_ids=title_ids,
            title_lengths=title_lengths,
            article_numbers=blocks.article_numbers(),
        ),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        num_retrieved=3,
        num_spare=3,
    )
    tiny_models.spread(model)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer, jit_compile=keras.backend.backend() == "jax"
    )
    return model


@pytest.fixture(scope="session")
def tokenizer(vocabulary_path):
    from realm_tf.text.tokenizer import Tokenizer

    return Tokenizer.from_file(vocabulary_path)


@pytest.fixture(scope="session")
def realm_batch(tokenizer):
    """What `PretrainingExamples` makes of `SENTENCES`."""
    rows = []
    for sentence, word in SENTENCES:
        ids = tokenizer.tokenize(sentence).ids
        pieces = tokenizer.tokenize(word).ids
        (start,) = (
            place
            for place in range(len(ids))
            if ids[place : place + len(pieces)] == pieces
        )
        masked = list(ids)
        masked[start : start + len(pieces)] = [tokenizer.mask_id] * len(pieces)
        query = [tokenizer.cls_id, *masked, tokenizer.sep_id]
        positions = list(range(start + 1, start + 1 + len(pieces)))
        rows.append(
            {
                "token_ids": _pad(query, MAX_QUERY_LENGTH, tokenizer.pad_id),
                "padding_mask": _pad([1] * len(query), MAX_QUERY_LENGTH),
                "mask_positions": _pad(positions, MAX_MASKED),
                "mask_ids": _pad(pieces, MAX_MASKED),
                "mask_weights": _pad([1] * len(pieces), MAX_MASKED),
                "sentence_ids": _pad(ids, MAX_QUERY_LENGTH - 2, -1),
                "block_id": -1,
            }
        )
    return {
        name: np.array([row[name] for row in rows], "int32") for name in rows[0]
    }


def _pad(row, length, value=0):
    return row + [value] * (length - len(row))


@pytest.fixture(scope="session")
def open_qa_world(
    tmp_path_factory, vocabulary_path, blocks_dir, questions_path
):
    """Paths of a model of one layer, its indexes, blocks and questions."""
    import keras
    import tiny_models

    from realm_tf.operations.build_index import BuildIndex
    from realm_tf.operations.embed import Embed

    root = tmp_path_factory.mktemp("finetune")
    paths = {name: str(root / name) for name in ("model", "exact", "scann")}
    tiny_models.save(vocabulary_path, paths["model"], seed=1)
    Embed(
        model=paths["model"], blocks=blocks_dir, output=str(root / "embeddings")
    ).run()
    # ScaNN's op needs the TensorFlow backend.
    is_tensorflow = keras.backend.backend() == "tensorflow"
    for name, kind in (
        ("exact", "brute_force"),
        ("scann", "scann" if is_tensorflow else "brute_force"),
    ):
        BuildIndex(
            embeddings=str(root / "embeddings"), output=paths[name], kind=kind
        ).run()
    return {
        **paths,
        "blocks": blocks_dir,
        "questions": [questions_path],
        "root": root,
    }
