"""Recall where no block is read, recomputed from the embeddings."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.errors import InputError
from realm_tf.operations.compare import Compare
from realm_tf.operations.evaluate import Evaluate

# In one block each, by their words alone.
ASKED = [
    {"question": "Where was Ada?", "answer": ["London"]},
    {"question": "Who wrote organ music?", "answer": ["Leipzig"]},
    {
        "question": "When was the fire in the city?",
        "answer": ["16\\d\\d"],
        "answer_type": "regex",
        "evidence": {
            "title": "Etna",
            "sentence": "In 1669 the fire was in the city.",
        },
    },
    {"question": "What is grey?", "answer": ["zebra"]},
    {"question": " ", "answer": ["London"]},
]


@pytest.fixture(scope="module")
def recall_alone(
    tmp_path_factory, model_dir, blocks_dir, brute_force_index_dir
):
    """The operation that reads no block."""
    root = tmp_path_factory.mktemp("recall")
    questions = root / "questions.jsonl"
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in ASKED))
    return Evaluate(
        model=model_dir,
        blocks=blocks_dir,
        index=brute_force_index_dir,
        questions=questions,
        output=root / "output",
        num_reader_blocks=0,
    )


@pytest.fixture(scope="module")
def found(recall_alone):
    """What `realm evaluate` writes."""
    return recall_alone.run()


@pytest.fixture(scope="module")
def order(recall_alone):
    """All blocks of each question by the slow way, and their texts."""
    corpus = Corpus.load(
        recall_alone.model, recall_alone.blocks, recall_alone.index
    )
    tokenizer, model = corpus.loaded.tokenizer, corpus.loaded.model
    table = np.asarray(corpus.index.embeddings)
    orders = []
    for line in ASKED[:-1]:
        ids = np.array([query_wordpieces(line["question"], tokenizer)], "int32")
        query = model.embed_queries(
            {
                "token_ids": ids,
                "segment_ids": np.zeros_like(ids),
                "padding_mask": np.ones_like(ids),
            }
        )
        orders.append(np.argsort(-(table @ np.asarray(query)[0])).tolist())
    return orders, corpus.records


def test_blocks_are_those_of_the_largest_inner_products(found, order):
    lines = found.predictions
    assert [line["question"] for line in lines] == [
        line["question"] for line in ASKED
    ]
    # There are 11 blocks; nothing is found where nothing is asked.
    assert [line["retrieved"] for line in lines] == [*order[0], []]


def test_recall_is_that_of_the_first_blocks(found, order):
    metrics = found.metrics
    orders, records = order
    words = ["london", "leipzig", "1669", "zebra"]
    ranks = [
        next(
            (
                rank
                for rank, block in enumerate(blocks, 1)
                if word in records.texts[block].lower()
            ),
            99,
        )
        for word, blocks in zip(words, orders, strict=True)
    ]
    # Not all the same, or every k would do.
    assert len(set(ranks)) > 2
    for k in (1, 5, 20):
        share = sum(rank <= k for rank in ranks) / len(ASKED)
        assert metrics[f"answer_recall@{k}"] == pytest.approx(share)
        low, high = metrics[f"answer_recall@{k}_interval"]
        assert low <= share <= high
        # One question names its block, which is the only one with 1669.
        assert metrics[f"gold_recall@{k}"] == float(ranks[2] <= k)
    assert metrics["questions"] == len(ASKED)
    assert found.metadata["metrics"] == metrics


def test_nothing_of_answers_is_claimed(recall_alone, found):
    answers = {"exact_match", "f1", "reading_accuracy"}
    assert not answers & set(found.metrics)
    assert set(found.predictions[0]) == {
        *("question", "answer", "retrieved", "answer_ranks", "num_ranked"),
        *(f"answer_recall@{k}" for k in (1, 5, 20)),
    }
    page = Path(found.file("report.html")).read_text()
    assert "answer recall@k" in page and "By question word" not in page
    with pytest.raises(InputError, match="no calibration: it has no answers"):
        dataclasses.replace(
            recall_alone,
            output=f"{found}-other",
            calibration=found,
            num_reader_blocks=5,
        ).run()


def test_the_reader_does_not_matter(recall_alone, found, tmp_path):
    loaded = recall_alone.model.load()
    for weight in loaded.model.reader.weights:
        weight.assign(np.full(weight.shape, np.nan))
    towers, of_towers = str(tmp_path / "towers"), str(tmp_path / "other")
    model_directory.save(loaded, towers)
    again = dataclasses.replace(
        recall_alone, model=towers, output=of_towers, compare=("bm25",)
    ).run()
    assert {name: again.metrics[name] for name in found.metrics} == (
        found.metrics
    )
    assert again.metrics["bm25_answer_recall@1"] > 0
    both = Compare(
        evaluations=[found, of_towers], output=tmp_path / "both"
    ).run()
    difference = both.content["differences"]["other"]["answer_recall@5"]
    assert difference["difference"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"aggregate_answers": True},
        {"calibration": "dev"},
        {"retriever": "none"},
    ],
)
def test_what_needs_answers_is_refused(recall_alone, options, tmp_path):
    if "retriever" in options:
        options = {**options, "blocks": None, "index": None}
    changed = dataclasses.replace(
        recall_alone, output=tmp_path / "output", **options
    )
    with pytest.raises(InputError, match="nothing is answered: leave"):
        changed.run()
    assert not Path(changed.output).exists()


def test_an_index_of_another_model_is_refused(recall_alone, tmp_path):
    other = tmp_path / "index"
    shutil.copytree(recall_alone.index, other)
    metadata = json.loads((other / "metadata.json").read_text())
    metadata["parents"]["block_tower"] = "another"
    (other / "metadata.json").write_text(json.dumps(metadata))
    changed = dataclasses.replace(
        recall_alone, index=other, output=tmp_path / "output"
    )
    with pytest.raises(InputError, match="not made from the block tower of"):
        changed.run()
    assert not Path(changed.output).exists()
