"""Files of questions as objects."""

import functools
import os

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Artifact
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError


class Questions:
    """A JSONL file of questions, read once.

    Args:
        path: str or path. The file; `.gz` and `.bz2` are read as they are.
    """

    metavar = "FILE"

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)

    of = classmethod(Artifact.of.__func__)

    @functools.cached_property
    def questions(self) -> list:
        """`Question` of each line; see `question_files.read_questions`."""
        from realm_tf.artifacts import question_files

        return question_files.read_questions(self.path)

    @functools.cached_property
    def data(self) -> bytes:
        """The bytes of the file."""
        if not Path(self.path).exists():
            raise InputError(f"Questions file {self.path} does not exist.")
        return Path(self.path).read_bytes()

    @property
    def is_complete(self) -> bool:
        """Whether the file is there."""
        return Path(self.path).exists()

    @property
    def fingerprint(self) -> str:
        """Digest of the file, 16 hexadecimal digits."""
        return fingerprints.fingerprint(self.data)

    def __len__(self):
        return len(self.questions)

    def __iter__(self):
        return iter(self.questions)

    def __fspath__(self):
        return self.path

    def __str__(self):
        return self.path

    def __eq__(self, other):
        return type(self) is type(other) and self.path == other.path

    def __hash__(self):
        return hash((type(self), self.path))

    def __repr__(self):
        if not self.is_complete:
            return f"Questions({self.path!r}, not made yet)"
        return f"Questions({self.path!r}: {len(self)} questions)"
