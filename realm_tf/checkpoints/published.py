"""Makes a model of the parts of published REALM and ORQA checkpoints."""

import collections

import numpy as np

from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.checkpoints.source import find_license
from realm_tf.checkpoints.source import find_tokenizer
from realm_tf.errors import InputError

_PARTS = (EMBEDDER, QUERY_EMBEDDER, READER, ENCODER)


def write_model(
    output: str,
    opened: list[Source],
    tower: Source | None,
    *,
    vocab: str | None,
    cased: bool,
    license: str | None,
    parameters: dict,
) -> list[str]:
    """Makes the model directory.

    Args:
        output: str.
        opened: list of `Source`.
        tower: `Source` of the blocks' embedder, if it is another, or `None`.
        vocab: str. A vocab.txt, or `None`: that of a source.
        cased: bool. Whatever a source says.
        license: str. For the card, or `None`: what a source says.
        parameters: dict. For metadata.json; `"from"` and `"seed"` are used.

    Returns:
        list of str: what was read, what not and why, a line each.

    Raises:
        InputError: if parts are missing, damaged or do not fit each other.
    """
    import keras

    from realm_tf.artifacts import model_directory
    from realm_tf.artifacts.model_card import Card

    keras.utils.set_random_seed(parameters["seed"])
    model, lines = _make_model(opened, tower)
    sources = [*opened, tower] if tower else opened
    directories = [source.directory for source in sources]
    tokenizer = find_tokenizer(directories, vocab, cased=cased)
    _check_vocabulary(model, tokenizer)
    lines += _ignored_lines(sources)
    license = license or find_license(directories)
    card = Card(
        origin=f"weights read with `realm {parameters['from']}`.",
        license=license,
        sources=sum((source.checksums() for source in sources), ()),
        notes=tuple(lines),
    )
    loaded = model_directory.LoadedModel(model, tokenizer, card=card)
    model_directory.save(loaded, output, parameters=parameters)
    return [
        *lines,
        f"{output}: {model.count_params():,} parameters, license {license}",
    ]


def _make_model(opened, tower):
    """`OpenQa` of all parts; and lines that say where each is from."""
    from realm_tf.models.open_qa import OpenQa
    from realm_tf.models.reader import Reader

    makers, homes = {}, {}
    for source in opened:
        for part in [p for p in _PARTS if p in source.makers]:
            add_maker(makers, part, source.makers[part], source.directory)
            homes[part] = source.directory
    if EMBEDDER not in makers:
        raise InputError(
            f"{', '.join(s.directory for s in opened)} holds no embedder (it "
            f"holds {', '.join(makers) or 'no part of a REALM'}): name a "
            "directory with one, too, such as --source EMBEDDER ENCODER. To "
            "start from a plain BERT, use `realm init`."
        )
    if {READER, ENCODER} <= set(makers):
        raise InputError(
            "The sources hold a reader and a masked-LM encoder, which are two "
            "BERTs, but a model has one for both: leave one of the sources "
            "out."
        )
    lines = [f"{part}: from {homes[part]}" for part in makers]
    query_embedder, block_embedder, tower_line = _make_towers(makers, tower)
    encoder = None
    if READER in makers:
        reader = makers[READER]()
    elif ENCODER in makers:
        encoder = makers[ENCODER]()
        reader = Reader(encoder.encoder)
        lines.append("reader: the BERT of the encoder, its head is random")
    else:
        reader = Reader(_copy(query_embedder.encoder))
        lines.append("reader: the BERT of the embedder, its head is random")
    model = OpenQa(
        query_embedder,
        block_embedder,
        reader,
        knowledge_augmented_encoder=encoder,
    )
    return model, lines + tower_line


def _make_towers(makers, tower):
    block_embedder = makers[EMBEDDER]()
    query_embedder = block_embedder
    if QUERY_EMBEDDER in makers:
        query_embedder = makers[QUERY_EMBEDDER]()
        if _are_equal(query_embedder, block_embedder):
            query_embedder = block_embedder
    if tower is None:
        return query_embedder, block_embedder, []
    if EMBEDDER not in tower.makers:
        raise InputError(f"--block-tower {tower.directory} has no embedder.")
    line = f"block tower: from {tower.directory}"
    return query_embedder, tower.makers[EMBEDDER](), [line]


def _are_equal(model, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(model.get_weights(), other.get_weights(), strict=True)
    )


def _copy(encoder):
    copied = type(encoder).from_config(encoder.get_config())
    copied.set_weights(encoder.get_weights())
    return copied


def _check_vocabulary(model, tokenizer):
    for name, encoder in (
        ("query tower", model.query_embedder.encoder),
        ("block tower", model.block_embedder.encoder),
        ("reader", model.reader.encoder),
    ):
        if encoder.vocabulary_size != tokenizer.vocabulary_size:
            raise InputError(
                f"The vocabulary has {tokenizer.vocabulary_size:,} "
                f"wordpieces, the {name} {encoder.vocabulary_size:,}: they do "
                "not belong together. Name the right vocab.txt with --vocab."
            )


def _ignored_lines(sources):
    """How many tensors were not read, by reason."""
    reasons = collections.Counter()
    for source in sources:
        reasons.update(source.ignored.values())
    return [
        f"{count} tensors not read: {reason}"
        for reason, count in sorted(reasons.items())
    ]
