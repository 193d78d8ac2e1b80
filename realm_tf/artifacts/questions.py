"""Files of questions as objects."""

import functools

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.directory import Named
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError


class Questions(Named):
    """A JSONL file of questions, read once.

    Args:
        path: str or path. The file; `.gz` and `.bz2` are read as they are.
    """

    metavar = "FILE"

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

    def __repr__(self):
        if not self.is_complete:
            return f"Questions({self.path!r}, not made yet)"
        return f"Questions({self.path!r}: {len(self)} questions)"
