"""Blocks of given sentences, for taggers."""

from realm_tf.artifacts.schema import Block


def block_of(*sentences, links=()):
    """A block of sentences; `links` are texts that stand in it once."""
    starts, text = [], ""
    for sentence in sentences:
        text += " " if text else ""
        starts.append(len(text))
        text += sentence
    found = sorted((text.index(link), len(link)) for link in links)
    return Block(
        0,
        "1",
        "Title",
        text,
        sentence_starts=starts,
        link_starts=[start for start, _ in found],
        link_limits=[start + length for start, length in found],
    )
