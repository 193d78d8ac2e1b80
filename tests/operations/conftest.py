"""What tests of `realm import` share."""

import pytest
from hugging_face_goldens import GOLDEN

from realm_tf import cli
from realm_tf.operations.build_index import BuildIndex


@pytest.fixture(scope="session")
def open_qa(tmp_path_factory):
    """The whole of a RealmForOpenQA: model, blocks, embeddings, index."""
    root = tmp_path_factory.mktemp("open_qa")
    names = ("model", "blocks", "embeddings", "index")
    paths = {name: str(root / name) for name in names}
    status = cli.main(
        [
            *("import", "hf", "--source", str(GOLDEN / "openqa")),
            *("--output", paths["model"], "--blocks", paths["blocks"]),
            *("--embeddings", paths["embeddings"], "--license", "apache-2.0"),
            # Longer ones were cut when the goldens' embeddings were made.
            *("--max-block-length", "64"),
        ]
    )
    assert status == 0
    BuildIndex(
        embeddings=paths["embeddings"],
        output=paths["index"],
        kind="brute_force",
    ).run()
    return paths
