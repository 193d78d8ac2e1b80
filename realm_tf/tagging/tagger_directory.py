"""A trained BERT tagger and its directory."""

import dataclasses
import json

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.objects import Tagger
from realm_tf.configs.tagger import TaggerRecipe
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.tagging import conll
from realm_tf.tagging.sentence_batches import Row
from realm_tf.tagging.sentence_batches import SentenceEncoder
from realm_tf.tagging.token_classifier import TokenClassifier
from realm_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass
class LoadedTagger:
    """A token classifier with what turns sentences into its inputs.

    Args:
        model: `TokenClassifier`.
        tokenizer: `Tokenizer`.
        labels: tuple of str. Tags in IOB2, in the order of the logits.
        max_length: int. Most wordpieces of a row, as trained.
    """

    model: TokenClassifier
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    max_length: int

    def sentence_encoder(self) -> SentenceEncoder:
        """Makes the rows of this tagger."""
        return SentenceEncoder(self.tokenizer, max_length=self.max_length)

    def find_names(
        self, sentences: list[str], *, batch_size: int
    ) -> list[list[tuple[int, int, str]]]:
        """The names of sentences.

        Args:
            sentences: list of str.
            batch_size: int. See `SentenceEncoder.batches`.

        Returns:
            list of lists of `(start, limit, kind)`, one list a sentence; code
            points, the limit exclusive.
        """
        words = [conll.find_words(sentence) for sentence in sentences]
        rows = self.sentence_encoder().encode(
            sentences, [[start for start, _ in found] for found in words]
        )
        tags = self.predict_tags(
            rows, [len(found) for found in words], batch_size=batch_size
        )
        return [
            [
                (found[start][0], found[limit - 1][1], kind)
                for start, limit, kind in conll.entities(of_words)
            ]
            for found, of_words in zip(words, tags, strict=True)
        ]

    def predict_tags(
        self, rows: list[Row], num_words: list[int], *, batch_size: int
    ) -> list[list[str]]:
        """The most probable tag of each sentence's words.

        Args:
            rows: list of `Row`. Of all sentences.
            num_words: list of int. Of each sentence.
            batch_size: int. See `SentenceEncoder.batches`.

        Returns:
            list of lists of str. A word without a wordpiece is `"O"`.
        """
        tags = [["O"] * number for number in num_words]
        encoder = self.sentence_encoder()
        for batch in encoder.batches(rows, batch_size):
            inputs = encoder.stack([rows[index] for index in batch])
            # Compiled, which `model(inputs)` is not.
            logits = np.asarray(self.model.predict_on_batch(inputs))
            for index, labels in zip(
                batch, logits.argmax(axis=-1), strict=True
            ):
                row = rows[index]
                for word, place in zip(row.words, row.positions, strict=True):
                    tags[row.sentence][word] = self.labels[labels[place]]
        return tags


def from_model(
    loaded: model_directory.LoadedModel,
    labels: list[str],
    recipe: TaggerRecipe,
) -> LoadedTagger:
    """A tagger that starts from the encoder of a model's block tower.

    Args:
        loaded: `model_directory.LoadedModel`. Its layers are taken over, not
            copied.
        labels: list of str. Tags in IOB2.
        recipe: `TaggerRecipe`. Says what of the encoder is frozen; the shape
            table learns all the same.

    Returns:
        `LoadedTagger`.

    Raises:
        InputError: if the encoder has fewer positions than the recipe's
            `max_length`, or is of MPNet's shape.
    """
    encoder = loaded.model.block_embedder.encoder
    if encoder.num_relative_buckets:
        raise InputError(
            "A tagger begins with a BERT, and the model is of MPNet's shape: "
            "choose another --model."
        )
    max_length = recipe.max_length
    if max_length > encoder.max_sequence_length:
        raise InputError(
            f"max_length={max_length} is more than the model's "
            f"{encoder.max_sequence_length} positions: choose less with --set."
        )
    encoder.freeze(
        embeddings=recipe.freezing.freeze_word_embeddings,
        num_layers=recipe.freezing.num_frozen_layers,
    )
    encoder.set_recompute(recipe.optimizer.gradient_checkpointing)
    model = TokenClassifier(encoder, len(labels), dropout=recipe.dropout)
    return LoadedTagger(model, loaded.tokenizer, tuple(labels), max_length)


def write_files(tagger: LoadedTagger, stage: Stage) -> None:
    """Writes a tagger's files into a stage that is being written."""
    config = {
        "classifier": tagger.model.get_config(),
        "labels": list(tagger.labels),
        "max_length": tagger.max_length,
        "lowercase": tagger.tokenizer.lowercase,
    }
    model_directory.write_parts(stage, config, tagger.tokenizer, tagger.model)
    stage.metadata["fingerprint"] = fingerprints.fingerprint(
        json.dumps(config, sort_keys=True),
        tagger.tokenizer.fingerprint(),
        *model_directory.weight_bytes(tagger.model),
    )


def load(directory: str | Tagger) -> LoadedTagger:
    """Opens a tagger directory.

    Args:
        directory: `Tagger` or its path. Written by `realm train-tagger`.

    Returns:
        `LoadedTagger`.

    Raises:
        InputError: if it is not a complete tagger directory, or its weights
            are damaged.
    """
    directory = Tagger.of(directory)
    config = directory.read_json(model_directory.CONFIG)
    model = TokenClassifier.from_config(config["classifier"])
    model_directory.load_weights(model, directory)
    tokenizer = Tokenizer.from_file(
        directory.file(model_directory.VOCABULARY),
        lowercase=config["lowercase"],
    )
    return LoadedTagger(
        model,
        tokenizer,
        tuple(config["labels"]),
        config["max_length"],
    )
