"""Runs of the Beam pipelines: their options, their inputs, their bytes."""

import json
import pathlib
import string

import pytest

from realm_tf.beam_pipelines import chunk_wikipedia
from realm_tf.operations.chunk import Chunk

TWO_THREADS = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_threading",
]
TWO_PROCESSES = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
]


def write_jsonl(path, rows) -> str:
    """A file of one JSON a line; returns its path."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def shard_bytes(directory, pattern="*.arrow") -> dict[str, bytes]:
    """Name to content of the shards of a directory."""
    paths = sorted(pathlib.Path(directory).glob(pattern))
    return {path.name: path.read_bytes() for path in paths}


# Every letter is a wordpiece, so lengths can be counted by eye.
VOCABULARY = (
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + list(string.ascii_lowercase + string.digits + ".,")
    + [f"##{letter}" for letter in string.ascii_lowercase]
)
PAGE = """  <page>
    <title>{title}</title><ns>{namespace}</ns><id>{id}</id>{redirect}
    <revision><id>1</id><text>{text}</text></revision>
  </page>
"""


def page(id, title, text, *, namespace=0, redirect=""):
    return PAGE.format(
        id=id, title=title, text=text, namespace=namespace, redirect=redirect
    )


def dump(*pages):
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n'
        "  <siteinfo><base>https://w.example.org/wiki/Main</base></siteinfo>\n"
        f"{''.join(pages)}</mediawiki>\n"
    )


def chunk(input, output, vocab, *, per_shard=10_000, **options):
    """What `realm chunk` adds to the metadata, of so many blocks a shard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_wikipedia, "BLOCKS_PER_SHARD", per_shard)
        made = Chunk(input=input, output=output, vocab=vocab, **options).run()
    return made.metadata


def rows(count):
    return [
        {"id": f"r{n}", "title": f"T{n}", "text": f"Row {n} is here. " * 3}
        for n in range(count)
    ]
