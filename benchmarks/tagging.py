"""Precision, recall and rates of the taggers.

    python benchmarks/tagging.py [--tagger-model DIR] [--blocks DIR]

Precision and recall are those of the hand-labelled sentences of
realm_tf/quickstart/names_and_dates.txt. A span is right if both its ends are;
labels other than dates are taken together, as the rules do not tell persons from
places. `rules` was written with these sentences in sight; `bert` was not.

`rates`, with --blocks, are of one process, each beside a peer in the same run.
For `rules` it is the bare `tokenizers` library, one thread, which cuts the same
texts into wordpieces; for `bert` the same model on the same sentences in the
order of the text, in batches of the nominal size, each padded to its longest.
Ratios are ours to the peer's, in sentences a second.
"""

import json
import os
import pathlib
import re
import timeit

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tyro

from realm_tf import quickstart
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.tagging import taggers

BATCH_SIZE = 32
# What one call of the pipeline gets.
BLOCKS_PER_CALL = 64
# So many of the corpus are timed.
_NUM_BLOCKS = {"rules": 20_000, "bert": 1_000}

_MARK = re.compile(r"\[([^\[\]|]+)\|([A-Z]+)\]")


def read_marked(path) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Sentences with their marked spans.

    Args:
        path: str or path. One sentence a line, spans as `[Vienna|LOC]`.

    Returns:
        list of `(sentence, spans)`; a span is `(start, limit, label)`, code
        points of the sentence without marks, the limit exclusive, in order.
    """
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [_parse(line) for line in lines if line.strip()]


def _parse(line):
    sentence, spans, done = "", [], 0
    for match in _MARK.finditer(line):
        sentence += line[done : match.start()]
        done = match.end()
        text, label = match.groups()
        spans.append((len(sentence), len(sentence) + len(text), label))
        sentence += text
    return sentence + line[done:], spans


def main(
    *,
    tagger_model: str | None = None,
    blocks: str | None = None,
):
    """Measures the rules, and `bert` if there is a tagger model."""
    marked = read_marked(quickstart.NAMES_AND_DATES)
    found = {"sentences": len(marked), "rules": scores(marked, "rules")}
    if tagger_model:
        found["bert"] = scores(marked, "bert", tagger_model=tagger_model)
    if blocks:
        sample = _sample(blocks, _NUM_BLOCKS["rules"])
        found["rates"] = {"rules": rules_rates(sample, f"{blocks}/vocab.txt")}
    if blocks and tagger_model:
        sample = _sample(blocks, _NUM_BLOCKS["bert"])
        found["rates"]["bert"] = bert_rates(sample, tagger_model)
    return found


def scores(marked, name, **arguments):
    """Precision, recall and F1 of a tagger, dates and names apart."""
    tagger = taggers.make_tagger(name, **arguments)
    tagged = tagger.tag([_block(sentence) for sentence, _ in marked])
    found, expected = {}, {}
    for number, ((_, spans), block_spans) in enumerate(
        zip(marked, tagged, strict=True)
    ):
        for start, limit, label in spans:
            kind = "dates" if label == "DATE" else "names"
            expected.setdefault(kind, set()).add((number, start, limit))
        for start, limit, label in block_spans:
            kind = "dates" if label.lower() == "date" else "names"
            if label != "number":
                found.setdefault(kind, set()).add((number, start, limit))
    return {kind: _score(found[kind], expected[kind]) for kind in expected}


def _block(sentence):
    return schema.Block(0, "", "", sentence, "", [], sentence_starts=[0])


def _score(found, expected):
    right = len(found & expected)
    precision, recall = right / len(found), right / len(expected)
    return {
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(2 * precision * recall / (precision + recall), 4),
        "spans": len(expected),
    }


def rules_rates(blocks, vocabulary):
    """Rates of the rules, and of the tokenizer alone."""
    import tokenizers

    peer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    texts = [block.text for block in blocks]
    tagger = taggers.make_tagger("rules")
    ours = timeit.timeit(lambda: _tag(tagger, blocks), number=1)
    theirs = timeit.timeit(
        lambda: peer.encode_batch(texts, add_special_tokens=False), number=1
    )
    return _rates(blocks, ours, theirs)


def bert_rates(blocks, directory):
    """Rates of the trained tagger, and of its model in plain batches."""
    tagger = taggers.make_tagger(
        "bert", tagger_model=directory, batch_size=BATCH_SIZE
    )
    from realm_tf.tagging import conll
    from realm_tf.tagging import tagger_directory

    loaded = tagger_directory.load(directory)
    sentences = [
        block.text[start:limit]
        for block in blocks
        for start, limit in taggers.sentences(block)
    ]
    words = [[start for start, _ in conll.find_words(s)] for s in sentences]

    def in_order(limit=None):
        encoder = loaded.sentence_encoder()
        rows = encoder.encode(sentences[:limit], words[:limit])
        for first in range(0, len(rows), BATCH_SIZE):
            loaded.model.predict_on_batch(
                encoder.stack(rows[first : first + BATCH_SIZE])
            )

    # Both models are traced before they are timed.
    tagger.tag(blocks[:BLOCKS_PER_CALL])
    in_order(limit=BATCH_SIZE)
    ours = timeit.timeit(lambda: _tag(tagger, blocks), number=1)
    return _rates(blocks, ours, timeit.timeit(in_order, number=1))


def _sample(directory, wanted):
    """One block in so many, from all of the corpus."""
    step = max(1, Blocks(directory).num_blocks // wanted)
    found = Blocks(directory).read()
    return [b for number, b in enumerate(found) if number % step == 0][:wanted]


def _tag(tagger, blocks):
    for first in range(0, len(blocks), BLOCKS_PER_CALL):
        tagger.tag(blocks[first : first + BLOCKS_PER_CALL])


def _rates(blocks, ours, theirs):
    num_sentences = sum(len(block.sentence_starts) for block in blocks)
    num_bytes = sum(len(block.text.encode("utf-8")) for block in blocks)
    return {
        "blocks": len(blocks),
        "blocks_per_second": round(len(blocks) / ours, 1),
        "sentences_per_second": round(num_sentences / ours),
        "megabytes_per_second": round(num_bytes / ours / 1e6, 3),
        "ratio_to_peer": round(theirs / ours, 3),
    }


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
