"""Opens checkpoints of all kinds, with the tokenizer and card beside them."""

import json
import os

from realm_tf.artifacts import hubs
from realm_tf.artifacts import model_card
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import model_garden
from realm_tf.checkpoints import tf1
from realm_tf.checkpoints.source import Source
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer

_VOCABULARIES = ("vocab.txt", "assets/vocab.txt")
# The vocabulary and more, as transformers 5 writes them.
TOKENIZER = "tokenizer.json"


def open_source(kind: str, source: str, num_heads: int | None = None) -> Source:
    """Opens a checkpoint.

    Args:
        kind: str. `"hf"`, `"tf1"` or `"garden"`.
        source: str. A local directory; of the first also the address of one,
            see `artifacts.hubs`, of the last two also the prefix of a
            checkpoint.
        num_heads: int. Attention heads of `"tf1"`, whose files do not say it;
            see `tf1.bert_config`.

    Returns:
        `Source`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    if kind == "hf":
        return hugging_face.open_source(source)
    if hubs.is_address(source):
        raise InputError(
            f"{source}: what is read from the hub is in Hugging Face's form, "
            f'"hf", and not "{kind}".'
        )
    if kind == "tf1":
        return tf1.open_source(source, num_heads)
    return model_garden.open_source(source)


def find(directories, *names) -> str | None:
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
        directories: list of str. Where its vocab.txt may be, or Hugging Face's
            tokenizer.json, and their tokenizer_config.json.
        vocab: str. Another vocab.txt. Defaults to `None`.
        cased: bool. Whether it is a cased BERT's, whatever a
            tokenizer_config.json says. Defaults to `False`.

    Returns:
        `Tokenizer`.

    Raises:
        InputError: if there is none.
    """
    path = vocab or find(directories, *_VOCABULARIES, TOKENIZER)
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
        _check_accents(said, config, not cased)
    if os.path.basename(path) == TOKENIZER:
        wordpieces, lowercase = _read_tokenizer(path)
        return Tokenizer(wordpieces, lowercase=lowercase and not cased)
    return Tokenizer.from_file(path, lowercase=not cased)


def _check_accents(path, settings, lowercase):
    """Refuses to strip accents without lower-casing, or the other way round."""
    if settings.get("strip_accents") not in (None, lowercase):
        raise InputError(
            f"{path} sets strip_accents to {settings['strip_accents']} and "
            f"lower-casing to {lowercase}: a tokenizer here does both or neither."
        )


def _read_tokenizer(path):
    """Of a tokenizer.json, the vocabulary in the order of its ids, and whether
    texts are lower-cased."""
    try:
        content = json.loads(Path(path).read_text())
        model, normalizer = content["model"], content.get("normalizer") or {}
        kind, ids = model.get("type", "WordPiece"), dict(model["vocab"])
        lowercase = normalizer.get("lowercase", True)
        _check_accents(path, normalizer, lowercase)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no tokenizer of Hugging Face's ({error!r})."
        ) from error
    if kind != "WordPiece" or sorted(ids.values()) != list(range(len(ids))):
        raise InputError(
            f"{path} is of the kind {kind}, of {len(ids):,} pieces: expected "
            "WordPiece, a BERT's, with ids from 0 on."
        )
    return sorted(ids, key=ids.get), lowercase


def find_header(directories) -> dict:
    """What the header of a README.md says: `license` and `languages`."""
    path = find(directories, "README.md")
    return model_card.read_header(Path(path).read_text()) if path else {}
