"""Answers without any document: the masked LM alone, over the null block.

It measures what an encoder knows by heart, as the paper's closed-book
baseline (T5) does, with REALM's own encoder.
"""

import math
import re

import numpy as np
from scipy import special

from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import Prediction
from realm_tf.artifacts import matching
from realm_tf.artifacts import question_files as data
from realm_tf.errors import InputError
from realm_tf.text.packing import pad
from realm_tf.text.tokenizer import to_text

# [CLS], [unused7]; "[" alone is a wordpiece of text.
_SPECIAL = re.compile(r"\[[^\[\]]+\]")
# Before and after the masks: "?" and ".".
_NUM_ADDED = 2


def masked_lm_encoder(loaded, *, model: str = "The model"):
    """The knowledge-augmented encoder, with its masked-LM head.

    Args:
        loaded: `LoadedModel`.
        model: str. Its name in a message. Defaults to `"The model"`.

    Returns:
        `KnowledgeAugmentedEncoder`.

    Raises:
        InputError: if the model has no such head.
    """
    encoder = loaded.model.knowledge_augmented_encoder
    if encoder is None:
        raise InputError(
            f"{model} has no masked-LM head, so it cannot say what [MASK] "
            "stands for: give a directory that `realm pretrain` wrote (fine-"
            "tuning leaves the head out), or `realm import` of a pre-trained "
            "checkpoint."
        )
    return encoder


class ClosedBook:
    """Answers lists of questions with the masked LM alone.

        [CLS] question ? [MASK] ... [MASK] . [SEP] [SEP]

    For each length n of an answer, n masks are filled, the most certain one
    first, each filling seen by the next; the score is the mean
    log-probability of what was filled in, and the best n wins (confidence-
    based decoding and length by average log-probability as in X-FACTR).

    The masks are in the query, for that is where pre-training puts them;
    the block is the null block, empty, as pre-training's first candidate is.
    They come after the question, as a sentence of its own: inside of it
    nothing says where an answer would go, and a "?" in front and a "." behind
    tell the encoder that both end. (A "?" that is there is not doubled.)

    An answer is never a special wordpiece, and begins with the beginning of a
    word.

    Args:
        loaded: `LoadedModel` with a masked-LM head; `realm_tf.load` of what
            `realm pretrain` wrote.
        max_answer_length: int. Wordpieces. Defaults to `5`, the longest
            answer of NQ-open in words (our choice).
        batch_size: int. Questions computed at once. Defaults to `16`.

    Raises:
        InputError: if the model has no masked-LM head, or its encoder is too
            short for the longest question.

    References:
        [Roberts et al., 2020](https://arxiv.org/abs/2002.08910), closed-book
        question answering; [Jiang et al., 2020](
        https://arxiv.org/abs/2010.06189), section on multi-token decoding.
    """

    def __init__(
        self, loaded, *, max_answer_length: int = 5, batch_size: int = 16
    ):
        import keras

        from realm_tf.models.knowledge_augmented_encoder import MaskedLmModel

        knowledge_augmented_encoder = masked_lm_encoder(loaded)
        # The null block adds its [SEP].
        matching.check_length(
            data.MAX_QUERY_LENGTH + _NUM_ADDED + max_answer_length + 1,
            knowledge_augmented_encoder.encoder.max_sequence_length,
            what="Question and answer",
            mend="give a model with a longer one or a smaller "
            "max_answer_length",
        )
        self._tokenizer = tokenizer = loaded.tokenizer
        self._max_answer_length = max_answer_length
        self._batch_size = batch_size
        self._model = MaskedLmModel(
            knowledge_augmented_encoder, sep_id=tokenizer.sep_id
        )
        # XLA on a CPU takes longer to compile than this to compute.
        self._model.compile(jit_compile=keras.backend.backend() == "jax")
        pieces = tokenizer.vocabulary
        self._allowed = np.array([not _SPECIAL.fullmatch(p) for p in pieces])
        self._allowed_first = self._allowed & np.array(
            [not piece.startswith("##") for piece in pieces]
        )
        self._question_mark = tokenizer.tokenize("?").ids
        self._end = [*tokenizer.tokenize(".").ids, tokenizer.sep_id]

    def predict(self, questions: list[str]) -> list[Prediction]:
        """Answers each question.

        Args:
            questions: list of str. An empty one has no answer. Longer ones
                than `artifacts.question_files.MAX_QUERY_LENGTH` are cut.

        Returns:
            list of `Prediction`, in the order of the questions. `score` is
            the mean log-probability of the wordpieces, in nats, `confidence`
            its exponential; without a block, `block_id` is -1 and `retrieved`
            and `candidates` are empty.
        """
        vocabulary = self._tokenizer.vocabulary
        predictions = [NO_ANSWER] * len(questions)
        for places, rows in data.batches_by_length(
            questions, self._tokenizer, self._batch_size
        ):
            filled = [
                self._fill(rows, number)
                for number in range(1, self._max_answer_length + 1)
            ]
            for place, options in zip(
                places, zip(*filled, strict=True), strict=True
            ):
                score, ids = max(options)
                predictions[place] = Prediction(
                    to_text([vocabulary[each] for each in ids]),
                    score,
                    confidence=math.exp(score),
                )
        return predictions

    def _fill(self, rows, num_masks):
        """(score, wordpieces) of an answer of so many to each question."""
        questions = [query[:-1] for query in rows]
        for question in questions:
            if question[-1:] != self._question_mark:
                question += self._question_mark
        # (b, n)
        positions = np.array([*map(len, questions)])[:, None]
        positions = positions + np.arange(num_masks)
        masks = [self._tokenizer.mask_id] * num_masks
        inputs = data.pack_queries(
            [[*question, *masks, *self._end] for question in questions],
            self._tokenizer.pad_id,
            # Few, so that few shapes are compiled.
            [self._width(limit) for limit in data.BUCKETS],
        )
        inputs["mask_positions"] = pad(positions, self._max_answer_length)
        ids = np.zeros_like(positions)
        log_probs = np.zeros(positions.shape)
        is_open = np.ones(positions.shape, bool)
        row = np.arange(len(rows))
        for _ in range(num_masks):
            best_ids, best = self._predict(inputs, num_masks)
            here = row, np.where(is_open, best, -np.inf).argmax(1)
            ids[here], log_probs[here] = best_ids[here], best[here]
            is_open[here] = False
            inputs["token_ids"][row, positions[here]] = ids[here]
        return list(zip(log_probs.mean(1).tolist(), ids.tolist(), strict=True))

    def _predict(self, inputs, num_masks):
        """The best wordpiece of each mask and its log-probability."""
        logits = np.asarray(self._model.predict_on_batch(inputs))
        # (b, n, v)
        logits = logits[:, :num_masks].astype("float32")
        log_probs = special.log_softmax(logits, axis=-1)
        log_probs[:, :, ~self._allowed] = -np.inf
        log_probs[:, 0, ~self._allowed_first] = -np.inf
        return log_probs.argmax(-1), log_probs.max(-1)

    def _width(self, query_length):
        return query_length + _NUM_ADDED + self._max_answer_length
