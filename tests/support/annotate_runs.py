"""Runs of `realm annotate`, and some that break off."""

import pytest
from beam_runs import write_jsonl

from realm_tf.beam_pipelines import annotate_spans
from realm_tf.operations.annotate import Annotate
from realm_tf.tagging import taggers

# Every sentence is a passage: see `chunk`.
TEXTS = [
    "They built 🚢 at São Paulo in 1869.",
    "日本 and Tokyo 🗼 are far from Rome.",
    "So it was, with 12 cafe\u0301s in Zu\u0308rich.",
    "It is not so.",
    "Near 𝔘𝔫𝔦 they met Ada Lovelace in May 1843.",
    "Over 3 million saw Mount Etna.",
    "One of them saw the Nile.",
]


def articles(path, texts=TEXTS, *, title="T{}"):
    rows = (
        {"id": str(number), "title": title.format(number), "text": text}
        for number, text in enumerate(texts)
    )
    return write_jsonl(path, rows)


def annotate(output, tagger="rules", *, per_shard=3, **options):
    """What `realm annotate` adds to the metadata."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotate_spans, "PASSAGES_PER_SHARD", per_shard)
        made = Annotate(output=output, tagger=tagger, **options).run()
    return made.metadata


def count_calls(monkeypatch):
    """What the rules' tagger is given from now on."""
    tagged = []
    tag = taggers.RulesTagger.tag

    def count(self, blocks):
        tagged.extend(block.block_id for block in blocks)
        return tag(self, blocks)

    monkeypatch.setattr(taggers.RulesTagger, "tag", count)
    return tagged


def break_off(monkeypatch, output, **arguments):
    """A run that breaks off after its last shard."""

    def fail(tagger, counts):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(annotate_spans, "_check_spans", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            annotate(str(output), **arguments)
    assert not output.exists()
    return output.with_name(f"{output.name}.partial")
