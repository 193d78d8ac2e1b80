"""Masked sentences with the blocks retrieved for them, for people to read."""

import operator

import keras
import numpy as np

from realm_tf.text.tokenizer import to_text
from realm_tf.training.training_log import steps_done

# Wordpieces of a block that are shown (our choice).
_NUM_SHOWN = 32
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_|[]#"} | {"<": "&lt;"})


class RetrievalSamples(keras.callbacks.Callback):
    """Writes the same few sentences for TensorBoard every so many steps.

    The first time is before the first step. The model predicts without
    training: weights, metrics and random generators stay as they are.

    Args:
        batch: dict of arrays. A few rows of the model's inputs.
        vocabulary: list of str. Wordpieces in the order of their ids.
        directory: str. Of TensorBoard's files. Made if need be.
        every_steps: int. Steps from one time to the next.
    """

    def __init__(
        self,
        batch: dict,
        vocabulary: list[str],
        directory: str,
        *,
        every_steps: int,
    ):
        import tensorflow as tf

        super().__init__()
        self._batch = batch
        self._vocabulary = vocabulary
        self._writer = tf.summary.create_file_writer(directory)
        self._every_steps = every_steps
        self._step = 0

    def on_train_begin(self, logs=None):
        self._step = steps_done(self.model)

    def on_train_batch_begin(self, batch, logs=None):
        if self._step % self._every_steps == 0:
            self._write_samples()
        self._step += 1

    def _write_samples(self):
        import tensorflow as tf

        outputs = self.model.predict_on_batch(self._batch)
        candidate_ids = np.asarray(outputs["candidate_ids"])
        blocks = self.model.block_table.contents(candidate_ids)
        arrays = keras.tree.map_structure(
            np.asarray, (outputs, self._batch, blocks)
        )
        with self._writer.as_default(step=self._step):
            for row in range(len(candidate_ids)):
                of_row = keras.tree.map_structure(
                    operator.itemgetter(row), arrays
                )
                text = format_sample(*of_row, self._vocabulary)
                tf.summary.text(f"retrieval/{row}", text)
        self._writer.flush()


def format_sample(
    outputs: dict, batch: dict, blocks: dict, vocabulary: list[str]
) -> str:
    """A sentence with a table of its candidates as Markdown.

    Args:
        outputs: dict of arrays. Outputs of `RealmModel` for one row.
        batch: dict of arrays. Its inputs.
        blocks: dict of arrays. Of the candidates, as `BlockTable.contents`.
        vocabulary: list of str. Wordpieces in the order of their ids.

    Returns:
        str. The table has the candidates by p(z | x), with their titles and
        the beginnings of their texts.
    """

    def text(ids):
        pieces = [vocabulary[each] for each in ids]
        return to_text(pieces).translate(_SPECIAL)

    query = batch["token_ids"][batch["padding_mask"] > 0]
    is_masked = batch["mask_weights"] > 0
    masked = text(batch["mask_ids"][is_masked])
    predicted = text(outputs["predicted_ids"][is_masked])
    lines = [
        text(query[1:-1]),
        "",
        f"masked: **{masked}**; predicted: **{predicted}**",
        "",
        "| block | p(z given x) | title | text |",
        "|--:|--:|:--|:--|",
    ]
    priors = np.exp(outputs["retrieval_log_probs"])
    for place in np.argsort(-priors, kind="stable"):
        if not outputs["candidate_mask"][place]:
            continue
        block_id, title, body = "null", "", ""
        if place:
            block_id = outputs["candidate_ids"][place - 1]
            block = {name: rows[place - 1] for name, rows in blocks.items()}
            title = text(block["title_ids"][: block["title_lengths"]])
            body = text(block["token_ids"][: min(block["lengths"], _NUM_SHOWN)])
        lines.append(f"| {block_id} | {priors[place]:.4f} | {title} | {body} |")
    return "\n".join(lines)
