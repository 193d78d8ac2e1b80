"""Reader, embedder and open QA against Hugging Face's REALM.

The goldens come from transformers 4.40.2 (`RealmReader`, `RealmForOpenQA`)
with torch 2.13, float32, dropout off: random weights, none of them neutral,
of a BERT of 2 layers of width 32. Vocabularies are cut to what is read.
"""

import pathlib

import keras
import numpy as np
import pytest

from realm_tf.checkpoints import assignment
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.source import Layout
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.block_reading import best_spans
from realm_tf.models.block_table import BlockTable
from realm_tf.models.embedder import Embedder
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.models.retrieve_and_read import RetrieveAndRead
from realm_tf.retrieval.brute_force import BruteForce

TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def reader_goldens():
    with np.load(TESTDATA / "hf_realm_reader.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def open_qa_goldens():
    with np.load(TESTDATA / "hf_realm_open_qa.npz") as file:
        return dict(file)


def _encoder(goldens):
    tensors = {
        name.removeprefix("bert/"): array
        for name, array in goldens.items()
        if name.startswith("bert/")
    }
    table = tensors["embeddings.word_embeddings.weight"]
    positions = tensors["embeddings.position_embeddings.weight"]
    encoder = BertEncoder(
        len(table), 2, 2, 32, 64, max_sequence_length=len(positions)
    )
    assignment.assign(
        encoder,
        hugging_face.NAMES.mapping(Layout("bert", ""), 2),
        assignment.Tensors(tensors, "goldens"),
    )
    return encoder


def _set(layer, goldens, name):
    layer.set_weights([goldens[f"{name}.weight"].T, goldens[f"{name}.bias"]])


@pytest.fixture(scope="module")
def reader(reader_goldens):
    reader = Reader(_encoder(reader_goldens), span_hidden_dim=32)
    scorer = reader.get_layer("span_scorer")
    for layer, name in (
        (scorer.endpoints, "dense_intermediate"),
        (scorer.layer_norm, "layer_normalization"),
        (scorer.score, "dense_output"),
    ):
        _set(layer, reader_goldens, f"qa_outputs.{name}")
    return reader


@pytest.fixture(scope="module")
def embedder(open_qa_goldens):
    embedder = Embedder(_encoder(open_qa_goldens), projection_dim=16)
    for layer, name in (
        ("projection", "dense"),
        ("projection_layer_norm", "LayerNorm"),
    ):
        _set(embedder.get_layer(layer), open_qa_goldens, f"cls.{name}")
    return embedder


def _retrieve_and_read(reader, embedder, goldens, case):
    """8 blocks in the loss, 5 read; the peer's joined inputs give bodies."""
    num_blocks = len(goldens["block_emb"])
    token_ids = np.zeros((num_blocks, 72), "int32")
    lengths = np.zeros(num_blocks, "int32")
    for block, ids, mask, segments in zip(
        goldens[f"{case}/out/retrieved_block_ids"],
        goldens[f"{case}/reader_in/input_ids"],
        goldens[f"{case}/reader_in/attention_mask"],
        goldens[f"{case}/reader_in/token_type_ids"],
        strict=True,
    ):
        body = ids[(mask * segments).astype(bool)][:-1]
        token_ids[block, : len(body)] = body
        lengths[block] = len(body)
    vocabulary_size = reader.encoder.vocabulary_size
    return RetrieveAndRead(
        OpenQa(embedder, embedder, reader),
        BruteForce(goldens["block_emb"]),
        BlockTable(token_ids, lengths),
        # The peer does not ask whether a word goes on.
        is_continuation=np.zeros(vocabulary_size, bool),
        sep_id=int(goldens[f"{case}/in/input_ids"][0, -1]),
        num_candidates=8,
        num_reader_blocks=5,
    )


@pytest.mark.parametrize(
    # The answer is in a block that is read; only in one that is not.
    "case",
    [0, 2],
)
def test_open_qa_is_the_peers(reader, embedder, open_qa_goldens, case):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("72 wordpieces at most: inputs must be trimmed to that")
    goldens = {
        name.removeprefix(f"{case}/"): array
        for name, array in open_qa_goldens.items()
    }
    model = _retrieve_and_read(reader, embedder, open_qa_goldens, case)
    ids = goldens["in/input_ids"].astype("int32")
    outputs = model(
        {
            "token_ids": ids,
            "padding_mask": np.ones_like(ids),
            "answer_ids": goldens["answer_ids"][None].astype("int32"),
        }
    )
    np.testing.assert_array_equal(
        np.asarray(outputs["candidate_ids"])[0],
        goldens["out/retrieved_block_ids"],
    )
    np.testing.assert_allclose(
        np.asarray(outputs["relevance_scores"])[0],
        goldens["out/retrieved_logits"],
        **TOLERANCE,
    )
    np.testing.assert_array_equal(
        np.asarray(outputs["has_answer"])[0], goldens["reader_in/has_answers"]
    )
    joined = goldens["reader_in/input_ids"][:5]
    length = np.asarray(outputs["joint_ids"]).shape[2]
    np.testing.assert_array_equal(
        np.asarray(outputs["joint_ids"])[0],
        joined[:, :length] * (goldens["reader_in/attention_mask"][:5, :length]),
    )
    loss = model.compute_loss(y_pred=outputs)
    np.testing.assert_allclose(float(loss), goldens["out/loss"], **TOLERANCE)
    metrics = {m.name: float(m.result()) for m in model.metrics}
    for name in ("retriever_loss", "reader_loss"):
        np.testing.assert_allclose(
            metrics[name], goldens[f"out/{name}"], **TOLERANCE
        )
    best = {
        k: np.asarray(v) for k, v in best_spans(outputs, num_best=1).items()
    }
    np.testing.assert_allclose(
        best["candidate_scores"][0], goldens["out/span_logits"], **TOLERANCE
    )
    block = best["nbest_positions"][0, 0]
    assert block == goldens["out/block_idx"]
    positions = np.asarray(outputs["block_positions"])[0, block]
    found = np.asarray(outputs["joint_ids"])[0, block][
        (positions >= best["nbest_starts"][0, 0])
        & (positions < best["nbest_limits"][0, 0])
    ]
    np.testing.assert_array_equal(found, goldens["out/predicted_answer_ids"])
