"""Directories as operations leave them."""

import json
import os

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import write_text


def write(path, *, kind, seconds=1000.0, files=()):
    """Writes a complete directory.

    Args:
        path: str.
        kind: str. Of its metadata.
        seconds: float. How long the operation took.
        files: dict. Name to text.
    """
    os.makedirs(path)
    metadata = {"kind": kind, "seconds": seconds, "fingerprint": str(path)}
    files = {artifact.METADATA: json.dumps(metadata), **dict(files)}
    for name, text in {**files, artifact.MARKER: ""}.items():
        write_text(os.path.join(path, name), text)
