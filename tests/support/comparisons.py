"""Comparisons of systems whose inputs need not be there."""

import json
import os

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import write_text
from realm_tf.operations.ablate import Ablate

TINY = {
    f"{name}_recipe": "tiny" for name in ("pretrain", "ict", "dpr", "finetune")
}


def make_ablate(root, **changes):
    """`Ablate` by recipes for tests, of directories of which none is there.

    Args:
        root: path. The corpus, of which the kind matters, is made in it.
        **changes: fields with other values.
    """
    corpus = os.path.join(root, "corpus")
    if not os.path.exists(corpus):
        write_directory(corpus, kind="annotated")
    given = {name: os.path.join(root, name) for name in ("blocks", "output")}
    given |= {"model": os.path.join(root, "start"), "corpus": corpus}
    given |= {"train": ["none"], "dev": "none", "test": ["nq.jsonl"], **TINY}
    return Ablate(**(given | {"suite": "table2"} | changes))


def write_directory(path, *, kind, seconds=1000.0, files=()):
    """A directory as an operation leaves it that took so long.

    Args:
        path: str.
        kind: str. What it holds.
        seconds: float.
        files: dict. Name to text.
    """
    os.makedirs(path)
    metadata = {"kind": kind, "seconds": seconds, "fingerprint": str(path)}
    files = {artifact.METADATA: json.dumps(metadata), **dict(files)}
    for name, text in {**files, artifact.MARKER: ""}.items():
        write_text(os.path.join(path, name), text)
