"""Where the documents of a corpus come from: folders, globs, files, a feed.

What a disk does not give at the moment may be back tomorrow. So a source that
cannot be read as a whole raises `OSError`, and whoever asked keeps what it has.
"""

import contextlib
import dataclasses
import errno
import fnmatch
import functools
import glob
import itertools
import os
import re
from collections.abc import Iterable
from typing import Literal

import pathspec

from realm_tf.articles import pages
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError
from realm_tf.text.printable import printable

FEED = "feed"
_IGNORED = ".gitignore"
_NUM_EXAMPLES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A source of documents, and what was found at the last sync.

    Args:
        label: str. What its ids begin with; of no other source of the corpus.
        kind: str.
        path: str. Absolute; `""` of a feed.
        exclude: list of str. Patterns as in .gitignore, relative to the
            folder. Defaults to none.
        all: bool. Whether hidden files and those that .gitignore names are
            documents, too. Defaults to `False`.
        mounts: list of str. Folders of it where a disk or share was mounted.
            Defaults to none.
        unread: list of dict, as of `grouped`. Defaults to none.
        warnings: list of dict, as of `grouped`, of what was said of files that
            were read. Defaults to none.
        dropped: dict. Reason to number of records that are no documents.
            Defaults to none.
        synced: float. When it was last read, in seconds since the epoch.
            Defaults to `None`: never.
        error: str. Why it could not be read since then. Defaults to `""`.
    """

    label: str
    kind: Literal["folder", "glob", "file", "feed"]
    path: str
    exclude: list[str] = dataclasses.field(default_factory=list)
    all: bool = False
    mounts: list[str] = dataclasses.field(default_factory=list)
    unread: list[dict] = dataclasses.field(default_factory=list)
    warnings: list[dict] = dataclasses.field(default_factory=list)
    dropped: dict = dataclasses.field(default_factory=dict)
    synced: float | None = None
    error: str = ""

    @classmethod
    def of(cls, path: str, *, labels: Iterable[str] = (), **filters):
        """The source of a path or glob.

        Args:
            path: str.
            labels: iterable of str. Of other sources. Defaults to none.
            **filters: `exclude` and `all`.

        Raises:
            InputError: if there is nothing at the path, or a pattern is none.
        """
        full, kind = path if is_remote(path) else os.path.abspath(path), "file"
        if os.path.isdir(path):
            kind = "folder"
        # A name with brackets in it is a name before it is a glob.
        elif glob.has_magic(path) and not os.path.lexists(path):
            kind = "glob"
        elif not (is_remote(path) or os.path.lexists(path)):
            raise InputError(
                f"{path} does not exist: name a folder, a file or a glob."
            )
        found = cls(label="", kind=kind, path=full, **filters)
        try:
            pathspec.GitIgnoreSpec.from_lines(found.exclude)
        except ValueError as error:
            raise InputError(
                f"--exclude: {error}: expected patterns as in .gitignore."
            ) from error
        name = os.path.basename(full if kind == "file" else found.root)
        return dataclasses.replace(found, label=unique(name, labels))

    @functools.cached_property
    def root(self) -> str:
        """The folder that paths of documents are below."""
        if self.kind == "folder":
            return self.path
        parts = self.path.split("/")
        if self.kind == "glob":
            num = [*map(glob.has_magic, parts)].index(True)
            return "/".join(parts[:num]) or "/"
        return os.path.dirname(self.path)

    def name_of(self, path: str) -> str:
        """The label and the path of a file below it."""
        below = path[len(self.root) :].strip("/")
        name = self.label if self.kind == "file" else f"{self.label}/{below}"
        # A line break may be in a file's name.
        return printable(pages.valid_text(name)).replace("\n", "\\n")

    def find(self, without: str | None = None) -> tuple[list[str], list[str]]:
        """All files, sorted, and folders where something is mounted.

        Args:
            without: str. A folder that is left out, as of `realpath`. Defaults
                to `None`.

        Raises:
            OSError: if any of it cannot be read.
        """
        if is_remote(self.path):
            try:
                return pages.find_files([self.path]), []
            except InputError as error:
                raise FileNotFoundError(str(error)) from error
        if self.kind == "file":
            os.stat(self.path)
            return [self.path], []
        for name in self.mounts:
            folder = os.path.join(self.root, name)
            if not _is_mount(folder):
                raise OSError(
                    errno.ENODEV, "Nothing is mounted there any more", folder
                )
        files, mounts = [], []
        rules = [] if self.all else _rules_above(self.root)
        pending = [(self.root, rules)]
        while pending:
            folder, rules = pending.pop()
            if _is_mount(folder):
                mounts.append(os.path.relpath(folder, self.root))
            with os.scandir(folder) as entries:
                entries = list(entries)
            # Another corpus says what its own documents do.
            if {"corpus.json", "segments"} <= {each.name for each in entries}:
                continue
            if not self.all:
                rules = [*rules, *_rules_of(folder)]
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if self._is_left_out(entry.path, is_folder, rules):
                    continue
                if not is_folder:
                    files.append(entry.path)
                elif os.path.realpath(entry.path) != without:
                    pending.append((entry.path, rules))
        return sorted(files), sorted(mounts)

    @functools.cached_property
    def _excluded(self):
        return pathspec.GitIgnoreSpec.from_lines(self.exclude)

    def _is_left_out(self, path, is_folder, rules):
        below = os.path.relpath(path, self.root)
        parts = below.split("/")
        # Git's own are never documents.
        if parts[-1] == ".git" or (parts[-1][0] == "." and not self.all):
            return True
        pattern = self.path[len(self.root) :].strip("/").split("/")
        if self.kind == "glob" and not _fits(parts, pattern, is_folder):
            return True
        # What is below is read where it is.
        if not is_folder and os.path.isdir(path) and self.holds(path):
            return True
        return (
            self._excluded.match_file(below + "/" * is_folder)
            or _verdict(path + "/" * is_folder, rules) is True
        )

    def holds(self, path: str) -> bool:
        """Whether a path is in its folder, and no link out of it."""
        if self.kind == "file" or is_remote(self.path):
            return True
        top = os.path.join(os.path.realpath(self.root), "")
        return os.path.join(os.path.realpath(path), "").startswith(top)


def unique(name: str, labels: Iterable[str]) -> str:
    """A label that is none of others."""
    name, labels = pages.valid_text(name) or "documents", set(labels)
    names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(each for each in names if each not in labels)


def grouped(unread: dict[str, str]) -> list[dict]:
    """Files that were not read, in groups of one reason and extension.

    Args:
        unread: dict of str to str. File to the reason.

    Returns:
        list of dict: `reason` (of the first), `extension`, `files` (how many)
        and up to three `examples`.
    """
    groups = {}
    for file, reason in sorted(unread.items()):
        name, extension = os.path.basename(file), pages.extension_of(file)
        kind = re.sub(rf"\S*{re.escape(name)}|\d+", "", reason)
        groups.setdefault((extension, kind), []).append(file)
    return [
        {
            "reason": unread[files[0]],
            "extension": extension,
            "files": len(files),
            "examples": files[:_NUM_EXAMPLES],
        }
        for (extension, _), files in groups.items()
    ]


def _is_mount(folder):
    # A link is never one.
    return os.path.ismount(os.path.realpath(folder))


def _fits(parts, pattern, is_folder):
    """Whether a glob names a path or, of a folder, what may be below it."""
    if not parts:
        return is_folder or set(pattern) <= {"**"}
    if not pattern:
        return False
    if pattern[0] == "**":
        return _fits(parts, pattern[1:], is_folder) or _fits(
            parts[1:], pattern, is_folder
        )
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(
        parts[1:], pattern[1:], is_folder
    )


def _rules_of(folder):
    """`[(folder, its .gitignore)]`, if it has one."""
    path, valid = os.path.join(folder, _IGNORED), []
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            # As git does, without a line that is no pattern.
            with contextlib.suppress(ValueError):
                pathspec.GitIgnoreSpec.from_lines([line])
                valid.append(line)
    return [(folder, pathspec.GitIgnoreSpec.from_lines(valid))]


def _rules_above(root):
    """Those of the folders above, up to that of a git repository."""
    rules, folder = [], root
    while not os.path.exists(os.path.join(folder, ".git")):
        folder = os.path.dirname(folder)
        if folder == os.path.dirname(folder):
            return []
        rules = _rules_of(folder) + rules
    # A folder that is named is read, whatever they say of it.
    return [] if _verdict(f"{root}/", rules) else rules


def _verdict(path, rules):
    """Whether the last rule about a path ignores it; `None` if none is."""
    for folder, spec in reversed(rules):
        verdict = spec.check_file(path[len(folder) :].lstrip("/")).include
        if verdict is not None:
            return verdict
    return None
