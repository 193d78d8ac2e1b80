"""Annotated passages, and directories of them, from marked text."""

import re

from realm_tf.artifacts import artifact
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema


def passage(*sentences, block_id=0, title="Title"):
    """A passage of sentences in which `[text|label]` marks the spans."""
    found = schema.AnnotatedPassage(block_id=block_id, title=title, text="")

    def size():
        return len(found.text.encode())

    for sentence in sentences:
        if found.sentence_byte_start:
            found.text += " "
        found.sentence_byte_start.append(size())
        pieces = re.split(r"\[([^]|]*)\|([^]]*)\]", sentence)
        found.text += pieces[0]
        for text, label, after in zip(
            *(pieces[n::3] for n in (1, 2, 3)), strict=True
        ):
            found.span_byte_start.append(size())
            found.text += text
            found.span_byte_limit.append(size())
            found.span_label.append(label)
            found.text += after
        found.sentence_byte_limit.append(size())
    return found


def mark_passage(*sentences, **more):
    """A passage of sentences in which `<...>` marks the salient spans."""
    marks = str.maketrans({"<": "[", ">": "|name]"})
    return passage(*(each.translate(marks) for each in sentences), **more)


def write_annotated(directory, passages, *, rows_per_shard=None):
    """A directory as `realm annotate` leaves it; two shards by default."""
    size = rows_per_shard or len(passages) // 2 + 1
    shards = [
        passages[first : first + size]
        for first in range(0, len(passages) or 1, size)
    ]
    labels = [label for each in passages for label in each.span_label]
    with artifact.write(
        str(directory), kind="annotated", parameters={"tagger": "rules"}
    ) as stage:
        for number, shard in enumerate(shards):
            name = record_files.shard_name("annotated", number, len(shards))
            path = stage.path(name)
            record_files.write_rows(path, schema.AnnotatedPassage, shard)
        stage.metadata.update(
            num_passages=len(passages),
            shard_rows=list(map(len, shards)),
            counts={f"spans_{x}": labels.count(x) for x in set(labels)},
            fingerprint="abc",
        )
    return str(directory)
