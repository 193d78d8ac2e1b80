"""The recall of towers alone, recomputed from the embeddings."""

import json

import numpy as np
import pytest

from realm_tf import stages
from realm_tf.data.open_qa import query_wordpieces
from realm_tf.errors import InputError
from realm_tf.evaluation.zero_shot import zero_shot
from realm_tf.retrieval.corpus import Corpus

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
def found(tmp_path_factory, model_dir, blocks_dir, brute_force_index_dir):
    root = tmp_path_factory.mktemp("zero_shot")
    questions = root / "questions.jsonl"
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in ASKED))
    paths = (model_dir, blocks_dir, brute_force_index_dir, str(questions))
    metrics = zero_shot(*paths, str(root / "output"))
    return paths, str(root / "output"), metrics


@pytest.fixture(scope="module")
def order(found):
    """All blocks of each question by the slow way, and their texts."""
    corpus = Corpus.load(*found[0][:3])
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
    path = f"{found[1]}/retrieved.jsonl"
    lines = [json.loads(x) for x in stages.read_text(path).splitlines()]
    assert [line["question"] for line in lines] == [
        line["question"] for line in ASKED
    ]
    # There are 11 blocks; nothing is found where nothing is asked.
    assert [line["retrieved"] for line in lines] == [*order[0], []]


def test_recall_is_that_of_the_first_blocks(found, order):
    _, output, metrics = found
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
    assert json.loads(stages.read_text(f"{output}/metrics.json")) == metrics
    assert stages.read(output, kind="evaluation")["metrics"] == metrics


def test_nothing_of_answers_is_claimed(found):
    assert not {"exact_match", "f1"} & set(found[2])


def test_an_index_of_another_model_is_refused(found, tmp_path):
    model, blocks, index, questions = found[0]
    other = tmp_path / "index"
    other.mkdir()
    for name in stages.list_names(index):
        (other / name).write_bytes(stages.read_bytes(f"{index}/{name}"))
    metadata = json.loads((other / "metadata.json").read_text())
    metadata["parents"]["block_tower"] = "another"
    (other / "metadata.json").write_text(json.dumps(metadata))
    output = str(tmp_path / "output")
    with pytest.raises(InputError, match="this model's block tower"):
        zero_shot(model, blocks, str(other), questions, output)
    assert not stages.exists(output)
