"""What commands hand to each other: a directory or a file, as an object."""

import functools
import os
from typing import ClassVar

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import absolute
from realm_tf.artifacts.paths import inside
from realm_tf.errors import InputError


class Named:
    """Something on a disk or an object store, which need not be there yet.

    Args:
        path: str or path.

    Attributes:
        path: str. Without a slash at its end.
    """

    metavar: ClassVar[str] = "DIR"

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path).rstrip("/")

    @classmethod
    def of(cls, value):
        """`value` as an object of this class, opened already or a path."""
        if isinstance(value, cls) or value is None:
            return value
        return cls(value)

    def __fspath__(self):
        return self.path

    def __str__(self):
        return self.path

    def __reduce__(self):
        # To a worker, which may be elsewhere, goes the path alone.
        return type(self), (absolute(self.path),)

    def __eq__(self, other):
        return type(self) is type(other) and self.path == other.path

    def __hash__(self):
        return hash((type(self), self.path))


class File(Named):
    """A file that a user gives, read once.

    Attributes:
        what: str. What an error calls it.
    """

    metavar = "FILE"
    what: ClassVar[str]

    @functools.cached_property
    def data(self) -> bytes:
        """The bytes of the file."""
        if not self.is_complete:
            raise InputError(f"{self.what} {self.path} does not exist.")
        return Path(self.path).read_bytes()

    @property
    def is_complete(self) -> bool:
        """Whether the file is there."""
        return Path(self.path).exists()

    @property
    def fingerprint(self) -> str:
        """Digest of the file, 16 hexadecimal digits."""
        return fingerprints.fingerprint(self.data)


def recorded(name: str) -> property:
    """What the metadata of an `Artifact` say under a name."""
    return property(lambda self: self.metadata[name])


class Artifact(Named):
    """A directory that a command wrote, opened and checked once.

    Nothing is read before it is needed: the output of a command that has not
    run yet is named by the same object that is later opened. Functions hand
    these objects on; a path becomes one where it enters, on the command line
    or in a Python call.

    Args:
        path: str or path. The directory, local or remote.

    Attributes:
        kind: str. What the directory holds.
        fingerprint: str. Digest of what decides the content, 16 hexadecimal
            digits.
        parents: dict. Name to fingerprint of what it was made from.
        parameters: dict. What determined the content besides the parents.
    """

    kind: ClassVar[str] = ""
    fingerprint = recorded("fingerprint")
    parents = recorded("parents")
    parameters = recorded("parameters")

    @property
    def directory(self) -> str:
        """Where its files are: `path`, or what was fetched from there."""
        return self.path

    @functools.cached_property
    def metadata(self) -> dict:
        """The content of metadata.json.

        Raises:
            InputError: if the directory is missing, incomplete or of another
                kind.
        """
        return artifact.read(self.directory, kind=self.kind)

    @property
    def is_complete(self) -> bool:
        """Whether the directory was written to its end."""
        return artifact.is_complete(self.directory)

    @property
    def counts(self) -> dict:
        """What was counted while the directory was made."""
        return self.metadata.get("counts", {})

    def file(self, name: str) -> str:
        """The path of a file in the directory.

        Raises:
            InputError: if the name leads out of it.
        """
        return inside(self.directory, name, source=self.path)

    def check_files(self, *, mend="Make or copy the directory again.") -> None:
        """Compares all files with their checksums.

        There are none in directories that earlier versions wrote.

        Args:
            mend: str. Says what to do about another content. Defaults to
                making it again.

        Raises:
            InputError: if a file is not what was written.
        """
        fingerprints.check_files(
            self.directory,
            self.metadata.get("checksums", {}),
            source=self.file(artifact.METADATA),
            mend=mend,
        )

    def read_json(self, name: str) -> dict:
        """The content of a file in the directory.

        Raises:
            InputError: if the directory is not complete, or the file damaged.
        """
        # First: a directory that is not complete is said to be so.
        self.metadata  # noqa: B018
        path = self.file(name)
        try:
            found = artifact.read_json(path)
            found.keys()
            return found
        except (OSError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path} is missing or damaged ({error}): make its directory "
                "again."
            ) from error

    def summary(self) -> str:
        """What the directory holds, in some words."""
        return self.kind

    def __repr__(self):
        name = type(self).__name__
        if not self.is_complete:
            return f"{name}({self.path!r}, not made yet)"
        found = [self.summary()]
        if "fingerprint" in self.metadata:
            found.append(f"fingerprint {self.fingerprint}")
        return f"{name}({self.path!r}: {', '.join(found)})"
