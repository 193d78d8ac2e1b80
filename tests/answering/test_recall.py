"""Recall where no block is read, recomputed from the embeddings."""

import json

import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.errors import InputError
from realm_tf.evaluation.evaluate import evaluate
from realm_tf.evaluation.reports import comparison

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
    root = tmp_path_factory.mktemp("recall")
    questions = root / "questions.jsonl"
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in ASKED))
    paths = (model_dir, blocks_dir, brute_force_index_dir, str(questions))
    metrics = evaluate(*paths, str(root / "output"), num_reader_blocks=0)
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
    path = f"{found[1]}/predictions.jsonl"
    lines = [json.loads(x) for x in Path(path).read_text().splitlines()]
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
    assert json.loads(Path(f"{output}/metrics.json").read_text()) == metrics
    assert artifact.read(output, kind="evaluation")["metrics"] == metrics


def test_nothing_of_answers_is_claimed(found):
    paths, output, metrics = found
    assert not {"exact_match", "f1", "reading_accuracy"} & set(metrics)
    line = json.loads(
        Path(f"{output}/predictions.jsonl").read_text().split("\n")[0]
    )
    assert set(line) == {
        *("question", "answer", "retrieved", "answer_ranks", "num_ranked"),
        *(f"answer_recall@{k}" for k in (1, 5, 20)),
    }
    page = Path(f"{output}/report.html").read_text()
    assert "answer recall@k" in page and "By question word" not in page
    with pytest.raises(InputError, match="no calibration: it has no answers"):
        evaluate(*paths, f"{output}-other", calibration=output)


def test_the_reader_does_not_matter(found, tmp_path):
    (model, *paths), output, metrics = found
    loaded = model_directory.load(model)
    for weight in loaded.model.reader.weights:
        weight.assign(np.full(weight.shape, np.nan))
    towers, of_towers = str(tmp_path / "towers"), str(tmp_path / "other")
    model_directory.save(loaded, towers)
    again = evaluate(
        towers, *paths, of_towers, num_reader_blocks=0, compare=["bm25"]
    )
    assert {name: again[name] for name in metrics} == metrics
    assert again["bm25_answer_recall@1"] > 0
    both = comparison.compare([output, of_towers], str(tmp_path / "both"))
    difference = both["differences"]["other"]["answer_recall@5"]
    assert difference["difference"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"aggregate_answers": True},
        {"calibration": "dev"},
        {"retriever": "none"},
    ],
)
def test_what_needs_answers_is_refused(found, options, tmp_path):
    paths, output = found[0], str(tmp_path / "output")
    if "retriever" in options:
        paths = (paths[0], None, None, paths[3])
    with pytest.raises(InputError, match="nothing is answered: leave"):
        evaluate(*paths, output, num_reader_blocks=0, **options)
    assert not Path(output).exists()


def test_an_index_of_another_model_is_refused(found, tmp_path):
    model, blocks, index, questions = found[0]
    other = tmp_path / "index"
    other.mkdir()
    for name in sorted(each.name for each in Path(index).iterdir()):
        (other / name).write_bytes(Path(f"{index}/{name}").read_bytes())
    metadata = json.loads((other / "metadata.json").read_text())
    metadata["parents"]["block_tower"] = "another"
    (other / "metadata.json").write_text(json.dumps(metadata))
    output = str(tmp_path / "output")
    with pytest.raises(InputError, match="this model's block tower"):
        evaluate(
            model, blocks, str(other), questions, output, num_reader_blocks=0
        )
    assert not Path(output).exists()
