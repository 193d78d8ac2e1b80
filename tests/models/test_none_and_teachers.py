"""The reader's losses with "none" and with teachers, recomputed slowly."""

import keras
import loss_oracle
import numpy as np
import open_qa_oracle as oracle
import pytest
from training_runs import values as values_of

from realm_tf.models.block_reading import Teachers
from realm_tf.models.fixed_weight import without_given

# A few steps: TensorFlow would trace the graph for longer than they take.
HOW = {"tensorflow": {"run_eagerly": True}, "jax": {"jit_compile": True}}[
    keras.backend.backend()
]
NONE = {"none_span": True}


def _step(model, batch):
    """Metrics of one step that subtracts the gradient, and what it moves."""
    parts = model.open_qa.query_embedder, model.open_qa.reader
    before = [values_of(part) for part in parts]
    model.compile(keras.optimizers.SGD(1.0), **HOW)
    metrics = model.train_on_batch(batch, return_dict=True)
    moves = [
        {path: after[path] - values[path] for path in values}
        for values, after in zip(before, map(values_of, parts), strict=True)
    ]
    return metrics, *moves


def _blocks_read(model, query, answers):
    """Of each block read: relevance and answer; scores alone, what is right."""
    row = oracle.answer(model, query, answers)
    num_read = model.num_reader_blocks
    for place, block in enumerate(row["candidates"][:num_read]):
        spans = oracle.spans_of(
            model.open_qa.reader, query, block, 0.0, answers
        )
        scores, correct = map(np.array, zip(*spans.values(), strict=True))
        yield row["scores"][place], row["has_answer"][place], scores, correct


def _none_row(model, query, answers):
    """Loss, and of each block known whether "none" is above its spans rightly."""
    blocks = list(_blocks_read(model, query, answers))
    priors = loss_oracle.log_softmax([each[0] for each in blocks])
    has_answer = [each[1] for each in blocks]
    everything = [np.ones(len(each[2]), bool) for each in blocks]
    joint = loss_oracle.none_loss(
        np.concatenate(
            [s + p for (_, _, s, _), p in zip(blocks, priors, strict=True)]
        ),
        np.concatenate([each[3] for each in blocks]),
        np.concatenate(everything),
        not any(has_answer),
    )
    known = [
        (loss_oracle.none_loss(s, c, m, not h), (s.max() < 0) == (not h))
        for (_, h, s, c), m in zip(blocks, everything, strict=True)
        if c.any() or not h
    ]
    of_blocks = np.mean([loss for loss, _ in known]) if known else 0.0
    return (joint + of_blocks) / 2, [right for _, right in known]


def test_none_of_all_blocks_and_of_each(make_model, answers, expected):
    model = make_model(none_weight=0.25, reader=NONE)
    # Wider than any span, in a block that is read.
    answers = list(answers)
    answers[4] = [
        next(
            oracle.BODIES[block][: oracle.MAX_WIDTH + 1]
            for block in expected[4]["candidates"][: oracle.NUM_READ]
            if oracle.LENGTHS[block] > oracle.MAX_WIDTH
        )
    ]
    rows = [
        oracle.answer(model, query, row)
        for query, row in zip(oracle.QUERIES, answers, strict=True)
    ]
    wanted, rightly = zip(
        *map(_none_row, [model] * len(rows), oracle.QUERIES, answers),
        strict=True,
    )
    rightly = sum(rightly, [])
    # Of that block nothing is known.
    assert len(rightly) == len(rows) * oracle.NUM_READ - 1
    assert min(wanted) > 0.01 and 0 < sum(rightly) < len(rightly)
    reader, retriever = (
        np.mean([row[name] for row in rows])
        for name in ("reader_loss", "retriever_loss")
    )
    loss = retriever + 0.75 * reader + 0.25 * np.mean(wanted)
    metrics, _, reader_moves = _step(model, oracle.batch(answers))
    for name, value in {
        "loss": loss,
        "reader_loss": reader,
        "none_loss": np.mean(wanted),
        "none_accuracy": np.mean(rightly),
    }.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5), name
    # What a softmax over spans does not feel is felt against "none".
    for path, move in reader_moves.items():
        if "key/bias" not in path and "pooled_dense" not in path:
            assert np.abs(move).max() > 1e-6, path


def test_none_does_not_move_the_retriever(make_model, answers):
    batch = oracle.batch(answers)
    _, alone, _ = _step(make_model(train_reader=False), batch)
    _, beside, _ = _step(make_model(none_weight=1.0, reader=NONE), batch)
    _, papers, _ = _step(make_model(reader=NONE), batch)
    differences = []
    for path, move in alone.items():
        np.testing.assert_allclose(beside[path], move, atol=1e-6)
        differences.append(np.abs(papers[path] - move).max())
    # The paper's loss of the reader does.
    assert max(differences) > 1e-3


def _hidden(answers, rows, **more):
    is_near_miss = np.isin(np.arange(len(answers)), rows)
    return {**oracle.batch(answers), "is_near_miss": is_near_miss, **more}


def test_near_misses_read_blocks_without_an_answer(
    make_model, answers, expected
):
    model = make_model(read_an_answer=True, none_weight=0.5, reader=NONE)
    # The last question is answered by all candidates but two.
    answers = list(answers)
    answers[5] = [oracle.BODIES[b][-1:] for b in expected[5]["candidates"][2:]]
    rows = [0, 2, 3, 5]
    plain, found = (
        oracle.to_numpy(model(batch, training=True))
        for batch in (oracle.batch(answers), _hidden(answers, rows))
    )
    for row, candidates in enumerate(plain["candidate_ids"]):
        if row in rows:
            without = candidates[~plain["has_answer"][row]][: oracle.NUM_READ]
            assert found["read_ids"][row, : len(without)].tolist() == (
                without.tolist()
            )
            assert not found["correct"][row].any()
            # The place of a third one stays empty.
            is_read = found["allowed"][row].any(axis=(1, 2))
            assert is_read.sum() == len(without) == (2 if row == 5 else 3)
            assert not (found["may_answer"][row] & is_read).any()
        else:
            np.testing.assert_array_equal(
                found["read_ids"][row], plain["read_ids"][row]
            )
    # The retriever learns as ever.
    for name in ("has_answer", "relevance_scores"):
        np.testing.assert_array_equal(found[name], plain[name])
    # "None" of the rest, and nothing is no number.
    metrics, _, moves = _step(model, _hidden(answers, rows))
    assert np.isfinite(metrics["loss"])
    assert all(np.isfinite(move).all() for move in moves.values())


def test_the_gold_block_is_no_near_miss(make_model, answers, expected):
    """Though no answer is found in it, and it is hidden with the others."""
    model = make_model(
        read_an_answer=True, gold="read", none_weight=1.0, reader=NONE
    )
    (row,) = (n for n, each in enumerate(answers) if each == [[59]])
    candidates = expected[row]["candidates"]
    gold = np.full(len(answers), -1, "int32")
    gold[row] = candidates[1]
    plain = model({**oracle.batch(answers), "gold_ids": gold}, training=True)
    assert np.asarray(plain["may_answer"])[row].tolist() == [False, True, False]
    blocks = list(_blocks_read(model, oracle.QUERIES[row], answers[row]))
    blocks = [blocks[0], blocks[2]]
    own = [
        loss_oracle.none_loss(s, c, np.ones(len(s), bool), True)
        for _, _, s, c in blocks
    ]
    # All blocks read together teach nothing, nor does the gold one.
    one = {name: np.asarray(v)[[row]] for name, v in plain.items()}
    model.reset_metrics()
    model.compute_loss(y_pred=one)
    metrics = {m.name: float(m.result()) for m in model.metrics}
    assert metrics["none_loss"] == pytest.approx(np.mean(own) / 2, abs=1e-5)
    found = model(_hidden(answers, [row], gold_ids=gold), training=True)
    assert np.asarray(found["read_ids"])[row].tolist() == [
        candidates[place] for place in (0, 2, 3)
    ]


# A wider one of another size, and a narrow one.
TEACHERS = (
    {"max_span_width": 6, "none_span": True},
    {"max_span_width": 3, "none_span": True},
)


def _teachers(make_encoder, randomize, *arguments):
    sizes = {"num_layers": 2, "hidden_dim": 12, "num_heads": 3}, {}
    readers = [
        oracle.make_reader(make_encoder(dropout=0.0, **size), **each)
        for size, each in zip(sizes, arguments, strict=True)
    ]
    for seed, reader in enumerate(readers):
        randomize(reader, seed=11 + seed)
    return readers


def _taught_rows(model, teachers, temperature, *, with_none):
    """The loss of each question over the spans that all readers have."""
    for query in oracle.QUERIES:
        candidates, scores = oracle.ranking(model, query)
        candidates = candidates[: model.num_reader_blocks]
        priors = loss_oracle.log_softmax(scores[candidates])
        rows = []
        for reader in (model.open_qa.reader, *teachers):
            spans = {
                (block, *place): score
                for block, prior in zip(candidates, priors, strict=True)
                for place, (score, _) in oracle.spans_of(
                    reader, query, block, prior, []
                ).items()
            }
            rows.append({**spans, "none": 0.0} if with_none else spans)
        common = set.intersection(*map(set, rows))
        own, *others = (
            np.array([row[name] for name in sorted(common, key=str)])
            for row in rows
        )
        everything = np.ones(len(own), bool)
        yield loss_oracle.teacher_loss(own, others, everything, temperature)


@pytest.mark.parametrize(
    ("reads_titles", "with_none"), [(True, True), (False, False)]
)
def test_teachers_and_answers_are_weighed(
    make_model, make_encoder, randomize, answers, reads_titles, with_none
):
    teachers = _teachers(
        make_encoder,
        randomize,
        {**TEACHERS[0], "none_span": with_none},
        {**TEACHERS[1], "reads_titles": reads_titles},
    )
    student = make_model(
        teachers=Teachers(teachers, 0.75, temperature=2.0),
        none_weight=0.5,
        reader={**NONE, "reads_titles": reads_titles},
    )
    by_answers = [
        oracle.answer(student, query, row)
        for query, row in zip(oracle.QUERIES, answers, strict=True)
    ]
    reader, retriever = (
        np.mean([row[name] for row in by_answers])
        for name in ("reader_loss", "retriever_loss")
    )
    none = np.mean(
        [
            _none_row(student, query, row)[0]
            for query, row in zip(oracle.QUERIES, answers, strict=True)
        ]
    )
    taught = list(_taught_rows(student, teachers, 2.0, with_none=with_none))
    assert min(taught) > 0.01
    expected = retriever + 0.25 * (reader + none) / 2 + 0.75 * np.mean(taught)
    before = [values_of(each) for each in teachers]
    found, _, moves = _step(student, oracle.batch(answers))
    for name, value in {
        "loss": expected,
        "reader_loss": reader,
        "none_loss": none,
        "teacher_loss": np.mean(taught),
    }.items():
        assert found[name] == pytest.approx(value, abs=1e-4), name
    assert max(np.abs(move).max() for move in moves.values()) > 1e-4
    # They do not learn, and are in files of their own.
    kept = {id(v) for v in without_given(student.variables)}
    assert not kept & {id(v) for each in teachers for v in each.variables}
    assert {id(v) for v in student.open_qa.reader.variables} <= kept
    for values, each in zip(before, teachers, strict=True):
        for path, value in values_of(each).items():
            np.testing.assert_array_equal(value, values[path])
