"""Trains the BERT tagger on sentences with marked names."""

import itertools
import json
import tempfile

import numpy as np
import tensorflow as tf

from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import tagger as configs
from realm_tf.errors import InputError
from realm_tf.tagging import conll
from realm_tf.tagging import tagger_directory
from realm_tf.tagging import token_classifier
from realm_tf.training import resume
from realm_tf.training import trainers
from realm_tf.training.selection import SelectBest

METRICS = "metrics.json"


def read_files(train: list[str], held_out: dict[str, str]) -> tuple[list, dict]:
    """The sentences to learn, and those to measure by.

    Args:
        train: list of str. CoNLL files.
        held_out: dict. Name to CoNLL file.

    Returns:
        list of `conll.Sentence`; dict of name to such a list.

    Raises:
        InputError: if a file is not in CoNLL's format, or one that is held
            out marks nothing, or a type of entity that is not learned.
    """
    sentences = [s for path in train for s in conll.read_sentences(path)]
    found = {n: conll.read_sentences(path) for n, path in held_out.items()}
    for name, path in held_out.items():
        _check_types(found[name], _types(sentences), path)
    return sentences, found


def train_tagger(
    stage: Stage,
    loaded,
    sentences: list[conll.Sentence],
    held_out: dict[str, list[conll.Sentence]],
    recipe: configs.TaggerRecipe,
    *,
    verbose: int | str,
) -> None:
    """Trains a tagger, measures it and writes its files.

    Args:
        stage: `Stage`. The directory that is being written.
        loaded: `LoadedModel`. The initial model, of which the block tower's
            encoder is trained.
        sentences: list of `conll.Sentence`.
        held_out: dict. Name to such a list; `"dev"` decides which epoch is
            kept.
        recipe: `TaggerRecipe`.
        verbose: int or str. See `TrainTagger.run`.
    """
    tagger = tagger_directory.from_model(loaded, _labels(sentences), recipe)
    batches = TaggedBatches(sentences, tagger, recipe)
    history = _fit(tagger, batches, held_out["dev"], recipe, verbose)
    metrics = {
        name: evaluate(tagger, found, batch_size=recipe.batch_size)
        for name, found in held_out.items()
    }
    tagger_directory.write_files(tagger, stage)
    write_text(stage.path(METRICS), json.dumps(metrics, indent=2))
    stage.metadata.update(
        history=history,
        f1={name: found["all"]["f1"] for name, found in metrics.items()},
        counts={
            "sentences": len(sentences),
            "words": sum(len(s.words) for s in sentences),
            "steps_per_epoch": len(batches),
        },
    )


def _types(sentences):
    return {t[2:] for s in sentences for t in s.tags if t != conll.OUTSIDE}


def _labels(sentences):
    """O, then B and I of each type: a type without an I gets one, too."""
    return [conll.OUTSIDE] + [
        f"{prefix}-{kind}"
        for kind in sorted(_types(sentences))
        for prefix in "BI"
    ]


def _check_types(sentences, known, path):
    found = _types(sentences)
    if not found:
        raise InputError(f"{path} marks no entity: nothing to measure by.")
    if found - known:
        raise InputError(
            f"{path} holds entities of type "
            f"{', '.join(sorted(found - known))}, which no --train file has: "
            f"expected {', '.join(sorted(known)) or 'none'}."
        )


class TaggedBatches:
    """Batches of sentences with the labels of their words.

    Rows of like length stand together; which rows, and the order of the
    batches, is drawn anew for each epoch.

    Args:
        sentences: list of `conll.Sentence`.
        tagger: `LoadedTagger`.
        recipe: `TaggerRecipe`.
    """

    def __init__(self, sentences, tagger, recipe):
        label_ids = {label: i for i, label in enumerate(tagger.labels)}
        self._encoder = tagger.sentence_encoder()
        self._seed = recipe.seed
        self._batch_size = recipe.batch_size
        self._rows = self._encoder.encode_words(
            [sentence.words for sentence in sentences]
        )
        self._labels = [
            np.array(
                [label_ids[sentences[row.sentence].tags[w]] for w in row.words],
                dtype="int32",
            )
            for row in self._rows
        ]

    def __len__(self):
        return len(self._epoch_rows(0))

    def batches(self, first: int = 0):
        """Batches `(inputs, labels, weights)` from a step on, without end.

        Args:
            first: int. Step of the run.

        Yields:
            tuple of the model's inputs, int32 labels `(batch_size,
            sequence_length)` and float32 weights of that shape: 1 at the
            first wordpiece of each word.
        """
        epoch, step = divmod(first, len(self))
        for number in itertools.count(epoch):
            for rows in self._epoch_rows(number)[step:]:
                yield self._batch(rows)
            step = 0

    def _epoch_rows(self, number):
        random = np.random.default_rng([self._seed, number])
        order = random.permutation(len(self._rows))
        batches = self._encoder.batches(
            [self._rows[index] for index in order], self._batch_size
        )
        return [
            order[batches[index]] for index in random.permutation(len(batches))
        ]

    def _batch(self, rows):
        stacked = self._encoder.stack([self._rows[index] for index in rows])
        shape = stacked["token_ids"].shape
        labels = np.zeros(shape, dtype="int32")
        weights = np.zeros(shape, dtype="float32")
        for number, index in enumerate(rows):
            positions = self._rows[index].positions
            labels[number, positions] = self._labels[index]
            weights[number, positions] = 1.0
        return stacked, labels, weights


def _fit(tagger, batches, dev, recipe, verbose):
    """Trains, and leaves the best epoch's weights in the model."""
    model = tagger.model
    num_steps = len(batches) * recipe.num_epochs
    trainers.compile_trainer(
        model, recipe.optimizer, num_steps, loss=token_classifier.word_loss()
    )

    def measure():
        scores = evaluate(tagger, dev, batch_size=recipe.batch_size)
        return {"dev_f1": scores["all"]["f1"]}

    epoch_ends = range(len(batches), num_steps + 1, len(batches))
    with tempfile.TemporaryDirectory() as directory:
        selection = SelectBest(
            measure, model, directory, at=epoch_ends, metric="dev_f1"
        )
        history = resume.fit(
            model,
            batches.batches,
            epoch_ends=epoch_ends,
            log_every=len(batches),
            directory=directory,
            callbacks=[selection],
            feed=_feed,
            verbose=verbose,
        )
        selection.restore_best()
    return history


def _feed(make):
    """Batches as a `tf.data.Dataset`, its dimensions left open.

    So no length is traced again.
    """
    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, None], array.dtype), next(make())
    )
    return tf.data.Dataset.from_generator(
        make, output_signature=signature
    ).prefetch(2)


def evaluate(tagger, sentences, *, batch_size: int) -> dict:
    """Precision, recall and F1 of the entities that a tagger finds.

    Args:
        tagger: `LoadedTagger`.
        sentences: list of `conll.Sentence`.
        batch_size: int. See `SentenceEncoder.batches`.

    Returns:
        dict; see `conll.entity_scores`.
    """
    rows = tagger.sentence_encoder().encode_words([s.words for s in sentences])
    predicted = tagger.predict_tags(
        rows, [len(s.words) for s in sentences], batch_size=batch_size
    )
    return conll.entity_scores([s.tags for s in sentences], predicted)
