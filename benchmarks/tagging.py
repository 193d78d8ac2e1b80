"""Rates of the taggers on one process, each beside a peer in the same run.

    python benchmarks/tagging.py --blocks DIR [--tagger-model DIR]

`rules`: peer is the bare `tokenizers` library, one thread, which cuts the
same texts into wordpieces. `bert`: peer is the same model on the same
sentences in the order of the text, in batches of the nominal size, each padded
to its longest. Ratios are ours to the peer's, in sentences a second.
"""

import json
import os
import timeit

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers
import tyro

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Blocks
from realm_tf.tagging import conll
from realm_tf.tagging import tagger_directory
from realm_tf.tagging import taggers

BATCH_SIZE = 32
# What one call of the pipeline gets.
BLOCKS_PER_CALL = 64


def main(
    *,
    blocks: str,
    tagger_model: str | None = None,
    num_blocks: int = 20_000,
    num_bert_blocks: int = 1_000,
):
    """Measures the rules, and `bert` if there is a tagger model."""
    total = artifact.read(blocks, kind="blocks")["num_blocks"]
    # One in so many, so that all of the corpus is in it.
    result = {
        "rules": rules_rates(
            _sample(blocks, total, num_blocks), f"{blocks}/vocab.txt"
        )
    }
    if tagger_model:
        result["bert"] = bert_rates(
            _sample(blocks, total, num_bert_blocks), tagger_model
        )
    return result


def rules_rates(blocks, vocabulary):
    """Rates of the rules, and of the tokenizer alone."""
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


def _sample(directory, num_blocks, wanted):
    step = max(1, num_blocks // wanted)
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
        "peer_megabytes_per_second": round(num_bytes / theirs / 1e6, 3),
        "ratio_to_peer": round(theirs / ours, 3),
    }


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
