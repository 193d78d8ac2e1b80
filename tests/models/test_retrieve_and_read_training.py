"""RetrieveAndRead's losses and gradients against the slow recomputation."""

import keras
import numpy as np
import open_qa_oracle as oracle
import pytest
import training_runs

JIT = keras.backend.backend() == "jax"


def _moved(before, part):
    after = training_runs.values(part)
    return {path: np.abs(after[path] - v).max() for path, v in before.items()}


def test_losses_and_metrics(model, answers, expected):
    model.reset_metrics()
    outputs = model(oracle.batch(answers))
    loss = float(model.compute_loss(y_pred=outputs))
    assert loss == pytest.approx(
        np.mean([r["retriever_loss"] + r["reader_loss"] for r in expected]),
        abs=1e-5,
    )
    metrics = {m.name: float(m.result()) for m in model.metrics}
    wanted = {
        name: np.mean([row[name] for row in expected])
        for name in ("retriever_loss", "reader_loss")
    }
    wanted["candidates_recall"] = np.mean(
        [any(row["has_answer"]) for row in expected]
    )
    wanted["top_block_recall"] = np.mean(
        [row["has_answer"][0] for row in expected]
    )
    wanted["span_accuracy"] = np.mean(
        [row["best_is_right"] for row in expected if row["answerable"]]
    )
    for name, value in wanted.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5), name
    # What teaches nothing costs nothing.
    assert [row["retriever_loss"] > 0 for row in expected] == [
        *(True, True, False, True, False, True)
    ]
    assert [row["reader_loss"] > 0 for row in expected] == [
        *(True, False, False, True, False, True)
    ]


def test_the_gradient_reaches_query_tower_and_reader_only(make_model, answers):
    model = make_model()
    parts = {
        "query": model.open_qa.query_embedder,
        "reader": model.open_qa.reader,
        "block": model.open_qa.block_embedder,
        "index": model.index,
        "table": model.block_table,
    }
    before = {name: training_runs.values(part) for name, part in parts.items()}
    # One step of rate 1 subtracts the gradient.
    model.compile(optimizer=keras.optimizers.SGD(1.0), jit_compile=JIT)
    loss_before = oracle.loss(model, answers)
    metrics = model.train_on_batch(oracle.batch(answers), return_dict=True)
    assert metrics["loss"] == pytest.approx(loss_before, abs=1e-5)
    moved = {name: _moved(before[name], part) for name, part in parts.items()}
    for name in ("block", "index", "table"):
        assert not any(moved[name].values()), name
    # A softmax does not feel the same amount added to all: the keys' and the
    # score's bias and the shift before it. Nothing reads the reader's pooler.
    for name, still in (
        ("query", {"key/bias"}),
        (
            "reader",
            {
                "key/bias",
                "span_scorer/layer_norm/beta",
                "score/bias",
                "pooled_dense",
            },
        ),
    ):
        for path, distance in moved[name].items():
            if not any(part in path for part in still):
                assert distance > 1e-6, path


@pytest.mark.parametrize("num_read", [1, oracle.NUM_READ])
def test_an_answer_is_read_in_last_place(
    make_model, answers, expected, num_read
):
    model = make_model(read_an_answer=True, num_reader_blocks=num_read)
    outputs = oracle.to_numpy(model(oracle.batch(answers), training=True))
    for row, wanted in enumerate(expected):
        best = wanted["candidates"][:num_read]
        if any(wanted["has_answer"]) and not any(
            wanted["has_answer"][:num_read]
        ):
            place = wanted["has_answer"].index(True)
            best = [*best[:-1], wanted["candidates"][place]]
        assert outputs["read_ids"][row].tolist() == best
        np.testing.assert_allclose(
            outputs["read_scores"][row],
            [
                wanted["scores"][wanted["candidates"].index(block)]
                for block in best
            ],
            atol=1e-5,
        )
    assert outputs["correct"].any(axis=(1, 2, 3)).tolist() == [
        *(True, True, False, True, False, True)
    ]
    calm = oracle.to_numpy(model(oracle.batch(answers), training=False))
    np.testing.assert_array_equal(
        calm["read_ids"], calm["candidate_ids"][:, :num_read]
    )


def _with_gold(answers, gold_ids):
    return {**oracle.batch(answers), "gold_ids": np.array(gold_ids, "int32")}


def test_the_gold_block_is_read_in_last_place(make_model, answers, expected):
    model = make_model(read_an_answer=True, gold="read", num_reader_blocks=2)
    # The fourth candidate of the first question, the first of the second;
    # of the others no gold block is known, or it is no candidate.
    gold = [-1] * len(expected)
    gold[0], gold[1] = (
        expected[i]["candidates"][p] for i, p in ((0, 3), (1, 0))
    )
    gold[2] = next(
        block for block in range(99) if block not in expected[2]["candidates"]
    )
    outputs = oracle.to_numpy(model(_with_gold(answers, gold), training=True))
    without = oracle.to_numpy(model(oracle.batch(answers), training=True))
    first = expected[0]["candidates"]
    assert outputs["read_ids"][0].tolist() == [first[0], first[3]]
    assert outputs["read_ids"][1].tolist() == expected[1]["candidates"][:2]
    np.testing.assert_array_equal(
        outputs["read_ids"][2:], without["read_ids"][2:]
    )


def test_an_answer_outside_the_gold_block_does_not_count(make_model, answers):
    model = make_model(gold="only")
    plain = oracle.to_numpy(model(oracle.batch(answers), training=True))
    # (b, r)
    is_right = plain["correct"].any(axis=(2, 3))
    (row,) = np.flatnonzero(is_right.sum(axis=1) > 1)[:1]
    gold = [-1] * len(answers)
    place = np.flatnonzero(is_right[row])[0]
    gold[row] = plain["read_ids"][row, place]
    found = oracle.to_numpy(model(_with_gold(answers, gold), training=True))
    elsewhere = plain["correct"][row].copy()
    elsewhere[place] = False
    assert elsewhere.any()
    for name, wanted in (
        ("correct", plain["correct"][row] & ~elsewhere),
        ("allowed", plain["allowed"][row] & ~elsewhere),
    ):
        np.testing.assert_array_equal(found[name][row], wanted)
        others = np.arange(len(answers)) != row
        np.testing.assert_array_equal(found[name][others], plain[name][others])
    calm = oracle.to_numpy(model(_with_gold(answers, gold), training=False))
    np.testing.assert_array_equal(calm["correct"], plain["correct"])
