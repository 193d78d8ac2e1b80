"""RetrieveAndRead against a slow recomputation, question by question.

Eight blocks whose wordpieces are all different, so that an answer stands in
one block only; random weights without dropout.
"""

import keras
import numpy as np
import pytest

from realm_tf.errors import InputError
from realm_tf.models.best_spans import best_spans
from realm_tf.models.block_table import BlockTable
from realm_tf.models.embedder import Embedder
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.models.retrieve_and_read import RetrieveAndRead
from realm_tf.retrieval.brute_force import BruteForce

CLS, SEP = 2, 3
LENGTHS = [5, 3, 6, 4, 1, 6, 5, 2]
# Block b holds the wordpieces 10 + 6 b, 11 + 6 b, ...
BODIES = [
    [10 + 6 * block + place for place in range(length)]
    for block, length in enumerate(LENGTHS)
]
# The second wordpiece of the sixth block goes on with the first one's word.
CONTINUATION = BODIES[5][1]
QUERIES = [
    [CLS, 5, 6, SEP],
    [CLS, 7, SEP],
    [CLS, 8, 9, 5, 4, SEP],
    [CLS, 6, 6, 7, SEP],
    [CLS, 4, 8, SEP],
    [CLS, 9, SEP],
]
NUM_CANDIDATES = 6
NUM_READ = 3
MAX_WIDTH = 4
# Eager JAX is slow, and so is compiling with TensorFlow.
JIT = keras.backend.backend() == "jax"


@pytest.fixture(scope="module")
def make_model(make_encoder, randomize):
    """Makes a `RetrieveAndRead` of two towers and its block embeddings."""

    def make(*, index=BruteForce, **arguments):
        def encoder():
            return make_encoder(num_layers=1, dropout=0.0)

        def tower():
            return Embedder(encoder(), projection_dim=4, dropout=0.0)

        query_embedder, block_embedder = tower(), tower()
        reader = Reader(
            encoder(),
            span_hidden_dim=6,
            max_span_width=MAX_WIDTH,
        )
        for seed, part in enumerate((query_embedder, block_embedder, reader)):
            randomize(part, seed=seed)
        block_embedder.trainable = False
        table = np.zeros((len(BODIES), max(LENGTHS)), "int32")
        for row, body in enumerate(BODIES):
            table[row, : len(body)] = body
        random = np.random.default_rng(7)
        embeddings = random.normal(size=(len(BODIES), 4)).astype("float32")
        return RetrieveAndRead(
            OpenQa(query_embedder, block_embedder, reader, score_scale=2.0),
            index(embeddings),
            BlockTable(table, LENGTHS),
            is_continuation=np.arange(60) == CONTINUATION,
            sep_id=SEP,
            **{
                "num_candidates": NUM_CANDIDATES,
                "num_reader_blocks": NUM_READ,
                **arguments,
            },
        )

    return make


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


def _pack(queries):
    length = max(map(len, queries))
    token_ids = np.zeros((len(queries), length), "int32")
    for row, ids in enumerate(queries):
        token_ids[row, : len(ids)] = ids
    return {
        "token_ids": token_ids,
        "padding_mask": (token_ids > 0).astype("int32"),
    }


def _pack_answers(answers):
    width = max(len(ids) for row in answers for ids in row)
    packed = np.full((len(answers), max(map(len, answers)), width), -1)
    for row, row_answers in enumerate(answers):
        for column, ids in enumerate(row_answers):
            packed[row, column, : len(ids)] = ids
    return packed.astype("int32")


def _numpy(outputs):
    return {name: np.asarray(value) for name, value in outputs.items()}


# === The slow recomputation ===


def _inputs(ids, segments):
    return {
        "token_ids": np.array([ids], "int32"),
        "segment_ids": np.array([segments], "int32"),
        "padding_mask": np.ones((1, len(ids)), "int32"),
    }


def _slow_ranking(model, query):
    embedding = np.asarray(
        model.open_qa.query_embedder(_inputs(query, [0] * len(query)))
    )[0].astype("float64")
    scores = 2.0 * (np.asarray(model.index.embeddings) @ embedding)
    order = sorted(range(len(BODIES)), key=lambda block: -scores[block])
    return order[: model.num_candidates], scores


def _starts_of(body, answer):
    """Where an answer stands as whole words."""
    if not 0 < len(answer) <= MAX_WIDTH:
        return []
    return [
        start
        for start in range(len(body) - len(answer) + 1)
        if body[start : start + len(answer)] == answer
        and body[start + len(answer) : start + len(answer) + 1]
        != [CONTINUATION]
    ]


def _slow_spans(model, query, block, relevance, answers):
    """`(start, limit) -> (score, correct)` of a block."""
    body = BODIES[block]
    joined = [*query, *body, SEP]
    segments = [0] * len(query) + [1] * (len(body) + 1)
    logits = np.asarray(model.open_qa.reader(_inputs(joined, segments)))[0]
    right = {
        (start, start + len(answer))
        for answer in answers
        for start in _starts_of(body, answer)
    }
    return {
        (start, start + width): (
            float(logits[len(query) + start, width - 1]) + relevance,
            (start, start + width) in right,
        )
        for start in range(len(body))
        for width in range(1, MAX_WIDTH + 1)
        if start + width <= len(body)
    }


def _log_sum(scores):
    return np.log(np.sum(np.exp(np.array(scores, "float64"))))


def _slow(model, query, answers):
    """Losses and hits of one question, and the spans of each block read."""
    candidates, scores = _slow_ranking(model, query)
    has_answer = [
        any(_starts_of(BODIES[block], answer) for answer in answers)
        for block in candidates
    ]
    retriever_loss = reader_loss = 0.0
    if any(has_answer):
        retriever_loss = _log_sum(scores[candidates]) - _log_sum(
            scores[
                [b for b, h in zip(candidates, has_answer, strict=True) if h]
            ]
        )
    spans = {
        (block, *place): value
        for block in candidates[: model.num_reader_blocks]
        for place, value in _slow_spans(
            model, query, block, scores[block], answers
        ).items()
    }
    correct = [score for score, right in spans.values() if right]
    if correct:
        reader_loss = _log_sum([s for s, _ in spans.values()]) - _log_sum(
            correct
        )
    return {
        "candidates": candidates,
        "scores": scores[candidates],
        "has_answer": has_answer,
        "retriever_loss": retriever_loss,
        "reader_loss": reader_loss,
        "spans": spans,
        "answerable": bool(correct),
        "best_is_right": max(spans.values())[1],
    }


@pytest.fixture(scope="module")
def answers(model):
    """One kind of question each; where the answer stands follows the model."""
    ranked = [_slow_ranking(model, query)[0] for query in QUERIES]
    unread = [
        next(b for b in row[NUM_READ:] if LENGTHS[b] > 1) for row in ranked
    ]
    return [
        # In the best block.
        [BODIES[ranked[0][0]][:1]],
        # Only in a block that is a candidate and not read.
        [BODIES[unread[1]][:2]],
        # Nowhere.
        [[59]],
        # Several: in two blocks, and one that is nowhere.
        [BODIES[ranked[3][0]][-1:], [59, 58], BODIES[ranked[3][1]][:2]],
        # Wider than any span, though it stands in a block.
        [BODIES[2][:5]],
        # Cut inside a word, beside one that is whole.
        [BODIES[5][:1], BODIES[ranked[5][1]][-1:]],
    ]


@pytest.fixture(scope="module")
def expected(model, answers):
    return [
        _slow(model, query, row)
        for query, row in zip(QUERIES, answers, strict=True)
    ]


def _example(answers):
    return {**_pack(QUERIES), "answer_ids": _pack_answers(answers)}


# === Tests ===


def test_the_cases_are_what_they_are_called(expected):
    kinds = [
        (row["has_answer"][0], any(row["has_answer"]), row["answerable"])
        for row in expected
    ]
    assert kinds[:3] == [
        (True, True, True),
        (False, True, False),
        (False, False, False),
    ]
    assert sum(expected[3]["has_answer"]) == 2
    assert kinds[4] == (False, False, False)
    assert sum(expected[5]["has_answer"]) == 1 and expected[5]["answerable"]


@pytest.mark.parametrize("training", [False, True])
def test_candidates_and_relevance(model, answers, expected, training):
    outputs = _numpy(model(_example(answers), training=training))
    for row, wanted in enumerate(expected):
        assert outputs["candidate_ids"][row].tolist() == wanted["candidates"]
        assert outputs["has_answer"][row].tolist() == wanted["has_answer"]
        np.testing.assert_allclose(
            outputs["relevance_scores"][row], wanted["scores"], atol=1e-5
        )
    np.testing.assert_array_equal(
        outputs["read_ids"], outputs["candidate_ids"][:, :NUM_READ]
    )
    np.testing.assert_array_equal(
        outputs["read_scores"], outputs["relevance_scores"][:, :NUM_READ]
    )


def test_what_the_reader_reads_in_words(model):
    outputs = _numpy(model(_pack(QUERIES)))
    for row, query in enumerate(QUERIES):
        for place, block in enumerate(outputs["read_ids"][row]):
            joined = [*query, *BODIES[block], SEP]
            ids = outputs["joint_ids"][row, place].tolist()
            assert ids[: len(joined)] == joined
            assert not any(ids[len(joined) :])
            positions = outputs["block_positions"][row, place].tolist()
            first, last = len(query), len(query) + LENGTHS[block]
            assert positions[first:last] == list(range(LENGTHS[block]))
            assert set(positions[:first] + positions[last:]) == {-1}


def test_every_span_score(model, answers, expected):
    outputs = _numpy(model(_example(answers)))
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


def test_losses_and_metrics(model, answers, expected):
    model.reset_metrics()
    outputs = model(_example(answers))
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


def test_span_accuracy_asks_for_the_best_span_not_for_the_sum(model):
    """Three right spans of score 1 outweigh one of 1.5; they are not best."""
    scores = np.array([[[[1.0], [1.0], [1.0], [1.5]]]], "float32")
    correct = np.array([[[[True], [True], [True], [False]]]])
    outputs = {
        "relevance_scores": np.zeros((1, 2), "float32"),
        "has_answer": np.array([[True, False]]),
        "span_scores": scores,
        "correct": correct,
        "allowed": np.ones_like(correct),
    }
    for best, accuracy in ((1.5, 0.0), (0.5, 1.0)):
        scores[..., 3, 0] = best
        model.reset_metrics()
        model.compute_loss(y_pred=outputs)
        metrics = {m.name: float(m.result()) for m in model.metrics}
        assert metrics["span_accuracy"] == accuracy
    model.reset_metrics()


def _paths(part):
    return [v.path for v in part.variables if "seed_generator" not in v.path]


def _values(part):
    return [
        np.asarray(v).copy()
        for v in part.variables
        if "seed_generator" not in v.path
    ]


def _moved(before, part):
    return [
        float(np.abs(b - a).max())
        for b, a in zip(before, _values(part), strict=True)
    ]


def _slow_loss(model, answers):
    rows = [
        _slow(model, query, row)
        for query, row in zip(QUERIES, answers, strict=True)
    ]
    return np.mean([r["retriever_loss"] + r["reader_loss"] for r in rows])


def test_the_gradient_reaches_query_tower_and_reader_only(make_model, answers):
    model = make_model()
    parts = {
        "query": model.open_qa.query_embedder,
        "reader": model.open_qa.reader,
        "block": model.open_qa.block_embedder,
        "index": model.index,
        "table": model.block_table,
    }
    before = {name: _values(part) for name, part in parts.items()}
    # One step of rate 1 subtracts the gradient.
    model.compile(optimizer=keras.optimizers.SGD(1.0), jit_compile=JIT)
    loss_before = _slow_loss(model, answers)
    metrics = model.train_on_batch(_example(answers), return_dict=True)
    assert metrics["loss"] == pytest.approx(loss_before, abs=1e-5)
    moved = {name: _moved(before[name], part) for name, part in parts.items()}
    for name in ("block", "index", "table"):
        assert set(moved[name]) == {0.0}, name
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
        for path, distance in zip(
            _paths(parts[name]), moved[name], strict=True
        ):
            if not any(part in path for part in still):
                assert distance > 1e-6, path

    # A small step against the gradient, by the slow recomputation.
    gradients = {
        name: [
            b - a
            for b, a in zip(before[name], _values(parts[name]), strict=True)
        ]
        for name in ("query", "reader")
    }
    for name in ("query", "reader"):
        squared = sum(float(np.sum(g**2)) for g in gradients[name])
        step = 1e-3 / np.sqrt(squared)
        losses = []
        for sign in (1, -1):
            for other in ("query", "reader"):
                _assign(parts[other], before[other])
            _assign(
                parts[name],
                [
                    b + sign * step * g
                    for b, g in zip(before[name], gradients[name], strict=True)
                ],
            )
            losses.append(_slow_loss(model, answers))
        measured = (losses[0] - losses[1]) / (2 * step)
        assert measured == pytest.approx(squared, rel=1e-2), name


def _assign(part, values):
    variables = [v for v in part.variables if "seed_generator" not in v.path]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def test_an_answer_is_read_in_the_last_place(make_model, answers, expected):
    model = make_model(read_an_answer=True)
    outputs = _numpy(model(_example(answers), training=True))
    for row, wanted in enumerate(expected):
        best = wanted["candidates"][:NUM_READ]
        if any(wanted["has_answer"]) and not any(
            wanted["has_answer"][:NUM_READ]
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
    calm = _numpy(model(_example(answers), training=False))
    np.testing.assert_array_equal(
        calm["read_ids"], calm["candidate_ids"][:, :NUM_READ]
    )


def test_with_one_block_read_it_is_the_answers(make_model, answers):
    model = make_model(read_an_answer=True, num_reader_blocks=1)
    outputs = _numpy(model(_example(answers), training=True))
    assert outputs["read_ids"].shape == (6, 1)
    assert outputs["correct"].any(axis=(1, 2, 3)).tolist() == [
        *(True, True, False, True, False, True)
    ]


def test_training_lowers_the_loss(make_model, answers):
    model = make_model(read_an_answer=True)
    # SGD: of all optimizers the fastest to trace.
    model.compile(
        optimizer=keras.optimizers.SGD(0.3),
        jit_compile=JIT,
    )
    history = model.fit(
        _example(answers), batch_size=6, epochs=30, shuffle=False, verbose=0
    ).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["retriever_loss"][-1] < history["retriever_loss"][0]
    assert history["reader_loss"][-1] < history["reader_loss"][0]
    assert history["span_accuracy"][-1] == 1.0


def test_losses_and_metrics_do_not_depend_on_the_batch(model, answers):
    """Six questions together, and each alone: other padding, same numbers."""
    whole = _example(answers)
    model.reset_metrics()
    together = float(model.compute_loss(y_pred=model(whole)))
    of_all = {m.name: float(m.result()) for m in model.metrics}
    model.reset_metrics()
    alone = []
    for row in range(len(QUERIES)):
        one = {name: value[row : row + 1] for name, value in whole.items()}
        # Without the padding of longer questions.
        length = int(one["padding_mask"].sum())
        for name in ("token_ids", "padding_mask"):
            one[name] = one[name][:, :length]
        alone.append(float(model.compute_loss(y_pred=model(one))))
    assert together == pytest.approx(np.mean(alone), abs=1e-5)
    for metric in model.metrics:
        assert float(metric.result()) == pytest.approx(
            of_all[metric.name], abs=1e-5
        ), metric.name


def test_alone_as_in_a_batch(model, expected):
    together = _numpy(best_spans(model(_pack(QUERIES)), num_best=3))
    for row, query in enumerate(QUERIES):
        alone = _numpy(best_spans(model(_pack([query])), num_best=3))
        for name, values in alone.items():
            np.testing.assert_allclose(
                values[0], together[name][row], atol=2e-5, err_msg=name
            )


def test_best_spans_against_sorting(model, expected):
    best = _numpy(best_spans(model(_pack(QUERIES)), num_best=4))
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
        scores = np.array([score for score, _ in ranked])
        assert best["confidence"][row] == pytest.approx(
            np.exp(scores[0]) / np.exp(scores).sum(), abs=1e-5
        )
        read_scores = wanted["scores"][:NUM_READ]
        np.testing.assert_allclose(
            best["candidate_log_probs"][row],
            read_scores - _log_sum(read_scores),
            atol=1e-5,
        )
        for place, block in enumerate(wanted["candidates"][:NUM_READ]):
            score, span = next(r for r in ranked if r[1][0] == block)
            assert best["candidate_scores"][row, place] == pytest.approx(
                score, abs=2e-5
            )
            assert best["candidate_starts"][row, place] == span[1]
            assert best["candidate_limits"][row, place] == span[2]


def test_blocks_without_a_wordpiece_have_no_span(model):
    outputs = {
        "read_scores": np.zeros((1, 1), "float32"),
        "block_positions": np.full((1, 1, 4), -1, "int32"),
        "span_scores": np.ones((1, 1, 4, 2), "float32"),
        "allowed": np.zeros((1, 1, 4, 2), bool),
    }
    best = _numpy(best_spans(outputs, num_best=2))
    assert best["candidate_starts"].tolist() == [[-1]]
    assert best["candidate_limits"].tolist() == [[-1]]
    assert best["nbest_starts"].tolist() == [[-1, -1]]
    assert best["nbest_limits"].tolist() == [[-1, -1]]
    assert np.isfinite(best["confidence"]).all()


def test_another_retrievers_blocks_are_read_instead(model):
    inputs = {
        **_pack(QUERIES[:2]),
        "candidate_ids": np.array([[4, 0, 2, 1], [1, 3, 5, 7]], "int32"),
        "candidate_scores": np.array(
            [[3.0, 2.0, 1.0, 0.5], [9.0, 1.0, 0.5, 0.25]], "float32"
        ),
    }
    outputs = _numpy(model(inputs))
    np.testing.assert_array_equal(
        outputs["read_ids"], inputs["candidate_ids"][:, :3]
    )
    for row in range(2):
        for place in range(3):
            block = int(outputs["read_ids"][row, place])
            wanted = _slow_spans(
                model,
                QUERIES[row],
                block,
                float(inputs["candidate_scores"][row, place]),
                [],
            )
            assert outputs["span_scores"][row, place][
                outputs["allowed"][row, place]
            ].max() == pytest.approx(
                max(score for score, _ in wanted.values()), abs=2e-5
            )


def test_scann_gives_what_brute_force_gives(make_model, model, answers):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("ScaNN's op needs the TensorFlow backend")
    from realm_tf.retrieval.scann import Scann

    embeddings = np.asarray(model.index.embeddings)
    approximate = make_model(index=Scann.build, embeddings=embeddings)
    exact = make_model()
    for training in (False, True):
        found = _numpy(approximate(_example(answers), training=training))
        wanted = _numpy(exact(_example(answers), training=training))
        assert found.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_allclose(
                found[name], wanted[name], atol=2e-5, err_msg=name
            )
    approximate.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    loss = approximate.train_on_batch(_example(answers), return_dict=True)[
        "loss"
    ]
    assert loss == pytest.approx(_slow_loss(exact, answers), abs=1e-5)
    # The embeddings that train it are no part of what is learned.
    np.testing.assert_array_equal(
        np.asarray(approximate._embeddings), embeddings
    )


def test_more_candidates_than_blocks_are_all_blocks(make_model):
    model = make_model(num_candidates=5000, num_reader_blocks=5000)
    assert model.num_candidates == model.num_reader_blocks == len(BODIES)
    outputs = _numpy(model(_pack(QUERIES[:1])))
    assert sorted(outputs["read_ids"][0]) == list(range(len(BODIES)))


def test_what_does_not_fit_is_refused(make_model):
    with pytest.raises(InputError, match="num_reader_blocks=0"):
        make_model(num_reader_blocks=0)
    with pytest.raises(ValueError, match="Received: 7 and 8"):
        make_model(index=lambda embeddings: BruteForce(embeddings[:7]))
