"""Masked sentences with what is retrieved for them, for people to read."""

import keras
import numpy as np

from realm_tf import metrics
from realm_tf.text.tokenizer import to_text
from realm_tf.training.training_log import steps_done

# Wordpieces of a block that are shown (our choice).
_NUM_SHOWN = 32
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_|[]#"} | {"<": "&lt;"})


class RetrievalSamples(keras.callbacks.Callback):
    """Shows the same few sentences every so many steps, before the first too.

    The model is run without training: weights, metrics and the state of the
    random generators stay as they are.

    Args:
        batch: dict of arrays. A few rows of what the model is trained on.
        vocabulary: list of str. Wordpieces in the order of their ids.
        write: function of (name, text, step=...) that takes each sample's
            Markdown, such as that of `text_writer`.
        every_steps: int. They are shown when `fit` ends, too.
    """

    def __init__(
        self,
        batch: dict,
        vocabulary: list[str],
        write,
        *,
        every_steps: int,
    ):
        super().__init__()
        self._batch = batch
        self._vocabulary = vocabulary
        self._write = write
        self._every_steps = every_steps
        self._step = 0
        self._written = None

    def on_train_begin(self, logs=None):
        self._step = steps_done(self.model)

    def on_train_batch_begin(self, batch, logs=None):
        if self._step % self._every_steps == 0:
            self._write_samples()

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1

    def on_train_end(self, logs=None):
        self._write_samples()

    def _write_samples(self):
        if self._step == self._written:
            return
        outputs = self.model.predict_on_batch(self._batch)
        candidate_ids = np.asarray(outputs["candidate_ids"])
        texts = format_samples(
            outputs,
            self._batch,
            self.model.block_table.contents(candidate_ids),
            self._vocabulary,
            marginalization=self.model.marginal_likelihood.marginalization,
        )
        for number, text in enumerate(texts):
            self._write(f"retrieval/{number}", text, step=self._step)
        self._written = self._step


def text_writer(directory: str):
    """A function of (name, text, step=...) that writes text for TensorBoard.

    Args:
        directory: str. Made if need be.
    """
    import tensorflow as tf

    writer = tf.summary.create_file_writer(directory)

    def write(name, text, *, step):
        with writer.as_default(step=step):
            tf.summary.text(name, text)
        writer.flush()

    return write


def format_samples(
    outputs: dict,
    batch: dict,
    blocks: dict,
    vocabulary: list[str],
    *,
    marginalization: str,
) -> list[str]:
    """Sentences with their candidates as Markdown.

    Candidates are in a table, the null block first, then by p(z | x), with
    `metrics.retrieval_gradient` and the beginning of their text.

    Args:
        outputs: dict of arrays. What `RealmModel` returns.
        batch: dict of arrays. What it was given.
        blocks: dict of arrays. Of the candidates, as `BlockTable.contents`.
        vocabulary: list of str. Wordpieces in the order of their ids.
        marginalization: str. The model's.

    Returns:
        list of str, one a row.
    """
    arrays = keras.tree.map_structure(np.asarray, (outputs, batch, blocks))
    outputs, batch, _ = arrays
    gradients = np.asarray(
        metrics.retrieval_gradient(
            outputs["log_probs"],
            outputs["retrieval_log_probs"],
            batch["mask_weights"].astype("float32"),
            outputs["candidate_mask"],
            marginalization=marginalization,
        )
    )
    return [
        _format_sample(
            *keras.tree.map_structure(lambda rows, row=row: rows[row], arrays),
            gradient,
            vocabulary,
        )
        for row, gradient in enumerate(gradients)
    ]


def _format_sample(outputs, batch, blocks, gradients, vocabulary):
    """One of `format_samples`, of its row of each array."""
    priors = outputs["retrieval_log_probs"]
    query = batch["token_ids"][batch["padding_mask"] > 0]
    is_masked = batch["mask_weights"] > 0
    positions = batch["mask_positions"][is_masked]
    masked, predicted = (
        ", ".join(
            f"**{_text(run, vocabulary)}**"
            for run in _runs(ids[is_masked], positions)
        )
        for ids in (batch["mask_ids"], outputs["predicted_ids"])
    )
    null, *others = np.flatnonzero(outputs["candidate_mask"]).tolist()
    others.sort(key=lambda place: -priors[place])
    lines = [
        _text(query[1:-1], vocabulary),
        "",
        f"masked: {masked}; predicted: {predicted}",
        "",
        "| block | p(z given x) | r(z) | title | text |",
        "|--:|--:|--:|:--|:--|",
    ]
    for place in (null, *others):
        block_id, title, body = "null", "", ""
        if place:
            block_id = outputs["candidate_ids"][place - 1]
            title, body = _title_and_body(blocks, place - 1, vocabulary)
        lines.append(
            f"| {block_id} | {np.exp(priors[place]):.4f} "
            f"| {gradients[place]:+.4f} | {title} | {body} |"
        )
    return "\n".join(lines)


def _title_and_body(blocks, place, vocabulary):
    title = blocks["title_ids"][place][: blocks["title_lengths"][place]]
    body = blocks["token_ids"][place][: blocks["lengths"][place]]
    more = " …" if len(body) > _NUM_SHOWN else ""
    body = _text(body[:_NUM_SHOWN], vocabulary)
    return _text(title, vocabulary), f"{body}{more}"


def _text(ids, vocabulary):
    return to_text([vocabulary[i] for i in ids]).translate(_SPECIAL)


def _runs(ids, positions):
    """Ids of neighbours together: at [3, 4, 9], the first two and the last."""
    return np.split(ids, np.flatnonzero(np.diff(positions) != 1) + 1)
