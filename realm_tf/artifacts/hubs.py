"""Repositories of the Hugging Face Hub, by address: hf://OWNER/NAME@REVISION.

Its library fetches them into its cache: `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`
and `HF_HUB_OFFLINE` are its own, and what broke off goes on where it was.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable

from realm_tf.errors import InputError

_ADDRESS = re.compile(r"hf://(?P<repo>[^/@\s]+/[^/@\s]+)(@(?P<revision>\S+))?")
_PREFIX = "hf://"


def is_address(path: str) -> bool:
    """Whether a path is the address of a repository."""
    return str(path).startswith(_PREFIX)


def absolute(path: str) -> str:
    """A path from the root, or an address as it is."""
    return path if is_address(path) else os.path.abspath(path)


def fetch(
    address: str, choose: Callable[[list[str]], Iterable[str]] | None = None
) -> str:
    """Fetches a repository, or some of its files.

    Without the hub (`HF_HUB_OFFLINE=1`, or no network) it is what was fetched
    before.

    Args:
        address: str. `hf://OWNER/NAME`, or `hf://OWNER/NAME@REVISION` with a
            branch, tag or commit.
        choose: function of the names of all files that gives those to fetch.
            Defaults to `None`: all.

    Returns:
        str, a directory of the cache.

    Raises:
        InputError: if it is no address, there is no such repository or
            revision, or it may not be read, or the transfer fails.
    """
    import huggingface_hub

    repo, revision = _parse(address)
    with _told(address):
        found = _files(repo, revision)
        if found is None:
            # The directory of what was fetched before.
            return huggingface_hub.snapshot_download(
                repo,
                revision=revision,
                local_files_only=True,
                allow_patterns="config.json",
            )
        commit, sizes = found
        names = sorted(sizes if choose is None else choose(list(sizes)))
        missing = [
            name
            for name in names
            if not isinstance(
                huggingface_hub.try_to_load_from_cache(
                    repo, name, revision=commit
                ),
                str,
            )
        ]
        if missing:
            size = sum(sizes[name] for name in missing)
            print(
                f"{address}: fetching {len(missing)} files, "
                f"{size / 1e6:,.1f} MB",
                file=sys.stderr,
                flush=True,
            )
        # By the name of the revision, which the cache remembers for offline.
        return huggingface_hub.snapshot_download(
            repo,
            revision=revision,
            allow_patterns=[_literally(name) for name in names],
        )


def push(directory: str, address: str, *, message: str) -> str:
    """Writes a directory as a repository, which is made if it is not there.

    Args:
        directory: str. Local; all its files.
        address: str. `hf://OWNER/NAME`, or with a branch that is there.
        message: str. Of the commit.

    Returns:
        str, the commit's URL.

    Raises:
        InputError: if it is no address, it may not be written, or the
            transfer fails.
    """
    import huggingface_hub

    repo, revision = _parse(address)
    with _told(address):
        api = huggingface_hub.HfApi()
        api.create_repo(repo, exist_ok=True)
        return api.upload_folder(
            repo_id=repo,
            folder_path=directory,
            revision=revision,
            commit_message=message,
        ).commit_url


def suggestion(path: str) -> str:
    """What to say of a directory that is not there: perhaps it is a name."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not os.path.exists(path):
        return (
            f" For the model of this name on the Hugging Face Hub write "
            f"{_PREFIX}{path}."
        )
    return ""


def _parse(address):
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(
            f"{address} is no address of a model on the Hugging Face Hub: "
            f"expected {_PREFIX}OWNER/NAME, or {_PREFIX}OWNER/NAME@REVISION."
        )
    return found["repo"], found["revision"]


def _files(repo, revision):
    """`(commit, size of each file)`, or `None` if the hub is out of reach."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        found = huggingface_hub.HfApi().model_info(
            repo, revision=revision, files_metadata=True
        )
    except errors.HfHubHTTPError:
        raise
    except (OSError, errors.HTTPError):
        return None
    return found.sha, {
        each.rfilename: each.size or 0 for each in found.siblings
    }


@contextlib.contextmanager
def _told(address):
    """Its library's errors as one sentence."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise InputError(
            f"{address} is open only to those who accepted its terms: accept "
            "them on its page and log in with `hf auth login`."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{address} is not on the hub, or not for everybody: check its "
            "name, or log in with `hf auth login`."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"{address}: the repository has no such branch, tag or commit."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise InputError(
            f"{address}: the hub cannot be reached, and nothing of it was "
            "fetched before. Check the network, HF_ENDPOINT and "
            "HF_HUB_OFFLINE, or name a local directory."
        ) from error
    except (OSError, ValueError, errors.HTTPError) as error:
        answer = getattr(error, "response", None)
        if answer is not None and answer.status_code in (401, 403):
            raise InputError(
                f"{address} may not be read or written so: log in with `hf "
                "auth login`, by a token that may."
            ) from error
        said = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{address}: the transfer failed ({type(error).__name__}: {said}). "
            "The same command goes on where it was."
        ) from error


def _literally(name):
    """A pattern that matches this name alone."""
    return re.sub(r"([*?[])", r"[\1]", name)
