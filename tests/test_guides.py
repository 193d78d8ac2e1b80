"""The commands of tutorials and how-to guides, run as a reader pastes them.

Each page runs in a directory of its own: all its `bash` blocks, in order, in
one shell. The directory holds the tiny world of conftest.py under the names
that the pages use. A block that cannot run here stands after a paragraph with
"The tests do not run ..., because ...".
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "how_to").glob("*.md")),
]
TIMEOUT_SECONDS = 600
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"The tests do not run [^.]+, because [^.]+[.:]$")
# What is too large or not here, and what takes its place.
_SMALLER = {
    r"realm init --from minilm.* --output (\S+)": r"cp -r model.tiny \1",
    r"--recipe \S+": "--recipe tiny",
    r"realm_tf/quickstart/wiki\.xml\.bz2": "corpus.jsonl",
    r"realm_tf/quickstart/questions\.(\w+)\.jsonl": r"\1.jsonl",
}
_SERVE = """
{command} &
server=$!
trap 'kill $server' EXIT
until curl --silent --insecure --fail {url}/readyz; do
    kill -0 $server
    sleep 0.5
done
"""


def _blocks(page):
    """(text before the block, commands) of each `bash` block."""
    text, end = page.read_text(encoding="utf-8"), 0
    for match in _BLOCK.finditer(text):
        yield text[end : match.start()].strip(), match[1]
        end = match.end()


def _script(page, ports):
    """What a shell runs of a page."""
    parts = ["set -euo pipefail"]
    for before, commands in _blocks(page):
        paragraph = " ".join(before.split("\n\n")[-1].split())
        if _NOT_RUN.search(paragraph):
            continue
        for pattern, smaller in _SMALLER.items():
            commands = re.sub(pattern, smaller, commands)
        parts += _served(commands.replace("\\\n", " ").splitlines())
    script = "\n".join(parts)
    for port, free in ports.items():
        script = re.sub(rf"\b{port}\b", str(free), script)
    return script


def _served(lines):
    """Lines of a shell; a server goes on in the background."""
    for line in lines:
        if not line.startswith("realm serve"):
            yield line
            continue
        scheme = "https" if "--tls " in line else "http"
        found = re.search(r"--rest-port (\d+)", line)
        port = found[1] if found else 8501
        if not found:
            line += " --grpc-port 8500 --rest-port 8501"
        yield _SERVE.format(command=line, url=f"{scheme}://127.0.0.1:{port}")


def _free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="session")
def world(
    tmp_path_factory,
    model_dir,
    blocks_dir,
    embeddings_dir,
    brute_force_index_dir,
    articles_path,
    questions_path,
    vocabulary_path,
):
    """The tiny world under the names of the pages."""
    world = tmp_path_factory.mktemp("guides")
    for name, path in {
        "model": model_dir,
        "initial": model_dir,
        "model.tiny": model_dir,
        "blocks": blocks_dir,
        "embeddings": embeddings_dir,
        "index": brute_force_index_dir,
    }.items():
        shutil.copytree(path, world / name)
    for name in ("train", "dev", "test"):
        shutil.copy(questions_path, world / f"{name}.jsonl")
    shutil.copy(articles_path, world / "corpus.jsonl")
    shutil.copy(vocabulary_path, world / "vocab.txt")
    for folder in ("handbook", "news"):
        (world / folder).mkdir()
    text = "---\ntags: hr\ndate: 2024-05-01\n---\n# Bach\n\nBach wrote music.\n"
    (world / "handbook" / "travel.md").write_text(text)
    (world / "news" / "etna.md").write_text(
        "# Etna\n\nEtna is a hill of fire.\n"
    )
    return world


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_block_that_is_not_run_says_why(page):
    for before, commands in _blocks(page):
        needs_more = re.search(r"gs://|hf://|docker|REALM_EXPORT", commands)
        paragraph = " ".join(before.split("\n\n")[-1].split())
        assert not needs_more or _NOT_RUN.search(paragraph), commands


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(_blocks(page))],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_run(page, world, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(world, directory)
    if page.parent.name == "tutorials":
        # A tutorial makes everything itself.
        for name in ("model", "initial", "blocks", "embeddings", "index"):
            shutil.rmtree(directory / name)
        shutil.rmtree(directory / "handbook")
    ports = {port: _free_port() for port in (8500, 8501, 8600, 8601)}
    script = _script(page, ports)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env={
            **os.environ,
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{script}\n\n{done.stdout[-3000:]}"
