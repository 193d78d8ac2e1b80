"""The variables of an export, as they are named where they are saved."""

import os

# A prefix of files, as TensorFlow's checkpoints have one.
PREFIX = os.path.join("variables", "variables")
# Of `RealmModule.corpus`: what other blocks would change.
CORPUS = "corpus/"
_ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"


def key_of(path: str) -> str:
    """The name of the variable at a path from `RealmModule.corpus`."""
    return f"{CORPUS}{path}{_ATTRIBUTE}"
