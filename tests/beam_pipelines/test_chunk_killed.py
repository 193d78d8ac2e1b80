"""`realm chunk` killed with SIGKILL, in processes of its own."""

import glob
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import python_code
from beam_runs import TWO_PROCESSES

# Kills a child before each change of the disk (the audit events of opening,
# renaming, making and removing files), then lets each run come to its end.
DRIVER = '''
import json, os, signal, sys

from realm_tf.beam_pipelines import chunk_wikipedia
from realm_tf.beam_pipelines import sources
from realm_tf.operations.chunk import Chunk

arguments, output = json.loads(sys.argv[1])
sources.PAGES_PER_PART = 3
chunk_wikipedia.BLOCKS_PER_SHARD = 6
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def run(output, kill_at=None):
    """Returns exit status, or minus the signal, of a run in a child."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seen = 0

    def hook(event, details):
        nonlocal seen
        if event not in EVENTS or not str(details[0]).startswith(output):
            return
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    Chunk(output=output, **arguments).run()
    with open(os.path.join(os.path.dirname(output), "seen"), "w") as file:
        file.write(str(seen))
    os._exit(0)


assert run(f"{output}-whole") == 0
with open(os.path.join(os.path.dirname(output), "seen")) as file:
    total = int(file.read())
for point in range(1, total + 1):
    killed = f"{output}-{point}"
    assert run(killed, kill_at=point) == -signal.SIGKILL, point
    if os.path.exists(killed):
        # It was finished, but for the lock and what is read of it.
        assert point >= total - 1, point
        continue
    # A second time, somewhere else: the rest of a rest.
    run(killed, kill_at=1 + total // 3)
    if not os.path.exists(killed):
        assert run(killed) == 0, point
print(total)
'''


@pytest.fixture
def arguments(tmp_path, vocab):
    return {
        "input": [
            rows(tmp_path / "a.jsonl", 10),
            rows(tmp_path / "b.jsonl", 7),
        ],
        "vocab": vocab,
        "max_block_length": 40,
    }


def rows(path, count, *, sentence="Row {} is here."):
    # The last of every file has the id of a row of the first.
    with open(path, "w") as file:
        for number in range(count):
            name = "same" if number == count - 1 else f"{path.name}{number}"
            text = " ".join([sentence.replace("{}", name)] * 3)
            row = {"id": name, "title": "T", "text": text}
            file.write(json.dumps(row) + "\n")
    return str(path)


def content(directory):
    """Names and bytes, without the time that the run took."""
    found = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            found[name] = file.read()
    metadata = json.loads(found.pop("metadata.json"))
    return found, {**metadata, "seconds": 0}


@pytest.mark.slow
def test_killed_at_every_point(tmp_path, arguments):
    output = str(tmp_path / "out")
    python_code.run(DRIVER, json.dumps([arguments, output]))
    expected = content(f"{output}-whole")
    others = [
        path
        for path in glob.glob(f"{output}-*")
        if not path.endswith(("whole", ".lock"))
    ]

    assert len(others) >= 40
    for path in others:
        assert content(path) == expected, path
    assert expected[1]["counts"]["dropped_duplicate"] == 1


def command(arguments, output):
    return [
        *(sys.executable, "-m", "realm_tf.cli", "chunk", "--output", output),
        *("--input", *arguments["input"], "--vocab", arguments["vocab"]),
        *("--max-block-length", "40"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("change", [False, True])
def test_the_parent_of_two_workers_is_killed(tmp_path, arguments, change):
    """Its workers may go on for a while, on the same files."""
    long = "Row {} is here. " * 15
    arguments["input"] = [rows(tmp_path / "a.jsonl", 6000, sentence=long)]
    output = str(tmp_path / "out")
    two = [*command(arguments, output), *TWO_PROCESSES]
    for num_parts in (1, 3):
        process = subprocess.Popen(two)
        while len(glob.glob(f"{output}.partial/*/*.arrow")) < num_parts:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    if change:
        rows(tmp_path / "a.jsonl", 3500, sentence=f"New. {long}")
    subprocess.run(two, check=True)
    time.sleep(5)
    subprocess.run(command(arguments, str(tmp_path / "once")), check=True)

    assert not os.path.exists(f"{output}.partial")
    assert content(output)[0] == content(tmp_path / "once")[0]
    metadata = content(output)[1]
    assert metadata["counts"]["pages_read"] == (3500 if change else 6000)
