"""Trains the BERT tagger on sentences with marked names.

  realm train-tagger --train eng.train.gz --dev eng.testa.gz \\
      --test eng.testb.gz --model DIR --output DIR [--set num_epochs=2]

Files are in CoNLL's format, a word and its tag a line (IOB1, IOB2 or BIOES);
several --train files are learned together. After each epoch the entities
found in --dev are counted, and the best epoch is kept. metrics.json holds
precision, recall and F1 of each type.
"""

import dataclasses
import json
import sys
import time

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import tagger as configs
from realm_tf.errors import InputError
from realm_tf.tagging import conll

METRICS = "metrics.json"


def add_arguments(parser):
    """Arguments of `realm train-tagger`."""
    parser.add_argument("--recipe", default="laptop")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument(
        "--train", nargs="+", required=True, metavar="FILE", help="CoNLL files"
    )
    parser.add_argument(
        "--dev", required=True, metavar="FILE", help="decides the best epoch"
    )
    parser.add_argument(
        "--test", metavar="FILE", help="measured once, at the end"
    )
    parser.add_argument(
        "--model", required=True, help="model directory to start from"
    )
    parser.add_argument("--output", required=True, help="directory to make")


def run(args, extra):
    """`realm train-tagger`."""
    metrics = train(
        args.train,
        args.dev,
        args.model,
        args.output,
        test=args.test,
        recipe=configs.get_recipe(args.recipe, args.overrides),
    )
    shown = ", ".join(
        f"{name} F1 {found['all']['f1']:.4f}" for name, found in metrics.items()
    )
    print(f"{args.output}: {shown}")


def train(
    train: str | list[str],
    dev: str,
    model: str,
    output: str,
    *,
    recipe: configs.TaggerRecipe,
    test: str | None = None,
    verbose: int | str = "auto",
) -> dict:
    """Trains a tagger and writes its directory.

    Args:
        train: str or list of str. CoNLL files, learned together.
        dev: str. CoNLL file that decides which epoch is kept.
        model: str. Model directory; its block tower's encoder is the start.
        output: str. Tagger directory to make.
        recipe: `TaggerRecipe`.
        test: str. CoNLL file to measure at the end. Defaults to `None`.
        verbose: int or str. As `keras.Model.fit`; `"auto"` is a bar on a
            terminal and a line now and then elsewhere. Defaults to `"auto"`.

    Returns:
        dict, the content of metrics.json: what `entity_scores` says of
        `"dev"` and, where given, `"test"`.

    Raises:
        InputError: if a file is not in CoNLL's format, or --dev or --test
            holds a type of entity that no --train file has.
    """
    import keras

    from realm_tf.artifacts import model_directory
    from realm_tf.tagging import token_classifier

    paths = [train] if isinstance(train, str) else list(train)
    files = {"dev": dev, **({"test": test} if test else {})}
    sentences = [s for path in paths for s in conll.read_sentences(path)]
    held_out = {name: conll.read_sentences(p) for name, p in files.items()}
    labels = _labels(sentences)
    for name, path in files.items():
        _check_types(held_out[name], _types(sentences), path)
    # Before the model, whose dropout draws its seeds when it is made.
    keras.utils.set_random_seed(recipe.seed)
    loaded = model_directory.load(model)
    parents = {
        "model": loaded.metadata["fingerprint"],
        "train": fingerprints.fingerprint(
            *(Path(path).read_bytes() for path in paths)
        ),
        **{
            n: fingerprints.fingerprint(Path(p).read_bytes())
            for n, p in files.items()
        },
    }
    with artifact.write(
        output,
        kind=token_classifier.TAGGER,
        parameters=recipe.flat(),
        parents=parents,
    ) as stage:
        tagger = token_classifier.from_model(
            loaded,
            labels,
            max_length=recipe.max_length,
            dropout=recipe.dropout,
            **dataclasses.asdict(recipe.freezing),
        )
        batches = TaggedBatches(sentences, tagger, recipe)
        history = _fit(tagger, batches, held_out["dev"], recipe, verbose)
        metrics = {
            name: evaluate(tagger, found, batch_size=recipe.batch_size)
            for name, found in held_out.items()
        }
        token_classifier.write_files(tagger, stage)
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
    return metrics


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
        from realm_tf.tagging import sentence_batches

        label_ids = {label: i for i, label in enumerate(tagger.labels)}
        self._tokenizer = tagger.tokenizer
        self._max_length = tagger.max_length
        self._seed = recipe.seed
        self._batch_size = recipe.batch_size
        self._rows = tagger.sentence_encoder().encode_words(
            [sentence.words for sentence in sentences]
        )
        self._labels = [
            np.array(
                [label_ids[sentences[row.sentence].tags[w]] for w in row.words],
                dtype="int32",
            )
            for row in self._rows
        ]
        self._lengths = np.array(
            [
                sentence_batches.padded_length(row, self._max_length)
                for row in self._rows
            ]
        )

    def __len__(self):
        return len(self._epoch_rows(0))

    def epoch(self, number: int):
        """Batches `(inputs, labels, weights)` of an epoch.

        Args:
            number: int. From 0; decides the order.

        Yields:
            tuple of the model's inputs, int32 labels `(batch_size,
            sequence_length)` and float32 weights of that shape: 1 at the
            first wordpiece of each word.
        """
        for rows in self._epoch_rows(number):
            yield self._batch(rows)

    def _epoch_rows(self, number):
        from realm_tf.tagging import sentence_batches

        random = np.random.default_rng([self._seed, number])
        order = random.permutation(len(self._rows))
        batches = sentence_batches.batches_by_length(
            self._lengths[order], self._batch_size
        )
        return [
            order[batches[index]] for index in random.permutation(len(batches))
        ]

    def _batch(self, rows):
        from realm_tf.tagging import sentence_batches

        stacked = sentence_batches.stack(
            [self._rows[index] for index in rows],
            self._tokenizer,
            max_length=self._max_length,
        )
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
    from realm_tf.tagging.token_classifier import word_loss
    from realm_tf.training import trainers
    from realm_tf.training.callbacks import ProgressLines

    model = tagger.model
    num_steps = len(batches) * recipe.num_epochs
    trainers.compile_trainer(
        model, recipe.optimizer, num_steps, loss=word_loss()
    )
    lines = verbose == "auto" and not sys.stdout.isatty()
    callbacks = [ProgressLines(num_steps)] if lines else []
    best, weights, history = -1.0, None, []
    started = time.monotonic()
    for number in range(recipe.num_epochs):
        fitted = model.fit(
            _dataset(batches, number),
            initial_epoch=number,
            epochs=number + 1,
            steps_per_epoch=len(batches),
            verbose=0 if lines else verbose,
            # The batches come shuffled.
            shuffle=False,
            callbacks=callbacks,
        ).history
        scores = evaluate(tagger, dev, batch_size=recipe.batch_size)["all"]
        history.append({"loss": fitted["loss"][-1], "dev_f1": scores["f1"]})
        if scores["f1"] > best:
            best, weights = scores["f1"], model.get_weights()
        if verbose:
            print(
                f"      epoch {number + 1}/{recipe.num_epochs}: dev F1 "
                f"{scores['f1']:.4f}, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    model.set_weights(weights)
    return history


def _dataset(batches, number):
    """An epoch as a `tf.data.Dataset`, its dimensions left open.

    So no length is traced again.
    """
    import tensorflow as tf

    def spec(kind):
        return tf.TensorSpec([None, None], kind)

    names = ("token_ids", "shape_ids", "padding_mask")
    return tf.data.Dataset.from_generator(
        lambda: batches.epoch(number),
        output_signature=(
            {name: spec(tf.int32) for name in names},
            spec(tf.int32),
            spec(tf.float32),
        ),
    ).prefetch(2)


def evaluate(tagger, sentences, *, batch_size: int) -> dict:
    """Precision, recall and F1 of the entities that a tagger finds.

    Args:
        tagger: `LoadedTagger`.
        sentences: list of `conll.Sentence`.
        batch_size: int. See `sentence_batches.batches_by_length`.

    Returns:
        dict; see `entity_scores`.
    """
    rows = tagger.sentence_encoder().encode_words([s.words for s in sentences])
    predicted = tagger.predict_tags(
        rows, [len(s.words) for s in sentences], batch_size=batch_size
    )
    return entity_scores([s.tags for s in sentences], predicted)


def entity_scores(expected: list, predicted: list) -> dict:
    """Scores by whole entities: both ends and the type must be right.

    Args:
        expected: list of lists of str. Tags in IOB2.
        predicted: list of lists of str. Tags, mended by `conll.to_iob2`.

    Returns:
        dict of type, and `"all"` (every entity counts once), to `precision`,
        `recall`, `f1` and `num_entities`.

    References:
        CoNLL-2003's conlleval, by the library seqeval.
    """
    from seqeval.metrics import classification_report

    report = classification_report(
        [list(tags) for tags in expected],
        [conll.to_iob2(tags) for tags in predicted],
        output_dict=True,
        zero_division=0,
    )
    report["all"] = report.pop("micro avg")
    return {
        name: {
            "precision": float(scores["precision"]),
            "recall": float(scores["recall"]),
            "f1": float(scores["f1-score"]),
            "num_entities": int(scores["support"]),
        }
        for name, scores in report.items()
        if name not in ("macro avg", "weighted avg")
    }
