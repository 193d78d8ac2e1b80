"""A model to fine-tune, with its indexes."""

import pytest


@pytest.fixture(scope="session")
def open_qa_world(
    tmp_path_factory, vocabulary_path, blocks_dir, questions_path
):
    """Paths of a model of one layer, its indexes, blocks and questions."""
    import tiny_models

    from realm_tf.operations.build_index import BuildIndex
    from realm_tf.operations.embed import Embed

    root = tmp_path_factory.mktemp("finetune")
    paths = {name: str(root / name) for name in ("model", "exact")}
    tiny_models.save(vocabulary_path, paths["model"], seed=1)
    Embed(
        model=paths["model"], blocks=blocks_dir, output=str(root / "embeddings")
    ).run()
    BuildIndex(
        embeddings=str(root / "embeddings"),
        output=paths["exact"],
        kind="brute_force",
    ).run()
    return {
        **paths,
        "blocks": blocks_dir,
        "questions": [questions_path],
        "root": root,
    }
