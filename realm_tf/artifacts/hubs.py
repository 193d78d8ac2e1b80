"""Repositories of the Hugging Face Hub, by address: hf://OWNER/NAME@REVISION.

huggingface_hub fetches them into its cache, resumes broken transfers and works
offline; it reads `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`.
"""

import contextlib
import re

from realm_tf.errors import InputError

_ADDRESS = re.compile(r"hf://(?P<repo>[^/@\s]+/[^/@\s]+)(@(?P<revision>\S+))?")
_PREFIX = "hf://"


def is_address(path: str) -> bool:
    """Whether a path is the address of a repository."""
    return str(path).startswith(_PREFIX)


def fetch(address: str, patterns: list[str] | None = None) -> str:
    """Fetches a repository, or some of its files.

    Without a network it is the files that were fetched before.

    Args:
        address: str. `hf://OWNER/NAME`, or `hf://OWNER/NAME@REVISION` with a
            branch, tag or commit.
        patterns: list of str. Names of the files to fetch, as of
            `fnmatch.fnmatch`. Defaults to `None`: all.

    Returns:
        str, a directory of the cache.

    Raises:
        InputError: if it is no address, there is no such repository or
            revision, or it may not be read, or the transfer fails.
    """
    import huggingface_hub

    repo, revision = _parse(address)
    with _explained(address):
        return huggingface_hub.snapshot_download(
            repo, revision=revision, allow_patterns=patterns
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
    with _explained(address):
        api = huggingface_hub.HfApi()
        api.create_repo(repo, exist_ok=True)
        return api.upload_folder(
            repo_id=repo,
            folder_path=directory,
            revision=revision,
            commit_message=message,
        ).commit_url


def _parse(address):
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(
            f"{address} is no address of a model on the Hugging Face Hub: "
            f"expected {_PREFIX}OWNER/NAME, or {_PREFIX}OWNER/NAME@REVISION."
        )
    return found["repo"], found["revision"]


@contextlib.contextmanager
def _explained(address):
    """Turns errors of the hub's library, which name the remedy, into ours."""
    from huggingface_hub import errors

    try:
        yield
    except (OSError, ValueError, errors.HTTPError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"{address}: {type(error).__name__}: {said} If access is denied, "
            "log in with `hf auth login`; after a broken transfer, run the same "
            "command again."
        ) from error
