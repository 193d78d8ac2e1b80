"""Directories of Sentence Transformers: how a text becomes an embedding.

modules.json names a Transformer, a pooling and perhaps a normalisation, each
with a configuration of its own; config_sentence_transformers.json the prompts
that come before texts.
"""

import json
import os

from realm_tf.checkpoints.source import Embedding
from realm_tf.errors import InputError

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
_POOLING_CONFIG = "config.json"
# Its name of a pooling, in old files with the ending below, to ours.
_POOLINGS = {"cls": "first", "cls_token": "first", "mean": "mean"}
_OLD_POOLING = "pooling_mode_"
_OLD_ENDING = "_tokens"
# Names of prompts of what is searched for and of what is found.
_OF_QUERIES = ("query", "search_query", "retrieval.query")
_OF_BLOCKS = ("passage", "document", "search_document", "retrieval.passage")


def read(directory: str) -> Embedding | None:
    """How a directory says that texts are embedded.

    Args:
        directory: str. Local.

    Returns:
        `Embedding`; `None` if it is not one of Sentence Transformers.

    Raises:
        InputError: if it has a module, a pooling or a kind of prompt that no
            tower here has.
    """
    path = os.path.join(directory, MODULES)
    if not os.path.exists(path):
        return None
    pooling, normalize = "mean", False
    for module in _json(path):
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(os.path.join(directory, module["path"]))
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer" or module["path"]:
            raise InputError(
                f"{path} names a {kind} in {module['path'] or 'it'}: expected "
                "a Transformer beside it, a Pooling and perhaps a Normalize."
            )
    # Where nothing is said, as Sentence Transformers does.
    prompts, similarity = {}, "cosine"
    path = os.path.join(directory, PROMPTS)
    if os.path.exists(path):
        config = _json(path)
        prompts = config.get("prompts") or {}
        similarity = config.get("similarity_fn_name") or similarity
        if similarity not in ("dot", "cosine"):
            raise InputError(
                f"{path} compares by {similarity}: expected dot or cosine."
            )
    # Cosines are products of what is normalised.
    normalize = normalize or similarity == "cosine"
    return Embedding(
        pooling,
        None,
        normalize,
        _first(prompts, _OF_QUERIES),
        _first(prompts, _OF_BLOCKS),
    )


def _json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is missing or no JSON ({error}).") from error


def _pooling(directory):
    path = os.path.join(directory, _POOLING_CONFIG)
    config = _json(path)
    modes = config.get("pooling_mode") or [
        name.removeprefix(_OLD_POOLING).removesuffix(_OLD_ENDING)
        for name, value in config.items()
        if name.startswith(_OLD_POOLING) and value is True
    ]
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise InputError(
            f"{path} asks for the pooling {' and '.join(modes) or 'nothing'}: "
            "expected the first position's or the mean."
        )
    if not config.get("include_prompt", True):
        raise InputError(
            f"{path} leaves prompts out of the mean, which no tower here does."
        )
    return _POOLINGS[modes[0]]


def _first(prompts, names):
    return next((prompts[name] for name in names if prompts.get(name)), "")
