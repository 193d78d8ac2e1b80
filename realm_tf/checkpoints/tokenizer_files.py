"""The tokenizer beside a checkpoint."""

import json
import os

import tokenizers

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer
from realm_tf.text.tokenizer import bert_wordpieces

# The vocabulary and more, as transformers 5 writes them.
TOKENIZER = "tokenizer.json"


def find(directories, *names) -> str | None:
    """The first of some files in some directories, or `None`."""
    for directory in directories:
        for name in names:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                return path
    return None


def find_tokenizer(directories, vocab: str | None = None):
    """The tokenizer of a checkpoint.

    Args:
        directories: list of str. Where its vocab.txt may be, or Hugging Face's
            tokenizer.json, and their tokenizer_config.json.
        vocab: str. Another vocab.txt. Defaults to `None`.

    Returns:
        `Tokenizer`.

    Raises:
        InputError: if there is none.
    """
    path = vocab or find(
        directories, "vocab.txt", "assets/vocab.txt", TOKENIZER
    )
    if not path:
        raise InputError(
            f"{', '.join(directories)} holds no vocab.txt: name that of its "
            "BERT with --vocab."
        )
    lowercase = None
    said = find(directories, "tokenizer_config.json")
    if said:
        try:
            config = json.loads(Path(said).read_text())
        except ValueError as error:
            raise InputError(f"{said} is not JSON ({error}).") from error
        lowercase = config.get("do_lower_case", True)
        _check_accents(said, lowercase, config.get("strip_accents"))
    if os.path.basename(path) != TOKENIZER:
        return Tokenizer.from_file(path, lowercase=lowercase)
    try:
        read = tokenizers.Tokenizer.from_file(path)
        settings = read.normalizer.lowercase, read.normalizer.strip_accents
        ids = read.get_vocab(with_added_tokens=False)
        is_bert = isinstance(read.model, tokenizers.models.WordPiece)
        if not is_bert or sorted(ids.values()) != [*range(len(ids))]:
            raise ValueError(f"{len(ids):,} pieces of {read.model}"[:99])
    except Exception as error:  # It raises no other class.
        raise InputError(
            f"{path} is no tokenizer of a BERT's ({error}): expected WordPiece "
            "and a BertNormalizer."
        ) from error
    _check_accents(path, *settings)
    wordpieces = bert_wordpieces(sorted(ids, key=ids.get))
    return Tokenizer(
        wordpieces, lowercase=settings[0] and lowercase is not False
    )


def _check_accents(path, lowercase, strip_accents):
    """Refuses to strip accents without lower-casing, or the other way round."""
    if strip_accents not in (None, lowercase):
        raise InputError(
            f"{path} sets strip_accents to {strip_accents} and lower-casing to "
            f"{lowercase}: a tokenizer here does both or neither."
        )
