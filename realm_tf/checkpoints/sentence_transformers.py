"""Directories of Sentence Transformers: how a text becomes an embedding.

modules.json names a Transformer, a pooling and perhaps a normalisation, each
with a configuration of its own; config_sentence_transformers.json the prompts
that come before texts.
"""

import json
import os

from realm_tf.artifacts.paths import inside
from realm_tf.checkpoints.source import Embedding
from realm_tf.errors import InputError

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
# Its name of a pooling, in new and in old files, to ours.
_POOLINGS = {
    "cls": "first",
    "pooling_mode_cls_token": "first",
    "mean": "mean",
    "pooling_mode_mean_tokens": "mean",
}
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
            pooling = _pooling(
                inside(directory, f"{module['path']}/config.json", source=path)
            )
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
    prefixes = [
        next((prompts[name] for name in names if prompts.get(name)), "")
        for names in (_OF_QUERIES, _OF_BLOCKS)
    ]
    return Embedding(pooling, None, normalize, *prefixes)


def _json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is missing or no JSON ({error}).") from error


def _pooling(path):
    config = _json(path)
    modes = config.get("pooling_mode") or [
        name
        for name, value in config.items()
        if name.startswith("pooling_mode_") and value is True
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
