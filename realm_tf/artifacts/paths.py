"""Paths, local or on an object store: the only module that knows which.

`Path` gives pathlib's methods for local paths and for those of object stores
(`gs://`, `s3://`, `az://` and what else fsspec knows). Credentials are those
that fsspec's libraries (gcsfs, s3fs, adlfs) find, and so are retries.
"""

import contextlib
import functools
import hashlib
import io
import logging
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Iterator

from realm_tf.errors import InputError
from realm_tf.errors import Resumable

TEMPORARY = ".tmp"
# Protocol to the extra that brings its library.
_EXTRAS = {
    "gs": "gcp",
    "gcs": "gcp",
    "s3": "s3",
    "az": "azure",
    "abfs": "azure",
}
# What changes with a file's content, by the names of the libraries.
_VERSIONS = ("etag", "ETag", "generation", "mtime", "created")


def is_remote(path: str) -> bool:
    """Whether `path` is on an object store rather than a local disk."""
    return "://" in str(path)


class LocalPath(type(pathlib.Path())):
    """A local path, whose text files are in UTF-8."""

    def read_text(self):
        return super().read_text(encoding="utf-8")

    def write_text(self, text):
        return super().write_text(text, encoding="utf-8")

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self.stat().st_size

    @property
    def state(self) -> str:
        """Changes with the content of the file."""
        return str(self.stat().st_mtime_ns)


class RemotePath(os.PathLike):
    """A path on an object store, with the methods of `pathlib.Path` used here.

    Folders are prefixes there: they need not be made.

    Raises:
        InputError: by every method, if the store cannot be reached or refuses,
            or no library for it is installed.
    """

    def __init__(self, path: str):
        self._path = str(path).rstrip("/")
        self.name = self._path.rpartition("/")[2]

    def __fspath__(self):
        return self._path

    def __repr__(self):
        return f"{type(self).__name__}({self._path!r})"

    __str__ = __fspath__

    def __truediv__(self, name):
        return RemotePath(f"{self._path}/{name}")

    def _call(self, method, *arguments, **options):
        with _reaching(self._path):
            system = _file_system(self._path.partition("://")[0])
            return getattr(system, method)(self._path, *arguments, **options)

    def exists(self) -> bool:
        return self._call("exists")

    def is_dir(self) -> bool:
        return self._call("isdir")

    def is_file(self) -> bool:
        return self._call("isfile")

    def iterdir(self) -> "Iterator[RemotePath]":
        """Yields what is in a folder; nothing, if there is none."""
        try:
            found = self._call("ls", detail=False)
        except FileNotFoundError:
            return
        for each in found:
            if name := each.rstrip("/").removeprefix(self._inside).lstrip("/"):
                yield self / name

    def glob(self, pattern: str) -> "Iterator[RemotePath]":
        protocol = self._path.partition("://")[0]
        for each in (self / pattern)._call("glob"):
            yield RemotePath(f"{protocol}://{each.lstrip('/')}")

    def files(self) -> list[str]:
        """Paths of all files below, relative to this one, sorted."""
        found = self._call("find")
        return sorted(x.removeprefix(self._inside).lstrip("/") for x in found)

    @property
    def _inside(self):
        return self._call("_strip_protocol").rstrip("/")

    def mkdir(self, **_) -> None:
        """Does nothing."""

    def open(self, mode: str = "r"):
        """Opens the file to be read; see `writing`."""
        if mode not in ("r", "rb"):
            raise ValueError(f"`mode` must be r or rb. Received: {mode}")
        # fsspec's `readline` takes no limit.
        file = io.BufferedReader(self._call("open", "rb"), 1 << 16)
        return file if "b" in mode else io.TextIOWrapper(file, "utf-8")

    def read_bytes(self) -> bytes:
        return self._call("cat_file")

    def read_text(self) -> str:
        return self.read_bytes().decode("utf-8")

    def write_bytes(self, content: bytes) -> None:
        """Writes the file, whole or not at all."""
        with _writing(self._path):
            self._call("pipe_file", content)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode("utf-8"))

    def unlink(self) -> None:
        self._call("rm_file")

    def rmtree(self) -> None:
        self._call("rm", recursive=True)

    def download(self, path: str) -> None:
        """Copies the file to a local one."""
        self._call("get_file", path)

    def upload(self, path: str) -> None:
        """Writes the file, whole or not at all: a copy of a local one."""
        system = _file_system(self._path.partition("://")[0])
        with _writing(self._path), _reaching(self._path):
            system.put_file(path, self._path)

    @functools.cached_property
    def _info(self):
        return self._call("info")

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self._info["size"]

    @property
    def state(self) -> str:
        """Changes with the content of the file."""
        return str(next(filter(None, map(self._info.get, _VERSIONS)), ""))


def Path(path: str | os.PathLike) -> LocalPath | RemotePath:
    """A path with pathlib's methods, local or on an object store."""
    return RemotePath(path) if is_remote(path) else LocalPath(path)


def _file_system(protocol):
    import fsspec

    # gcsfs asks for each bucket's type before each call, on credentials that a
    # public bucket does not need, and uses it for renames.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # It logs the traceback of what it raises.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    try:
        # Other machines write, too: nothing that was listed stays true.
        return fsspec.filesystem(protocol, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(protocol)
        raise InputError(
            f"{protocol}:// needs a library that is not installed here: run "
            f"`pip install 'realm-tf[{extra}]'`."
            if extra
            else f"{protocol}:// cannot be used ({error}): expected a local "
            f"path or one of {', '.join(f'{x}://' for x in _EXTRAS)}."
        ) from error


@contextlib.contextmanager
def _reaching(path):
    """Makes one sentence of what an object store refuses."""
    try:
        yield
    except (FileNotFoundError, InputError):
        raise
    except Exception as error:
        # Each library has exceptions of its own.
        reason = " ".join(str(error).split())[:300]
        raise Resumable(
            f"{path} cannot be reached ({type(error).__name__}: {reason}): "
            "check the network, that the bucket exists and that the "
            "credentials of this machine may use it, then give the same "
            "command again."
        ) from error


@contextlib.contextmanager
def _writing(path):
    try:
        yield
    except FileNotFoundError as error:
        bucket = "/".join(path.split("/")[:3])
        raise Resumable(
            f"{path} cannot be written: there is no bucket {bucket}. Make it "
            "or name another one."
        ) from error


def absolute(path: str) -> str:
    """A path that means the same in other processes and on other machines."""
    return str(path) if is_remote(path) else os.path.abspath(path)


@contextlib.contextmanager
def writing(path: str, *, directory: str | None = None):
    """Yields a local path, of what appears at `path` when the block ends well.

    If it does not (a full disk, say), nothing is left. Object stores get whole
    files only. On a disk, names differ by process and thread: a worker that
    outlives a killed run for some seconds must not write into a file of ours.

    Args:
        path: str.
        directory: str. Another directory on the same disk to write in.
            Defaults to `None`: that of `path`.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = os.path.join(folder, os.path.basename(path))
            yield temporary
            Path(path).upload(temporary)
        return
    folder, name = os.path.split(path)
    name += f".{os.getpid()}-{threading.get_ident()}{TEMPORARY}"
    temporary = os.path.join(directory or folder, name)
    try:
        yield temporary
    except BaseException:
        remove(temporary)
        raise
    os.replace(temporary, path)


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file, which appears whole or not at all."""
    if is_remote(path):
        Path(path).write_text(text)
        return
    with writing(path) as temporary:
        Path(temporary).write_text(text)


def check_new_file(path: str, *, flag: str) -> None:
    """Refuses a file, given by a flag, that is there or could not be written.

    Raises:
        InputError: if so.
    """
    if Path(path).exists():
        raise InputError(
            f"{path} exists already. Remove it or choose another {flag}."
        )
    folder = os.path.dirname(path)
    if folder and not (is_remote(folder) or os.path.isdir(folder)):
        raise InputError(f"{flag}: the directory {folder} does not exist.")


def cache_folder() -> str:
    """`$XDG_CACHE_HOME/realm`, by default `~/.cache/realm`: it may be removed."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return os.path.join(cache, "realm")


def local_copy(path: str) -> str:
    """A file that can be mapped into memory: `path`, or a copy of a remote one.

    The copy stays in `cache_folder`, and serves as long as the remote file is
    the same.
    """
    if not is_remote(path):
        return path
    found = Path(path)
    copy = _cached(path, f"{found.size} {found.state}")
    if not os.path.exists(copy):
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with writing(copy) as temporary:
            found.download(temporary)
    return copy


def _cached(path, state):
    content = hashlib.sha256(f"{path} {state}".encode()).hexdigest()
    return os.path.join(cache_folder(), content[:16], os.path.basename(path))


def local_directory(directory: str) -> str:
    """A complete directory on a local disk: itself, or a copy as `local_copy`."""
    if not is_remote(directory):
        return directory
    files = {
        name: Path(os.path.join(directory, name))
        for name in list_files(directory)
    }
    states = " ".join(f"{n} {x.size} {x.state}" for n, x in files.items())
    copy = _cached(directory, states)
    if not os.path.exists(copy):
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(copy)) as new:
            _download(files, new)
            try:
                os.rename(new, copy)
            except OSError:
                # Unless another process was faster.
                if not os.path.exists(copy):
                    raise
    return copy


def _download(files, directory):
    for name, path in files.items():
        copy = os.path.join(directory, name)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        path.download(copy)


class Mirror:
    """A local directory whose files are kept on an object store, too.

    Args:
        directory: str. Local and empty.
        remote: str. What is there already is fetched.
    """

    def __init__(self, directory: str, remote: str):
        self._directory, self._remote = directory, remote
        names = list_files(remote)
        _download({n: Path(os.path.join(remote, n)) for n in names}, directory)
        self._known = self._states()

    def _states(self):
        states = {}
        for name in list_files(self._directory):
            found = os.stat(os.path.join(self._directory, name))
            states[name] = found.st_size, found.st_mtime_ns, found.st_ino
        return states

    def save(self) -> None:
        """Writes what is new or has changed, and removes what is gone."""
        states = self._states()
        for name, state in states.items():
            if self._known.get(name) != state:
                path = Path(os.path.join(self._remote, name))
                path.upload(os.path.join(self._directory, name))
        for name in self._known.keys() - states.keys():
            remove(os.path.join(self._remote, name))
        self._known = states


def inside(directory: str, name: str, *, source: str) -> str:
    """The path of a file that other files name.

    Args:
        directory: str. Where the file must be, or below it.
        name: str. Relative to `directory`.
        source: str. What names it, for the error.

    Raises:
        InputError: if it is no such name.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    # An empty part: of no name, an absolute one or an address.
    if "" in parts or ".." in parts:
        raise InputError(
            f"{source} names the file {name!r}: expected one inside "
            f"{directory}. Make or fetch the directory again."
        )
    return os.path.join(directory, name)


def list_files(directory: str) -> list[str]:
    """Paths of all files below a directory, relative to it, sorted."""
    if is_remote(directory):
        return Path(directory).files()
    return sorted(
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _, names in os.walk(directory)
        for name in names
    )


def remove(path: str) -> None:
    """Removes a file or a whole directory, if it is there."""
    found = Path(path)
    if found.is_dir():
        found.rmtree() if is_remote(path) else shutil.rmtree(path)
    elif found.exists():
        found.unlink()
