"""RetrieveAndRead's candidates and spans against the slow recomputation."""

import keras
import loss_oracle
import numpy as np
import open_qa_oracle as oracle
import pytest

from realm_tf.errors import InputError
from realm_tf.models.block_reading import best_spans
from realm_tf.retrieval.ivf import Ivf

JIT = keras.backend.backend() == "jax"


def test_every_span_score(model, answers, expected):
    outputs = oracle.to_numpy(model(oracle.batch(answers)))
    for row, wanted in enumerate(expected):
        found = {}
        for place, start, width in np.argwhere(outputs["allowed"][row]):
            block = int(outputs["read_ids"][row, place])
            first = int(outputs["block_positions"][row, place, start])
            found[block, first, first + int(width) + 1] = (
                outputs["span_scores"][row, place, start, width],
                outputs["correct"][row, place, start, width],
            )
        assert found.keys() == wanted["spans"].keys()
        for span, (score, correct) in wanted["spans"].items():
            assert found[span][0] == pytest.approx(score, abs=2e-5)
            assert found[span][1] == correct
    assert not np.any(outputs["correct"] & ~outputs["allowed"])


def test_retrieval_counts_as_much_as_it_is_said_to(make_model, model, answers):
    batch = oracle.batch(answers)
    before = oracle.to_numpy(model(batch))
    other = make_model(relevance_weight=2.5)
    outputs = oracle.to_numpy(other(batch))
    np.testing.assert_allclose(
        outputs["span_scores"] - before["span_scores"],
        np.broadcast_to(
            1.5 * before["read_scores"][:, :, None, None],
            before["span_scores"].shape,
        ),
        atol=2e-5,
    )
    for name in ("read_ids", "read_scores", "relevance_scores"):
        np.testing.assert_array_equal(outputs[name], before[name])


def test_best_spans_against_sorting(model, expected):
    best = oracle.to_numpy(
        best_spans(model(oracle.pack(oracle.QUERIES)), num_best=4)
    )
    for row, wanted in enumerate(expected):
        ranked = sorted(
            ((score, span) for span, (score, _) in wanted["spans"].items()),
            reverse=True,
        )
        for place in range(4):
            score, (block, start, limit) = ranked[place]
            read = wanted["candidates"][best["nbest_positions"][row, place]]
            assert read == block
            assert best["nbest_starts"][row, place] == start
            assert best["nbest_limits"][row, place] == limit
            assert best["nbest_scores"][row, place] == pytest.approx(
                score, abs=2e-5
            )
        # "none" of each block beside its spans.
        scores = np.array(
            [score for score, _ in ranked]
            + wanted["scores"][: oracle.NUM_READ].tolist()
        )
        assert best["log_total"][row] == pytest.approx(
            np.log(np.exp(scores).sum()), abs=2e-5
        )
        np.testing.assert_allclose(
            best["nbest_scores"][row] - best["nbest_reader_scores"][row],
            wanted["scores"][best["nbest_positions"][row]],
            atol=2e-5,
        )
        read_scores = wanted["scores"][: oracle.NUM_READ]
        np.testing.assert_allclose(
            best["candidate_log_probs"][row],
            loss_oracle.log_softmax(read_scores),
            atol=1e-5,
        )
        for place, block in enumerate(wanted["candidates"][: oracle.NUM_READ]):
            score, span = next(r for r in ranked if r[1][0] == block)
            assert best["candidate_scores"][row, place] == pytest.approx(
                score, abs=2e-5
            )
            assert best["candidate_starts"][row, place] == span[1]
            assert best["candidate_limits"][row, place] == span[2]


def test_blocks_without_a_wordpiece_have_no_span(model):
    outputs = {
        "read_scores": np.zeros((1, 1), "float32"),
        "read_relevance": np.zeros((1, 1), "float32"),
        "block_positions": np.full((1, 1, 4), -1, "int32"),
        "span_scores": np.ones((1, 1, 4, 2), "float32"),
        "allowed": np.zeros((1, 1, 4, 2), bool),
    }
    best = oracle.to_numpy(best_spans(outputs, num_best=2))
    assert best["candidate_starts"].tolist() == [[-1]]
    assert best["candidate_limits"].tolist() == [[-1]]
    assert best["nbest_starts"].tolist() == [[-1, -1]]
    assert best["nbest_limits"].tolist() == [[-1, -1]]
    assert np.isfinite(best["log_total"]).all()


@pytest.mark.slow
def test_what_was_not_found_answers_nothing_and_no_number_stops(model, answers):
    """-inf stands for no block; a tower that gives NaN must not be hidden."""
    batch = oracle.batch(answers)
    before = oracle.to_numpy(model(batch))
    scores = np.array(before["relevance_scores"])
    assert before["has_answer"][:, 1:].any() and before["has_answer"][0, 0]
    losses = []
    for value in (-np.inf, np.nan):
        changed = scores.copy()
        changed[:, 1:] = value
        given = {
            "candidate_ids": before["candidate_ids"],
            "candidate_scores": changed,
        }
        outputs = model({**batch, **given}, training=True)
        found = oracle.to_numpy(outputs)["has_answer"]
        np.testing.assert_array_equal(found[:, 0], before["has_answer"][:, 0])
        assert found[:, 1:].any() == bool(np.isnan(value))
        losses.append(float(model.compute_loss(x=batch, y_pred=outputs)))
    assert np.isfinite(losses[0]) and np.isnan(losses[1])


def test_an_index_without_embeddings_is_given_them(make_model, model, answers):
    embeddings = np.asarray(model.index.embeddings)
    approximate = make_model(index=_ivf, embeddings=embeddings)
    exact = make_model()
    for training in (False, True):
        found, wanted = (
            oracle.to_numpy(each(oracle.batch(answers), training=training))
            for each in (approximate, exact)
        )
        assert found.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_allclose(
                found[name], wanted[name], atol=2e-5, err_msg=name
            )
    # They are not trained themselves.
    approximate.compile(keras.optimizers.SGD(0.1), jit_compile=JIT)
    loss = approximate.train_on_batch(oracle.batch(answers), return_dict=True)
    wanted = oracle.loss(exact, answers)
    assert loss["loss"] == pytest.approx(wanted, abs=1e-5)
    np.testing.assert_array_equal(
        np.asarray(approximate._embeddings), embeddings
    )


def _ivf(embeddings):
    return Ivf.build(embeddings, num_partitions=2, num_probed=2)


def test_no_blocks_to_read_are_refused(make_model):
    with pytest.raises(InputError, match="num_reader_blocks=0"):
        make_model(num_reader_blocks=0)
