"""A small project with figures of its own, for `realm reproduce`."""

import pytest
import yaml

from realm_tf.evaluation.reproductions import entries as reproductions

# Prints what it is told to; counts how often it ran.
_SCRIPT = """
import argparse
import json
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--data-dir")
parser.add_argument("--speed", type=float, default=2.5)
parser.add_argument("--status", type=int, default=0)
args = parser.parse_args()
count = pathlib.Path(args.output, "runs.txt")
runs = len(count.read_text()) if count.exists() else 0
count.write_text((runs + 1) * "x")
print("{ of a line that is no JSON")
print("working", file=sys.stderr)
print(json.dumps({"speed": args.speed, "runs": [runs, {"bytes": 4e6}]}))
print("a last line")
if args.status:
    print("the reason", file=sys.stderr)
    sys.exit(args.status)
"""
_README = """# A project

It does 2.50 times what the peer does, with 4.0
MB, and F9 is no figure. That is 40 % of 10,000.
"""


@pytest.fixture
def make_figure():
    """A function that makes a figure of an entry, with changes."""
    return _figure


@pytest.fixture
def make_entry():
    """A function that makes an entry, with changes."""
    return _entry


def _figure(**changes):
    return {
        "figure": "speed",
        "published": {"README.md": "It does 2.50 times"},
        "from": "stdout",
        "values": {"speed": 2.5},
        "tolerance": 0.1,
        **changes,
    }


def _entry(**changes):
    return {
        "commands": ["python benchmarks/speed.py --output {output}"],
        "minutes": 1,
        "hardware": "a core",
        "needs": [],
        "expect": [_figure()],
        **changes,
    }


@pytest.fixture
def project(tmp_path):
    """Writes a small project; returns the path of its reproductions.yaml."""
    root = tmp_path / "project"
    (root / "benchmarks").mkdir(parents=True)
    (root / "benchmarks" / "speed.py").write_text(_SCRIPT)
    (root / "README.md").write_text(_README)

    def write(**entries):
        path = root / reproductions.FILE
        path.write_text(yaml.safe_dump(entries, sort_keys=False))
        return str(path)

    return write
