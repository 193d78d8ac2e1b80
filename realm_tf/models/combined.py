"""A model of one directory's towers and of another's reader."""

import dataclasses

from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts import schema
from realm_tf.artifacts.model_card import UNKNOWN_LICENSE
from realm_tf.artifacts.model_card import Card
from realm_tf.errors import InputError
from realm_tf.models.open_qa import OpenQa


def combine(towers: str, reader: str, output: str) -> None:
    """Writes a model directory with the parts of two others.

    An index of the first one fits the new one, whose block tower is the same.

    Args:
        towers: str. Model directory that gives query and block tower, with
            their score scale.
        reader: str. Model directory that gives the reader and, if it has one,
            the masked-LM head over its encoder.
        output: str. Model directory to make.

    Raises:
        InputError: if either is not complete, the vocabularies differ, or
            `output` exists.
    """
    tokenizers = {
        artifact.read(directory, kind=schema.MODEL)["tokenizer"]
        for directory in (towers, reader)
    }
    if len(tokenizers) > 1:
        raise InputError(
            f"{towers} and {reader} have different vocabularies: a model can "
            "take its parts from two of one vocabulary only."
        )
    first = model_directory.load(towers)
    second = model_directory.load(reader)
    model = OpenQa(
        first.model.query_embedder,
        first.model.block_embedder,
        second.model.reader,
        knowledge_augmented_encoder=second.model.knowledge_augmented_encoder,
        score_scale=first.model.score_scale,
    )
    model_directory.save(
        dataclasses.replace(
            first, model=model, card=_card(first.card, second.card)
        ),
        output,
        parents={
            "towers": first.metadata["fingerprint"],
            "reader": second.metadata["fingerprint"],
        },
    )


def _card(towers, reader):
    """What both say; nothing is said of a licence they do not share."""
    if towers == reader:
        return towers
    same_license = towers.license == reader.license
    return Card(
        origin=f"Towers: {towers.origin} Reader: {reader.origin}",
        license=towers.license if same_license else UNKNOWN_LICENSE,
        sources=tuple(dict.fromkeys((*towers.sources, *reader.sources))),
        notes=tuple(dict.fromkeys((*towers.notes, *reader.notes))),
    )
