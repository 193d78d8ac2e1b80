"""A larger reader teaches a smaller one where few answers are known.

Each block holds one name among other words, and each question a word that only
its block has; the answer is the name. The teacher learns from the answers of
all questions, its students from those of a few: of the others no answer occurs
in any block, so that only the teacher says something of them.
"""

import dataclasses
import json

import numpy as np
import pytest
import tiny_models

from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.fine_tune import FineTune

NAMES = [f"name{number}" for number in range(24)]
WORDS = [f"word{number}" for number in range(24)]
NUM_BLOCKS, NUM_TRAIN, NUM_LABELLED = 96, 64, 8
SETTINGS = (
    *("retriever=bm25", "train_query_tower=false", "num_reader_blocks=1"),
    *("batch_size=8", "learning_rate=3e-3", "dropout=0"),
)


@dataclasses.dataclass(frozen=True)
class _World:
    root: object
    vocabulary: str
    blocks: object
    train: str
    few: str
    test: str

    def model(self, name, seed, **sizes):
        """A random model, and the index that its tower makes."""
        path = str(self.root / name)
        tiny_models.save(self.vocabulary, path, factor=5, seed=seed, **sizes)
        embeddings = Embed(
            model=path, blocks=self.blocks, output=f"{path}-embeddings"
        ).run()
        index = BuildIndex(embeddings=embeddings, output=f"{path}-index").run()
        return {"model": path, "blocks": self.blocks, "index": index}

    def learn(self, name, start, questions, *changes, **given):
        return FineTune(
            recipe="tiny",
            set=(*SETTINGS, *changes),
            questions=questions,
            output=str(self.root / name),
            **start,
            **given,
        ).run(verbose=0)

    def exact_match(self, name, start, model):
        """On questions of other blocks."""
        return (
            Evaluate(
                **{**start, "model": model},
                questions=self.test,
                retriever="bm25",
                num_reader_blocks=1,
                output=str(self.root / f"{name}-evaluation"),
            )
            .run()
            .metrics["exact_match"]
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("teaching")
    keys = [f"key{number}" for number in range(NUM_BLOCKS)]
    pieces = [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "who", "nobody")
    ]
    (root / "vocab.txt").write_text(
        "".join(f"{each}\n" for each in (*pieces, *NAMES, *WORDS, *keys))
    )
    random = np.random.default_rng(3)
    rows = {name: [] for name in ("articles", "train", "few", "test")}
    for number, key in enumerate(keys):
        # Each name is in some blocks of both parts.
        name = NAMES[number % len(NAMES)]
        words = [key, name, *random.choice(WORDS, 5, replace=False)]
        text = " ".join(random.permutation(words)) + " ."
        rows["articles"].append({"id": key, "title": key, "text": text})
        line = {"question": f"who {key}", "answer": [name]}
        if number >= NUM_TRAIN:
            rows["test"].append(line)
            continue
        rows["train"].append(line)
        is_labelled = number < NUM_LABELLED
        rows["few"].append(line if is_labelled else line | {"answer": "nobody"})
    paths = {}
    for name, lines in rows.items():
        paths[name] = root / f"{name}.jsonl"
        paths[name].write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    vocabulary = str(root / "vocab.txt")
    blocks = Chunk(
        input=str(paths.pop("articles")),
        vocab=vocabulary,
        output=str(root / "blocks"),
    ).run()
    return _World(
        root, vocabulary, blocks, **{k: str(v) for k, v in paths.items()}
    )


@pytest.mark.slow
def test_a_taught_reader_answers_better_than_one_that_is_not(world):
    large = world.model("large", 1, hidden_dim=32, intermediate_dim=64)
    small = world.model("small", 2, hidden_dim=16, intermediate_dim=16)
    teacher = world.learn("teacher", large, world.train, "num_epochs=25")
    found = {"teacher": world.exact_match("teacher", large, teacher)}
    for name, given in {"alone": {}, "taught": {"teacher": teacher}}.items():
        model = world.learn(name, small, world.few, "num_epochs=25", **given)
        found[name] = world.exact_match(name, small, model)
    distances = [row["teacher_loss"] for row in model.metadata["history"]]
    assert distances[-1] < 0.3 * distances[0]
    assert found["teacher"] > 0.9, found
    # Chance is one of some dozen spans.
    assert found["taught"] > found["alone"] + 0.2, found
