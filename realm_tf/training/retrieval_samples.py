"""Masked sentences with what is retrieved for them, for people to read."""

import dataclasses

import keras
import numpy as np

from realm_tf import metrics
from realm_tf.text.tokenizer import to_text

# Wordpieces of a block that are shown (our choice).
_NUM_SHOWN = 32
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_|[]#"} | {"<": "&lt;"})


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A block that a masked sentence was read with.

    Args:
        block_id: int, or `None` for the null block.
        probability: float. p(z | x).
        gradient: float. r(z): above 0 where the block predicts better than
            the candidates do on average; see `metrics.retrieval_gradient`.
        title_ids: list of int.
        token_ids: list of int. The beginning of the body.
        is_cut: bool. Whether the body goes on.
    """

    block_id: int | None
    probability: float
    gradient: float
    title_ids: list[int]
    token_ids: list[int]
    is_cut: bool


@dataclasses.dataclass(frozen=True)
class Sample:
    """A masked sentence.

    Args:
        token_ids: list of int. The query as the model reads it, without
            [CLS] and [SEP].
        mask_positions: list of int. Ascending.
        mask_ids: list of int. The wordpieces that were masked.
        predicted_ids: list of int. What the model says.
        candidates: list of `Candidate`, the null block first, then by p(z | x).
    """

    token_ids: list[int]
    mask_positions: list[int]
    mask_ids: list[int]
    predicted_ids: list[int]
    candidates: list[Candidate]


class RetrievalSamples(keras.callbacks.Callback):
    """Shows the same few sentences every so many steps, before the first too.

    The model is run without training: weights, metrics and the state of the
    random generators stay as they are.

    Args:
        batch: dict of arrays. A few rows of what the model is trained on.
        tokenizer: `Tokenizer`. Of the model.
        write: function of (name, text, step=...) that takes each sample's
            Markdown, such as `tensorboard.TensorBoardWriter.text`.
        every_steps: int.
        num_steps: int. Of the whole run, after whose last step samples are
            written in any case. Defaults to `None`: after every `fit`.
        retriever: `HostRetriever`. Of a model whose batches bring their
            candidates. Defaults to `None`.

    Raises:
        ValueError: if `every_steps` is not positive.
    """

    def __init__(
        self,
        batch: dict,
        tokenizer,
        write,
        *,
        every_steps: int,
        num_steps: int | None = None,
        retriever=None,
    ):
        super().__init__()
        if every_steps < 1:
            raise ValueError(
                "`every_steps` must be at least 1. Received: "
                f"every_steps={every_steps}"
            )
        self._batch = batch
        self._tokenizer = tokenizer
        self._write = write
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._retriever = retriever
        self._step = 0
        self._written = None

    def on_train_begin(self, logs=None):
        self._step = int(self.model.optimizer.iterations)

    def on_epoch_begin(self, epoch, logs=None):
        self._before_epoch = self._step

    def on_train_batch_begin(self, batch, logs=None):
        if (
            self._written is None
            or self._step // self._every_steps
            > self._written // self._every_steps
        ):
            self._write_samples()

    def on_train_batch_end(self, batch, logs=None):
        self._step = self._before_epoch + batch + 1

    def on_train_end(self, logs=None):
        finished = self._step >= (self._num_steps or 0)
        if finished and self._step != self._written:
            self._write_samples()

    def _write_samples(self):
        samples = run_samples(
            self.model, self._batch, retriever=self._retriever
        )
        for number, sample in enumerate(samples):
            self._write(
                f"retrieval/{number}",
                format_sample(sample, self._tokenizer.vocabulary),
                step=self._step,
            )
        self._written = self._step


def run_samples(model, batch: dict, *, retriever=None) -> list[Sample]:
    """What a model retrieves and predicts, without training it.

    May be called between two steps of `fit`.

    Args:
        model: `RealmModel`, compiled.
        batch: dict of arrays, as the model takes it.
        retriever: `HostRetriever`. Adds candidates to the batch. Defaults to
            `None`: the model finds its own.

    Returns:
        list of `Sample`, one a row.
    """
    contents = (retriever or model.block_table).contents
    if retriever is not None:
        batch = retriever.add_candidates(batch)
    if keras.backend.backend() == "jax":
        # Until then variables do not have the values of the last step.
        model.jax_state_sync()
    outputs = model.predict_on_batch(batch)
    found = contents(np.asarray(outputs["candidate_ids"]))
    return make_samples(
        outputs,
        batch,
        **{name: np.asarray(value) for name, value in found.items()},
        marginalization=model.marginal_likelihood.marginalization,
    )


def make_samples(
    outputs: dict,
    batch: dict,
    *,
    token_ids,
    lengths,
    title_ids,
    title_lengths,
    marginalization: str = "token",
) -> list[Sample]:
    """Sorts a model's outputs by sentence.

    Args:
        outputs: dict of arrays. What `RealmModel` returns.
        batch: dict of arrays. What it was given.
        token_ids: int array `(batch_size, num_retrieved, block_length)`. The
            candidates' bodies, as `lengths` `(batch_size, num_retrieved)` and
            the titles from the model's `BlockTable`.
        lengths: int array. See there.
        title_ids: int array. See there.
        title_lengths: int array. See there.
        marginalization: str. The model's. Defaults to `"token"`.

    Returns:
        list of `Sample`, one a row.
    """
    priors = np.asarray(outputs["retrieval_log_probs"])
    mask = np.asarray(outputs["candidate_mask"])
    gradients = np.asarray(
        metrics.retrieval_gradient(
            np.asarray(outputs["log_probs"]),
            priors,
            np.asarray(batch["mask_weights"], "float32"),
            mask,
            marginalization=marginalization,
        )
    )
    samples = []
    for row in range(len(mask)):

        def candidate(place, row=row):
            probability = float(np.exp(priors[row, place]))
            gradient = float(gradients[row, place])
            if not place:
                return Candidate(None, probability, gradient, [], [], False)
            block = row, place - 1
            length = int(lengths[block])
            return Candidate(
                int(outputs["candidate_ids"][block]),
                probability,
                gradient,
                title_ids[block][: title_lengths[block]].tolist(),
                token_ids[block][: min(length, _NUM_SHOWN)].tolist(),
                length > _NUM_SHOWN,
            )

        null, *others = map(candidate, np.flatnonzero(mask[row]))
        others.sort(key=lambda c: -c.probability)
        masked = np.asarray(batch["mask_weights"])[row] > 0
        query_length = int(np.sum(batch["padding_mask"][row]))
        samples.append(
            Sample(
                np.asarray(batch["token_ids"])[
                    row, 1 : query_length - 1
                ].tolist(),
                np.asarray(batch["mask_positions"])[row][masked].tolist(),
                np.asarray(batch["mask_ids"])[row][masked].tolist(),
                np.asarray(outputs["predicted_ids"])[row][masked].tolist(),
                [null, *others],
            )
        )
    return samples


def format_sample(sample: Sample, vocabulary: list[str]) -> str:
    """A sentence and its candidates as Markdown.

    Args:
        sample: `Sample`.
        vocabulary: list of str. Wordpieces in the order of their ids.
    """

    def text(ids):
        return _escape(to_text([vocabulary[i] for i in ids]))

    def masked(ids):
        return ", ".join(
            f"**{text([ids[place] for place in places])}**"
            for places in _runs(sample.mask_positions)
        )

    lines = [
        text(sample.token_ids),
        "",
        f"masked: {masked(sample.mask_ids)}; "
        f"predicted: {masked(sample.predicted_ids)}",
        "",
        "| block | p(z given x) | r(z) | title | text |",
        "|--:|--:|--:|:--|:--|",
    ]
    for candidate in sample.candidates:
        null = candidate.block_id is None
        cells = [
            "null" if null else str(candidate.block_id),
            f"{candidate.probability:.4f}",
            f"{candidate.gradient:+.4f}",
            text(candidate.title_ids),
            text(candidate.token_ids) + (" …" if candidate.is_cut else ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _runs(positions):
    """Places of neighbours together: [3, 4, 9] is [[0, 1], [2]]."""
    runs = []
    for place, position in enumerate(positions):
        if place and position == positions[place - 1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _escape(text):
    return text.translate(_SPECIAL)
