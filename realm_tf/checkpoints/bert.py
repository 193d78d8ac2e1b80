"""BERTs that people have, from files, to start from."""

import functools
import json
import os

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints.starting import Start
from realm_tf.errors import InputError

_VOCABULARIES = ("vocab.txt", "assets/vocab.txt")


def start(
    kind: str,
    source: str,
    *,
    vocab: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
) -> Start:
    """A BERT of one of the kinds that `realm init` reads from files.

    Args:
        kind: str. `"hf"`, `"tf1"`, `"garden"` or `"keras-hub"`.
        source: str. A directory; of the second and third also the prefix of a
            checkpoint, of the last also the name of a preset.
        vocab: str. Its vocab.txt. Defaults to the one beside it.
        cased: bool. Whether that is a cased BERT's, which files of the second
            and third kind do not say. Defaults to `False`.
        num_heads: int. Of the second kind; see `tf1.bert_config`.

    Returns:
        `Start`.

    Raises:
        InputError: if something is missing, damaged or no BERT.
    """
    if kind == "tf1":
        return _tf1(source, vocab, cased, num_heads)
    make = {
        "hf": _hugging_face,
        "garden": _model_garden,
        "keras-hub": _keras_hub,
    }
    return make[kind](source, vocab, cased)


def _hugging_face(source, vocab, cased):
    from realm_tf.artifacts.model_card import Card
    from realm_tf.checkpoints import hugging_face

    checkpoint = hugging_face.open_checkpoint(source)
    if hugging_face.BERT not in checkpoint.parts():
        raise InputError(
            f"{source} holds {', '.join(checkpoint.parts())} of a REALM: use "
            f"`realm import hf --source {source}`."
        )
    has_head = checkpoint.has_masked_lm_head
    return Start(
        checkpoint.encoder,
        find_tokenizer([source], vocab, cased=cased),
        Card(
            f"BERT from the Hugging Face directory {source}.",
            find_license([source]),
            tuple((p, fingerprints.sha256(p)) for p in checkpoint.files),
        ),
        checkpoint.knowledge_augmented_encoder if has_head else None,
    )


def _tf1(source, vocab, cased, num_heads):
    from realm_tf.checkpoints import tf1

    bundle = _only_bundle(source)
    kinds = [part.kind for part in tf1.classify(bundle.names())]
    make = functools.partial(tf1.make_bert, bundle, num_heads=num_heads)
    make_masked_lm = functools.partial(
        tf1.make_knowledge_augmented_encoder, bundle, num_heads=num_heads
    )
    return _of_bundle(
        bundle,
        make,
        make_masked_lm if "encoder" in kinds else None,
        "BERT from the TF1 checkpoint",
        find_tokenizer([_directory(source)], vocab, cased=cased),
    )


def _model_garden(source, vocab, cased):
    from realm_tf.checkpoints import model_garden

    bundle = _only_bundle(source)
    make_masked_lm = functools.partial(
        model_garden.make_knowledge_augmented_encoder, bundle
    )
    return _of_bundle(
        bundle,
        functools.partial(model_garden.make_bert, bundle),
        make_masked_lm if model_garden.has_masked_lm_head(bundle) else None,
        "BERT from the Model Garden checkpoint",
        find_tokenizer([_directory(source)], vocab, cased=cased),
    )


def _keras_hub(source, vocab, cased):
    from realm_tf.artifacts.model_card import Card
    from realm_tf.checkpoints import keras_hub_preset

    if vocab or cased:
        raise InputError(
            "A Keras Hub preset brings its tokenizer: leave --vocab and "
            "--cased out."
        )
    backbone, tokenizer = keras_hub_preset.load(source)
    return Start(
        functools.partial(keras_hub_preset.make_bert, backbone),
        tokenizer,
        Card(f"BERT from the Keras Hub preset {source}."),
    )


def _of_bundle(bundle, make, make_masked_lm, origin, tokenizer):
    from realm_tf.artifacts.model_card import Card

    return Start(
        make,
        tokenizer,
        Card(
            f"{origin} {bundle.source}.",
            find_license([_directory(bundle.source)]),
            tuple((p, fingerprints.sha256(p)) for p in bundle.files()),
        ),
        make_masked_lm,
    )


def _only_bundle(source):
    """The checkpoint of a prefix, or the only one in a directory."""
    from realm_tf.checkpoints import tensor_bundle

    if not os.path.isdir(source):
        return tensor_bundle.TensorBundle(source)
    prefixes = tensor_bundle.find_checkpoints(source)
    if len(prefixes) != 1:
        found = ", ".join(prefixes) or "none"
        raise InputError(
            f"{source} must hold one checkpoint (*.index), but it holds "
            f"{found}. Name one by its prefix, such as bert_model.ckpt."
        )
    return tensor_bundle.TensorBundle(prefixes[0])


def _directory(source):
    return source if os.path.isdir(source) else os.path.dirname(source)


def find(directories, *names):
    """The first of some files in some directories, or `None`."""
    for directory in directories:
        for name in names:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                return path
    return None


def find_tokenizer(directories, vocab: str | None = None, *, cased=False):
    """The tokenizer of a checkpoint.

    Args:
        directories: list of str. Where its vocab.txt may be, and Hugging
            Face's tokenizer_config.json.
        vocab: str. Another vocab.txt. Defaults to `None`.
        cased: bool. Whether it is a cased BERT's, whatever a
            tokenizer_config.json says. Defaults to `False`.

    Raises:
        InputError: if there is none.
    """
    from realm_tf.text.tokenizer import Tokenizer

    path = vocab or find(directories, *_VOCABULARIES)
    if not path:
        raise InputError(
            f"{', '.join(directories)} holds no vocab.txt: name that of its "
            "BERT with --vocab."
        )
    said = find(directories, "tokenizer_config.json")
    if said:
        try:
            config = json.loads(Path(said).read_text())
        except ValueError as error:
            raise InputError(f"{said} is not JSON ({error}).") from error
        cased = cased or not config.get("do_lower_case", True)
    return Tokenizer.from_file(path, lowercase=not cased)


def find_license(directories) -> str:
    """What the header of a README.md says, or "unknown"."""
    from realm_tf.artifacts import model_card

    path = find(directories, "README.md")
    found = path and model_card.read_license(Path(path).read_text())
    return found or model_card.UNKNOWN_LICENSE
