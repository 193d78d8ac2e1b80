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


def write_annotated(directory, passages):
    """A directory as `realm annotate` leaves it, of two shards."""
    with artifact.write(str(directory), kind="annotated") as stage:
        half = len(passages) // 2
        for number, part in enumerate([passages[:half], passages[half:]]):
            path = stage.path(f"annotated-{number:05d}.arrow")
            record_files.write_rows(path, schema.AnnotatedPassage, part)
        stage.metadata["num_passages"] = len(passages)
        stage.metadata["shard_rows"] = [half, len(passages) - half]
        stage.metadata["fingerprint"] = "abc"
    return str(directory)
