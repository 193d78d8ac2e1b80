"""Masked sentences with what is retrieved for them, for people to read."""

import keras
import numpy as np

from realm_tf import metrics
from realm_tf.text.tokenizer import to_text

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
            Markdown, such as `tensorboard.TensorBoardWriter.text`.
        every_steps: int.
        num_steps: int. Of the whole run, after whose last step samples are
            written in any case.
        retriever: `HostRetriever`. Of a model whose batches bring their
            candidates. Defaults to `None`.
    """

    def __init__(
        self,
        batch: dict,
        vocabulary: list[str],
        write,
        *,
        every_steps: int,
        num_steps: int,
        retriever=None,
    ):
        super().__init__()
        self._batch = batch
        self._vocabulary = vocabulary
        self._write = write
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._retriever = retriever
        self._step = 0
        self._written = None

    def on_train_begin(self, logs=None):
        self._step = int(self.model.optimizer.iterations)

    def on_train_batch_begin(self, batch, logs=None):
        if (
            self._written is None
            or self._step // self._every_steps
            > self._written // self._every_steps
        ):
            self._write_samples()

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1

    def on_train_end(self, logs=None):
        if self._step >= self._num_steps and self._step != self._written:
            self._write_samples()

    def _write_samples(self):
        texts = run_samples(
            self.model, self._batch, self._vocabulary, retriever=self._retriever
        )
        for number, text in enumerate(texts):
            self._write(f"retrieval/{number}", text, step=self._step)
        self._written = self._step


def run_samples(
    model, batch: dict, vocabulary: list[str], *, retriever=None
) -> list[str]:
    """What a model retrieves and predicts, without training it.

    May be called between two steps of `fit`.

    Args:
        model: `RealmModel`, compiled.
        batch: dict of arrays, as the model takes it.
        vocabulary: list of str. Wordpieces in the order of their ids.
        retriever: `HostRetriever`. Adds candidates to the batch. Defaults to
            `None`: the model finds its own.

    Returns:
        list of str, Markdown; one a row.
    """
    contents = (retriever or model.block_table).contents
    if retriever is not None:
        batch = retriever.add_candidates(batch)
    if keras.backend.backend() == "jax":
        # Until then variables do not have the values of the last step.
        model.jax_state_sync()
    outputs = model.predict_on_batch(batch)
    return format_samples(
        outputs,
        batch,
        contents(np.asarray(outputs["candidate_ids"])),
        vocabulary,
        marginalization=model.marginal_likelihood.marginalization,
    )


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
    outputs, batch, blocks = (
        {name: np.asarray(value) for name, value in each.items()}
        for each in (outputs, batch, blocks)
    )
    priors = outputs["retrieval_log_probs"]
    gradients = np.asarray(
        metrics.retrieval_gradient(
            outputs["log_probs"],
            priors,
            batch["mask_weights"].astype("float32"),
            outputs["candidate_mask"],
            marginalization=marginalization,
        )
    )

    def text(ids):
        wordpieces = to_text([vocabulary[i] for i in ids])
        return wordpieces.translate(_SPECIAL)

    def masked(ids, positions):
        return ", ".join(f"**{text(run)}**" for run in _runs(ids, positions))

    def candidate(row, place):
        cells = ["null", "", ""]
        if place:
            block = row, place - 1
            length = blocks["lengths"][block]
            shown = blocks["token_ids"][block][: min(length, _NUM_SHOWN)]
            title = blocks["title_ids"][block][: blocks["title_lengths"][block]]
            cells = [
                outputs["candidate_ids"][block],
                text(title),
                text(shown) + (" …" if length > _NUM_SHOWN else ""),
            ]
        block_id, title, body = cells
        return (
            f"| {block_id} | {np.exp(priors[row, place]):.4f} "
            f"| {gradients[row, place]:+.4f} | {title} | {body} |"
        )

    samples = []
    for row, allowed in enumerate(outputs["candidate_mask"]):
        query = batch["token_ids"][row][batch["padding_mask"][row] > 0]
        is_masked = batch["mask_weights"][row] > 0
        positions = batch["mask_positions"][row][is_masked]
        null, *others = np.flatnonzero(allowed).tolist()
        others.sort(key=lambda place, row=row: -priors[row, place])
        lines = [
            text(query[1:-1]),
            "",
            f"masked: {masked(batch['mask_ids'][row][is_masked], positions)}; "
            "predicted: "
            f"{masked(outputs['predicted_ids'][row][is_masked], positions)}",
            "",
            "| block | p(z given x) | r(z) | title | text |",
            "|--:|--:|--:|:--|:--|",
            *(candidate(row, place) for place in (null, *others)),
        ]
        samples.append("\n".join(lines))
    return samples


def _runs(ids, positions):
    """Ids of neighbours together: at [3, 4, 9], the first two and the last."""
    return np.split(ids, np.flatnonzero(np.diff(positions) != 1) + 1)
