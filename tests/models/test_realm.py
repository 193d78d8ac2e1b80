"""RealmModel against a slow recomputation, example by example."""

import contextlib

import keras
import loss_oracle as oracle
import numpy as np
import pytest

from realm_tf.models import realm
from realm_tf.models.block_table import BlockTable
from realm_tf.models.cpu_operations import only_for_this_process
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.retrieval.brute_force import BruteForce

CLS, SEP, MASK = 2, 3, 4
BODIES = [
    [10, 11, 12, 13, 14],
    [20, 21, 22],
    [30, 31, 32, 33, 34, 35],
    [10, 11, 12, 13, 14],  # says what block 0 says
    [40],
    [41, 42, 43, 10, 11],
    [20, 21, 22, 44],  # holds all of block 1's sentence
    [45, 46, 30, 47],
]
TITLES = [[50], [51, 52], [53], [54], [], [55, 56], [57], [58]]
ARTICLES = [0, 0, 1, 2, 3, 3, 4, 1]
# (sentence, first masked, after the last masked, block id)
SENTENCES = [
    ([20, 21, 22], 1, 2, 1),
    ([30, 31, 32, 33, 34, 35], 2, 5, 2),
    ([10, 12], 0, 1, -1),
    ([48, 49, 40], 0, 2, 4),
]
QUERY_LENGTH, MAX_MASKED = 9, 3
NUM_RETRIEVED = 3
SCALE = 0.5
JIT = keras.backend.backend() == "jax"


def _pad(rows, length, value=0):
    return np.array([r + [value] * (length - len(r)) for r in rows], "int32")


def make_batch(sentences=SENTENCES):
    queries, positions, ids, weights = [], [], [], []
    for sentence, start, limit, _ in sentences:
        masked = sentence[:start] + [MASK] * (limit - start) + sentence[limit:]
        queries.append([CLS, *masked, SEP])
        positions.append([1 + place for place in range(start, limit)])
        ids.append(sentence[start:limit])
        weights.append([1] * (limit - start))
    token_ids = _pad(queries, QUERY_LENGTH)
    return {
        "token_ids": token_ids,
        "padding_mask": (token_ids > 0).astype("int32"),
        "mask_positions": _pad(positions, MAX_MASKED),
        "mask_ids": _pad(ids, MAX_MASKED),
        "mask_weights": _pad(weights, MAX_MASKED),
        "sentence_ids": _pad([s for s, *_ in sentences], 7, -1),
        "block_id": np.array([b for *_, b in sentences], "int32"),
    }


@pytest.fixture(scope="module")
def make_model(make_encoder, randomize):
    def make(*, share=False, dropout=0.0, num_spare=3, **arguments):
        def encoder():
            return make_encoder(num_layers=1, dropout=dropout)

        def tower(seed):
            tower = Embedder(encoder(), projection_dim=4, dropout=dropout)
            randomize(tower, seed=seed)
            return tower

        query_embedder = tower(0)
        block_embedder = query_embedder if share else tower(1)
        reader = KnowledgeAugmentedEncoder(encoder())
        randomize(reader, seed=2)
        embeddings = np.random.default_rng(7).normal(size=(len(BODIES), 4))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(realm, "NUM_SPARE", num_spare)
            return realm.RealmModel(
                query_embedder,
                block_embedder,
                reader,
                BruteForce(embeddings),
                BlockTable(
                    _pad(BODIES, 6),
                    list(map(len, BODIES)),
                    title_ids=_pad(TITLES, 2),
                    title_lengths=list(map(len, TITLES)),
                    article_numbers=ARTICLES,
                ),
                cls_id=CLS,
                sep_id=SEP,
                score_scale=SCALE,
                **{
                    "num_retrieved": NUM_RETRIEVED,
                    "max_block_length": 9,
                    "max_joint_length": 14,
                    **arguments,
                },
            )

    return make


# === The slow recomputation ===


def _inputs(ids, segments, **more):
    # Of one length, so that JAX compiles once.
    return {
        "token_ids": _pad([ids], 16),
        "segment_ids": _pad([segments], 16),
        "padding_mask": _pad([[1] * len(ids)], 16),
        **more,
    }


def _embed_block(model, title, body):
    body = body[: model.max_block_length - 3 - len(title)]
    first, second = model.block_segment_ids
    ids = [CLS, *title, SEP, *body, SEP]
    segments = [first] * (len(title) + 2) + [second] * (len(body) + 1)
    return np.asarray(model.block_embedder(_inputs(ids, segments)))[0]


def _may_read(sentence, block_id, block, better):
    if block == block_id or any(BODIES[b] == BODIES[block] for b in better):
        return False
    return not _holds(block, sentence)


def _holds(block, ids):
    body, width = BODIES[block], len(ids)
    return any(body[p : p + width] == ids for p in range(len(body) - width + 1))


def _slow(model, example):
    sentence, start, limit, block_id = example
    query = [CLS, *sentence, SEP]
    query[1 + start : 1 + limit] = [MASK] * (limit - start)
    embedding = SCALE * np.asarray(
        model.query_embedder(_inputs(query, [0] * len(query)))
    )[0].astype("float64")
    order = np.argsort(-(np.asarray(model.index.embeddings) @ embedding))
    order = order[: model.num_searched].tolist()
    kept = [
        block
        for place, block in enumerate(order)
        if _may_read(sentence, block_id, block, order[:place])
    ]
    kept = kept[:NUM_RETRIEVED]
    scores, log_probs = [], []
    for title, body in [([], []), *((TITLES[b], BODIES[b]) for b in kept)]:
        scores.append(_embed_block(model, title, body) @ embedding)
        body = body[: model.join_bert.max_length - 1 - len(query)]
        logits = model.knowledge_augmented_encoder(
            _inputs(
                [*query, *body, SEP],
                [0] * len(query) + [1] * (len(body) + 1),
                mask_positions=_pad([list(range(1 + start, 1 + limit))], 3),
            )
        )
        log_probs.append(
            [
                oracle.log_softmax(row)
                for row in np.asarray(logits)[0, : limit - start]
            ]
        )
    # (1 + k), (1 + k, m, v), (m,)
    return {
        "kept": kept,
        "scores": scores,
        "log_probs": np.array(log_probs),
        "gold": np.array(sentence[start:limit]),
    }


def _expected(model):
    """Loss and metrics of the batch."""
    found = [_slow(model, example) for example in SENTENCES]
    total = num_masked = correct = utility = 0
    null, entropy, recall, answers = [], [], [], []
    for (*_, block_id), each in zip(SENTENCES, found, strict=True):
        scores, gold = each["scores"], each["gold"]
        priors = oracle.log_softmax(scores)
        of_gold = each["log_probs"][:, np.arange(len(gold)), gold]
        num_masked += len(gold)
        everything = np.ones(len(gold)), np.ones(len(scores))
        token_form, marginal = (
            oracle.marginal(scores, of_gold, *everything, form)
            for form in ("token", model.marginal_likelihood.marginalization)
        )
        total += marginal.sum()
        marginals = np.einsum(
            "k,kmv->mv", np.exp(priors), np.exp(each["log_probs"])
        )
        correct += (marginals.argmax(-1) == gold).sum()
        utility += (token_form - of_gold[0]).sum()
        null.append(np.exp(priors[0]))
        entropy.append(-(np.exp(priors) * priors).sum())
        answers.append(any(_holds(b, gold.tolist()) for b in each["kept"]))
        if block_id >= 0:
            recall.append(
                any(ARTICLES[b] == ARTICLES[block_id] for b in each["kept"])
            )
    return {
        "loss": -total / num_masked,
        "mlm_accuracy": correct / num_masked,
        "retrieval_utility": utility / num_masked,
        "null_probability": np.mean(null),
        "entropy": np.mean(entropy),
        "article_recall": np.mean(recall),
        "answer_recall": np.mean(answers),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"share": True, "block_segment_ids": (0, 0)},
        pytest.param({"marginalization": "span"}, marks=pytest.mark.slow),
        pytest.param({"num_spare": 0}, marks=pytest.mark.slow),
    ],
    ids=["separate", "shared", "span", "no-spare"],
)
def test_loss_and_metrics(make_model, arguments):
    model = make_model(**arguments)
    model.compile(jit_compile=JIT)
    found = model.evaluate(
        make_batch(), batch_size=len(SENTENCES), verbose=0, return_dict=True
    )
    expected = _expected(model)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-5), name


def test_training_predicts_one_query_in_eight(make_model):
    model, batch = make_model(), make_batch()
    expected = np.asarray(model(batch)["predicted_ids"])
    outputs = model(batch, training=True)
    np.testing.assert_array_equal(outputs["predicted_ids"], expected[:1])
    model.compute_loss(batch, y_pred=outputs)
    (found,) = (m.result() for m in model.metrics if m.name == "mlm_accuracy")
    is_masked = batch["mask_weights"][0] > 0
    correct = expected[0][is_masked] == batch["mask_ids"][0][is_masked]
    assert float(found) == pytest.approx(correct.mean())


def test_dropout_does_not_reach_the_search(make_model):
    keras.utils.set_random_seed(0)
    model = make_model(dropout=0.5, num_spare=0)
    batch = make_batch()
    expected = np.asarray(model(batch)["candidate_ids"])
    priors = set()
    for _ in range(5):
        found = model(batch, training=True)
        np.testing.assert_array_equal(found["candidate_ids"], expected)
        priors.add(np.asarray(found["retrieval_log_probs"]).tobytes())
    # The scores that are learned from have it.
    assert len(priors) == 5


def test_a_subclass_retrieves_otherwise(make_model, monkeypatch):
    model = make_model(num_spare=0)
    # Fewer than `num_retrieved`.
    found = np.array([[7, 1, -1], [0, 5, -1], [4, 2, -1], [6, 3, -1]], "int32")
    monkeypatch.setattr(model, "retrieve", lambda inputs, queries: found)
    outputs = model(make_batch())
    is_candidate = np.asarray(outputs["candidate_mask"])[:, 1:]
    # Block 1 is that of the first sentence, and there is no third block.
    assert (
        is_candidate.tolist()
        == [[True, False, False]] + [[True, True, False]] * 3
    )
    kept = np.asarray(outputs["candidate_ids"])[is_candidate]
    assert kept.tolist() == [7, 0, 5, 4, 2, 6, 3]


@pytest.mark.skipif(JIT, reason="padding costs nothing on TensorFlow alone")
@pytest.mark.slow
def test_embedding_together_changes_nothing(make_model):
    weights, losses = [], []
    for context in (contextlib.nullcontext, only_for_this_process):
        # So little dropout that nothing is dropped.
        model = make_model(share=True, dropout=1e-9)
        model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
        with context():
            losses += [model.train_on_batch(make_batch()) for _ in range(2)]
        weights.append(model.query_embedder.get_weights())
    np.testing.assert_allclose(losses[:2], losses[2:], rtol=1e-5)
    before = make_model(share=True).query_embedder.get_weights()
    moved = 0
    for one, two, first in zip(*weights, before, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
        moved += np.abs(one - first).max() > 1e-4
    assert moved > 5


def test_a_refresh_is_searched_without_retracing(make_model):
    # All eight are searched: a block that is missing was ruled out.
    model = make_model(num_spare=5)
    model.compile(jit_compile=JIT)
    batch = make_batch()
    before = model.predict(batch, verbose=0)["candidate_ids"]
    embeddings = np.random.default_rng(8).normal(size=(len(BODIES), 4))
    traces = []
    call = model.call
    model.call = lambda *args, **kwargs: (
        traces.append(1),
        call(*args, **kwargs),
    )[1]
    model.index.prepare(embeddings)()
    outputs = model.predict(batch, verbose=0)
    after = outputs["candidate_ids"]
    assert not traces
    assert not np.array_equal(before, after)
    for row, example in enumerate(SENTENCES):
        kept = _slow(model, example)["kept"]
        assert after[row].tolist() == kept
        mask = [True, *[True] * len(kept)]
        assert outputs["candidate_mask"][row].tolist() == mask
    assert 1 not in after[0] and 6 not in after[0]
