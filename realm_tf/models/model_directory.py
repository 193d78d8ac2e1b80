"""Model directories: config.json, model.weights.h5, vocab.txt, README.md."""

import contextlib
import dataclasses
import itertools
import json
import warnings

import keras
import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import model_card
from realm_tf.artifacts.array_files import VOCABULARY
from realm_tf.artifacts.array_files import write_vocabulary
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.model_card import Card
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import local_copy
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.precision import Precision
from realm_tf.models.precision import computing_in
from realm_tf.models.reader import Reader
from realm_tf.text.tokenizer import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
CARD = "README.md"


@dataclasses.dataclass
class LoadedModel:
    """A model with what turns text into its inputs.

    Args:
        model: `OpenQa`.
        tokenizer: `Tokenizer`.
        block_segment_ids: tuple of int. Segment ids of title and body in the
            block tower: `(0, 1)` as REALM, `(0, 0)` for encoders trained on
            single texts.
        metadata: dict. Of the directory; empty for a model made in memory.
        card: `Card`. Where its weights come from.
        calibration: dict. Of an `answering.calibration.Calibration` that the
            model comes with; `None` without one.
    """

    model: OpenQa
    tokenizer: Tokenizer
    block_segment_ids: tuple[int, int] = (0, 1)
    metadata: dict = dataclasses.field(default_factory=dict)
    card: Card = Card()
    calibration: dict | None = None

    def block_tower_fingerprint(self) -> str:
        """Digest of all that decides a block's embedding.

        Fine-tuning keeps it, so an index made before still belongs to the
        model made after.
        """
        tower = self.model.block_embedder
        return fingerprints.fingerprint_all(
            itertools.chain(
                (
                    json.dumps(_part_config(tower), sort_keys=True),
                    str(list(self.block_segment_ids)),
                    self.tokenizer.fingerprint(),
                ),
                weight_bytes(tower),
            )
        )


def save(
    loaded: LoadedModel, output: str, *, parameters: dict | None = None
) -> None:
    """Writes a model directory.

    Args:
        loaded: `LoadedModel`.
        output: str. The directory to make.
        parameters: dict. Options that determined the weights.
    """
    with artifact.write(
        output, kind=Model.kind, parameters=parameters
    ) as stage:
        write_files(loaded, stage)


def write_files(loaded: LoadedModel, stage: artifact.Stage) -> None:
    """Writes a model's files into a stage that is being written.

    The last one is its card, README.md, which says what the others are.
    """
    model = loaded.model
    config = {
        "model": "open_qa",
        "share_embedders": model.share_embedders,
        "query_embedder": _part_config(model.query_embedder),
        "block_embedder": _part_config(model.block_embedder),
        "reader": _part_config(model.reader),
        "masked_lm_head": model.knowledge_augmented_encoder is not None,
        "score_scale": model.score_scale,
        "block_segment_ids": list(loaded.block_segment_ids),
        "lowercase": loaded.tokenizer.lowercase,
    }
    write_parts(stage, config, loaded.tokenizer, model)
    names = (CONFIG, WEIGHTS, VOCABULARY)
    digests = fingerprints.of_files(stage.directory, names)
    write_text(
        stage.path(CARD),
        model_card.render(loaded.card, config, digests, stage.parameters),
    )
    stage.metadata["card"] = loaded.card.to_json()
    if loaded.calibration:
        stage.metadata["calibration"] = loaded.calibration
    stage.metadata["block_tower"] = loaded.block_tower_fingerprint()
    stage.metadata["fingerprint"] = fingerprints.fingerprint_all(
        itertools.chain(
            (json.dumps(config, sort_keys=True),), weight_bytes(model)
        )
    )


def write_parts(stage, config: dict, tokenizer, model: keras.Model) -> None:
    """Writes config, vocabulary and weights, of a model or a tagger."""
    write_text(stage.path(CONFIG), json.dumps(config, indent=2, sort_keys=True))
    write_vocabulary(stage.directory, tokenizer.vocabulary)
    model.save_weights(stage.path(WEIGHTS))
    stage.metadata["tokenizer"] = tokenizer.fingerprint()


def weight_bytes(model: keras.Model):
    """The bytes of each variable, one at a time."""
    for variable in model.variables:
        if "seed_generator" not in variable.path:
            yield np.asarray(variable).tobytes()


def load(
    directory: str | Model,
    *,
    precision: Precision | None = None,
    for_training: bool = False,
    only_block_tower: bool = False,
) -> LoadedModel:
    """Opens a model directory.

    Args:
        directory: str or `Model`. Written by `realm init`, `realm finetune`,
            ...
        precision: str. In which the encoders compute; see
            `models.precision.computing_in`. Defaults to `None`: as Keras'
            dtype policy says.
        for_training: bool. See `models.precision.computing_in`. Defaults to
            `False`.
        only_block_tower: bool. For who embeds blocks: a third of the memory.
            Defaults to `False`.

    Returns:
        `LoadedModel`; its model has a `block_embedder` and nothing else if only
        that is loaded.

    Raises:
        InputError: if it is not a complete model directory, or its weights
            are damaged.
    """
    directory = Model.of(directory)
    config = directory.config
    policy = contextlib.nullcontext()
    if precision:
        policy = computing_in(precision, for_training=for_training)
    with _described(directory), policy:
        model = (_BlockTower if only_block_tower else make)(config)
        segment_ids = tuple(config["block_segment_ids"])
        tokenizer = Tokenizer.from_file(
            directory.vocabulary, lowercase=bool(config["lowercase"])
        )
    load_weights(model, directory)
    return LoadedModel(
        model,
        tokenizer,
        segment_ids,
        directory.metadata,
        Card.from_json(directory.metadata["card"]),
        directory.metadata.get("calibration"),
    )


@contextlib.contextmanager
def _described(directory):
    """Making what config.json describes, which may be of a stranger."""
    weights, config = Path(directory.file(WEIGHTS)), directory.config
    try:
        for part in config.values() if weights.exists() else ():
            if isinstance(part, dict):
                encoder = part["encoder"]
                width = encoder["hidden_dim"]
                sizes = [*part.values(), *encoder.values()]
                sizes.append(encoder["num_layers"] * width)
                # Else it could take any time and memory.
                if any(
                    isinstance(size, int) and size * width > weights.size
                    for size in sizes
                ):
                    raise ValueError("more weights than there are")
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{directory.file(CONFIG)} describes no model of this version "
            f"({type(error).__name__}: {error}): make or fetch the directory "
            "again."
        ) from error


def make(config: dict) -> OpenQa:
    """The model of a configuration, with new weights.

    Args:
        config: dict. Of a model directory.
    """
    query_embedder = _part(Embedder, config["query_embedder"])
    block_embedder = (
        query_embedder
        if config["share_embedders"]
        else _part(Embedder, config["block_embedder"])
    )
    reader = _part(Reader, config["reader"])
    return OpenQa(
        query_embedder,
        block_embedder,
        reader,
        knowledge_augmented_encoder=KnowledgeAugmentedEncoder(reader.encoder)
        if config["masked_lm_head"]
        else None,
        score_scale=config["score_scale"],
    )


class _BlockTower(keras.Model):
    """The first part of `OpenQa`, in its file of weights too."""

    def __init__(self, config):
        super().__init__()
        self.block_embedder = _part(Embedder, config["block_embedder"])
        self.built = True


def _without_name(config):
    return {k: v for k, v in config.items() if k not in ("name", "encoder")}


def _part_config(part):
    """Of an embedder or reader, with that of its encoder."""
    config = _without_name(part.get_config())
    return {"encoder": _without_name(part.encoder.get_config()), **config}


def _part(kind, config):
    config = dict(config)
    return kind(BertEncoder(**config.pop("encoder")), **config)


def load_weights(model: keras.Model, directory: Artifact) -> None:
    """Fills a model with the weights of a directory.

    Raises:
        InputError: if they are damaged or of another model.
    """
    path = directory.file(WEIGHTS)
    try:
        with warnings.catch_warnings():
            # Keras would leave random weights where the file has none.
            warnings.filterwarnings("error", "Skipping nested container")
            model.load_weights(local_copy(path))
    except (OSError, ValueError, KeyError, UserWarning) as error:
        raise InputError(
            f"{path} is damaged or not that of the {CONFIG} beside it: {error} "
            "Make the directory again."
        ) from error
