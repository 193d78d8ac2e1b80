"""The masked LM alone, against a slow search over unpadded inputs."""

import keras
import numpy as np
import pytest
from one_row import one_row

from realm_tf.answering.closed_book import ClosedBook
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)

QUESTIONS = [
    "Where was Ada?",
    "who wrote organ music in the city of Leipzig in 1750",
    "What flows to Egypt?",
    "fire",
]
MAX_ANSWER_LENGTH = 3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def loaded(model_dir):
    """The tiny model with a masked-LM head, in memory."""
    loaded = model_directory.load(model_dir)
    keras.utils.set_random_seed(5)
    encoder = KnowledgeAugmentedEncoder(loaded.model.reader.encoder)
    random = np.random.default_rng(4)
    for variable in encoder.get_layer("masked_lm_head").weights:
        if "intermediate" in variable.path and len(variable.shape) > 1:
            variable.assign(random.normal(size=variable.shape))
        if variable.path.endswith("output_bias"):
            # So that what may not be an answer would often be the best one.
            bias = random.normal(size=variable.shape)
            for number, piece in enumerate(loaded.tokenizer.vocabulary):
                bias[number] += 3.0 * (piece in SPECIAL or piece == "##s")
            variable.assign(bias)
    loaded.model.knowledge_augmented_encoder = encoder
    return loaded


@pytest.fixture(scope="module")
def closed_book(loaded):
    return ClosedBook(loaded, max_answer_length=MAX_ANSWER_LENGTH, batch_size=3)


# === The slow search ===


def _log_probs(loaded, question, pieces):
    """log p of every wordpiece where `pieces` is [MASK], `{place: (v,)}`."""
    tokenizer = loaded.tokenizer
    text = question if question.endswith("?") else f"{question}?"
    asked = [tokenizer.cls_id, *tokenizer.tokenize(text).ids]
    ids = [tokenizer.vocabulary.index(piece) for piece in pieces]
    ids = [*asked, *ids, *tokenizer.tokenize(".").ids, tokenizer.sep_id]
    places = [len(asked) + n for n, p in enumerate(pieces) if p == "[MASK]"]
    logits = loaded.model.knowledge_augmented_encoder(
        # The null block is a [SEP] of segment 1.
        one_row(
            [*ids, tokenizer.sep_id],
            [0] * len(ids) + [1],
            mask_positions=np.array([places], "int32"),
        )
    )
    logits = np.asarray(logits)[0].astype("float64")
    total = np.log(np.exp(logits).sum(-1, keepdims=True))
    return {
        place - len(asked): row
        for place, row in zip(places, logits - total, strict=True)
    }


def _slow_fill(loaded, question, num_masks):
    pieces, scores = ["[MASK]"] * num_masks, []
    while "[MASK]" in pieces:
        options = [
            (row[number], place, piece)
            for place, row in _log_probs(loaded, question, pieces).items()
            for number, piece in enumerate(loaded.tokenizer.vocabulary)
            if piece not in SPECIAL and (place or not piece.startswith("##"))
        ]
        score, place, piece = max(options)
        pieces[place] = piece
        scores.append(score)
    return float(np.mean(scores)), pieces


def _slow_answer(loaded, question):
    return max(
        _slow_fill(loaded, question, n + 1) for n in range(MAX_ANSWER_LENGTH)
    )


def test_answers(loaded, closed_book):
    found = closed_book.predict(QUESTIONS)
    lengths = set()
    for question, prediction in zip(QUESTIONS, found, strict=True):
        score, pieces = _slow_answer(loaded, question)
        assert prediction.score == pytest.approx(score, abs=1e-4)
        assert prediction.confidence == pytest.approx(np.exp(score), abs=1e-5)
        text = " ".join(pieces).replace(" ##", "")
        for mark in ".?":
            text = text.replace(f" {mark}", mark)
        assert prediction.answer == text != ""
        assert prediction.block_id == -1
        assert prediction.start == prediction.limit == 0
        assert prediction.retrieved == prediction.candidates == []
        lengths.add(len(pieces))
    assert len({prediction.answer for prediction in found}) > 1
    assert lengths <= {1, 2, 3}


def test_any_batch_size_gives_the_same(loaded, closed_book):
    other = ClosedBook(
        loaded, max_answer_length=MAX_ANSWER_LENGTH, batch_size=1
    )
    empty, *found = other.predict([" ", *QUESTIONS])
    assert empty == NO_ANSWER
    for a, b in zip(found, closed_book.predict(QUESTIONS), strict=True):
        assert a.answer == b.answer
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_models_that_do_not_fit(model_dir):
    with pytest.raises(InputError, match="no masked-LM head.*realm pretrain"):
        ClosedBook(model_directory.load(model_dir))
    short = model_directory.load(model_dir)
    encoder = BertEncoder(
        vocabulary_size=short.tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=1,
        hidden_dim=4,
        intermediate_dim=4,
        max_sequence_length=71,
    )
    head = KnowledgeAugmentedEncoder(encoder)
    short.model.knowledge_augmented_encoder = head
    # 64 of the question, "?", 5 of the answer, "." and the block's [SEP].
    with pytest.raises(
        InputError, match="72 wordpieces long, the encoder takes 71"
    ):
        ClosedBook(short)
    ClosedBook(short, max_answer_length=4)
