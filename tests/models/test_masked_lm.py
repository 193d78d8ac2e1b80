import numpy as np
import pytest
from one_row import one_row

from realm_tf.data.masked_lm_warm_up import KINDS
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.knowledge_augmented_encoder import MaskedLmModel

SEP = 3
# [CLS] 11 [MASK] 13 [SEP] with a block, without, and with 12 left visible.
BATCH = {
    "token_ids": np.array(
        [[2, 11, 4, 13, 3], [2, 4, 14, 3, 0], [2, 11, 12, 13, 3]]
    ),
    "padding_mask": np.array([[1] * 5, [1, 1, 1, 1, 0], [1] * 5]),
    "mask_positions": np.array([[2, 0], [1, 0], [2, 1]]),
    "mask_ids": np.array([[12, 0], [15, 0], [12, 11]]),
    "mask_weights": np.array([[1, 0], [1, 0], [1, 1]]),
    "block_token_ids": np.array([[21, 22, 23], [0, 0, 0], [24, 0, 0]]),
    "block_lengths": np.array([3, 0, 1]),
    "block_kind": np.array([1, 0, 3]),
}
# The same rows, joined by hand.
JOINED = [
    ([2, 11, 4, 13, 3, 21, 22, 23, 3], 5),
    ([2, 4, 14, 3, 3], 4),
    ([2, 11, 12, 13, 3, 24, 3], 5),
]


@pytest.fixture
def model(make_encoder, randomize):
    encoder = KnowledgeAugmentedEncoder(make_encoder())
    randomize(encoder, seed=1)
    model = MaskedLmModel(encoder, sep_id=SEP, block_kinds=KINDS)
    model.compile()
    return model


def _log_probs(model, row):
    """By the encoder, of one row that was joined by hand."""
    tokens, query_length = JOINED[row]
    logits = model.knowledge_augmented_encoder(
        one_row(
            tokens,
            [int(i >= query_length) for i in range(len(tokens))],
            mask_positions=BATCH["mask_positions"][[row]],
        )
    )
    logits = np.asarray(logits, "float64")[0]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_loss_and_accuracies_of_given_blocks(model):
    losses, correct = [], {}
    # What is predicted without a block is right there.
    mask_ids = BATCH["mask_ids"].copy()
    mask_ids[1] = _log_probs(model, 1).argmax(axis=1)
    batch = {**BATCH, "mask_ids": mask_ids}
    for row in range(3):
        log_probs = _log_probs(model, row)
        for place in np.flatnonzero(BATCH["mask_weights"][row]):
            wordpiece = mask_ids[row, place]
            losses.append(-log_probs[place, wordpiece])
            correct[row, place] = log_probs[place].argmax() == wordpiece
    found = model.evaluate(batch, batch_size=3, verbose=0, return_dict=True)
    assert found == pytest.approx(
        {
            "loss": np.mean(losses),
            "accuracy_own_block": float(correct[0, 0]),
            "accuracy_null_block": 1.0,
            # Its wordpieces are visible.
            "accuracy_other_block": 0.0,
            "accuracy_answer_block": 0.0,
        },
        abs=1e-5,
    )
