"""The commands of tutorials and how-to guides, run as a reader pastes them.

Each page runs in a directory of its own: all its `bash` blocks, in order. The
directory holds the tiny world of conftest.py under the names that the pages
use. `realm` commands run in this process, which has TensorFlow already; a
server has a process of its own, and bash runs the other lines. A block that
cannot run here follows a paragraph with "The tests do not run ..., because
...".
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request

import pytest
from engine_processes import free_port

import realm_tf as realm
from realm_tf import cli
from realm_tf.operations import live_corpus

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "how_to").glob("*.md")),
]
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"The tests do not run [^.]+, because [^.]+[.:]")
# A `realm` command with its continued lines, or lines of bash up to the next
# one, of which a here-document may be a part.
_COMMAND = re.compile(
    r"^realm (?:.*\\\n)*.*\n|(?:(?:.*<<'END'\n(?:.*\n)*?END|(?!realm ).*)\n)+",
    re.MULTILINE,
)
# Inputs that are too large or not here, and their substitutes.
_SUBSTITUTES = {
    r"realm init --from minilm.* --output (\S+)": r"cp -r model.tiny \1",
    r"--recipe dpr\S*": "--recipe dpr_tiny",
    r"--recipe (?!dpr)\S+": "--recipe tiny",
    r"realm_tf/quickstart/wiki\.xml\.bz2": "corpus.jsonl",
    r"realm_tf/quickstart/questions\.(\w+)\.jsonl": r"\1.jsonl",
}
READY_SECONDS = 120


def _blocks(page):
    """(paragraph before the block, commands) of each `bash` block."""
    text, end = page.read_text(encoding="utf-8"), 0
    for match in _BLOCK.finditer(text):
        paragraph = text[end : match.start()].strip().rpartition("\n\n")[2]
        yield " ".join(paragraph.split()), match[1]
        end = match.end()


def _commands(page):
    """The commands of a page that can run here, with their substitutes."""
    for paragraph, commands in _blocks(page):
        if _NOT_RUN.search(paragraph):
            continue
        for pattern, substitute in _SUBSTITUTES.items():
            commands = re.sub(pattern, substitute, commands)
        yield from _COMMAND.findall(commands)


class Shell:
    """Runs commands; the ports of servers are free ones.

    Args:
        servers: `contextlib.ExitStack`. Ends the servers.
    """

    def __init__(self, servers):
        self._servers = servers
        self._ports = {}

    def run(self, command):
        """Runs a command, which must succeed."""
        command = re.sub(
            r"\b8[56]0[01]\b", lambda match: self._free_port(match[0]), command
        )
        if command.startswith("realm "):
            words = shlex.split(command.replace("\\\n", ""), comments=True)
            if words[1] == "serve":
                self._serve(words[1:])
            else:
                assert cli.main(words[1:]) == 0, command
        else:
            script = f"set -euo pipefail\n{command}"
            # As where the environment is activated.
            path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
            subprocess.run(
                ["bash", "-c", script],
                check=True,
                timeout=600,
                env={**os.environ, "PATH": path},
            )

    def _free_port(self, port):
        if port not in self._ports:
            self._ports[port] = str(free_port())
        return self._ports[port]

    def _serve(self, words):
        if "--rest-port" not in words:
            for option, port in (
                ("--grpc-port", "8500"),
                ("--rest-port", "8501"),
            ):
                words += [option, self._free_port(port)]
        server = subprocess.Popen(
            [sys.executable, "-m", "realm_tf.cli", *words]
        )
        self._servers.callback(server.wait)
        self._servers.callback(server.terminate)
        scheme = "https" if "--tls" in words else "http"
        port = words[words.index("--rest-port") + 1]
        url = f"{scheme}://127.0.0.1:{port}/readyz"
        insecure = ssl._create_unverified_context()
        limit = time.monotonic() + READY_SECONDS
        while True:
            assert server.poll() is None and time.monotonic() < limit
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, context=insecure).close()
                return
            time.sleep(0.2)


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
    world = tmp_path_factory.mktemp("guides") / "world"
    world.mkdir()
    for name, path in {
        "model": model_dir,
        "initial": model_dir,
        "large": model_dir,
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
    (world / "news" / "etna.md").write_text("# Etna\n\nEtna is a hill.\n")
    return world


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_block_that_is_not_run_says_why(page):
    for paragraph, commands in _blocks(page):
        if re.search(r"gs://|hf://|docker|SHARED|^export ", commands, re.M):
            assert _NOT_RUN.search(paragraph), commands


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(_commands(page))],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_run(page, world, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    shutil.copytree(world, directory)
    if page.parent.name == "tutorials":
        # A tutorial makes everything itself.
        for name in (*("model", "initial", "blocks"), "embeddings", "index"):
            shutil.rmtree(directory / name)
        shutil.rmtree(directory / "handbook")
    monkeypatch.chdir(directory)
    # The package's model has to be downloaded.
    tiny = realm.Model(str(directory / "model.tiny"))
    monkeypatch.setattr(live_corpus, "packaged", lambda: tiny)
    with contextlib.ExitStack() as servers:
        shell = Shell(servers)
        for command in _commands(page):
            shell.run(command)
