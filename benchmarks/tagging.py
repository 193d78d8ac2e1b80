"""Rates of the taggers on one process, each beside a peer in the same run.

    python benchmarks/tagging.py --blocks DIR [--tagger-model DIR]

`rules`: peer is the bare `tokenizers` library, one thread, which cuts the
same texts into wordpieces. `bert`: peer is the same model on the same
sentences in the order of the text, in batches of the nominal size, each padded
to its longest. Ratios are ours to the peer's, in sentences a second.
"""

import argparse
import json
import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import os

import tokenizers

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.tagging import bert
from realm_tf.tagging import sentence_batches
from realm_tf.tagging import taggers
from realm_tf.tagging import token_classifier

BATCH_SIZE = 32
# What one call of the pipeline gets.
BLOCKS_PER_CALL = 64


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument(
        "--tagger-model", metavar="DIR", help="measures `bert`, too"
    )
    parser.add_argument("--num-blocks", type=int, default=20_000)
    parser.add_argument("--num-bert-blocks", type=int, default=1_000)
    args = parser.parse_args()
    num_blocks = artifact.read(args.blocks, kind=schema.BLOCKS)["num_blocks"]
    # One in so many, so that all of the corpus is in it.
    result = {
        "rules": rules_rates(
            _sample(args.blocks, num_blocks, args.num_blocks),
            os.path.join(args.blocks, "vocab.txt"),
        )
    }
    if args.tagger_model:
        result["bert"] = bert_rates(
            _sample(args.blocks, num_blocks, args.num_bert_blocks),
            args.tagger_model,
        )
    print(json.dumps(result, indent=2))


def rules_rates(blocks, vocabulary):
    """Rates of the rules, and of the tokenizer alone."""
    peer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    texts = [block.text for block in blocks]
    tagger = taggers.make_tagger("rules")
    ours = _seconds(lambda: _tag(tagger, blocks))
    theirs = _seconds(
        lambda: peer.encode_batch(texts, add_special_tokens=False)
    )
    return _rates(blocks, ours, theirs)


def bert_rates(blocks, directory):
    """Rates of the trained tagger, and of its model in plain batches."""
    tagger = taggers.make_tagger(
        "bert", tagger_model=directory, batch_size=BATCH_SIZE
    )
    loaded = token_classifier.load(directory)
    sentences = [
        block.text[start:limit]
        for block in blocks
        for start, limit in taggers.sentences(block)
    ]
    words = [[start for start, _ in bert.find_words(s)] for s in sentences]

    def in_order(limit=None):
        rows = loaded.sentence_encoder().encode(
            sentences[:limit], words[:limit]
        )
        for first in range(0, len(rows), BATCH_SIZE):
            loaded.model.predict_on_batch(
                sentence_batches.stack(
                    rows[first : first + BATCH_SIZE],
                    loaded.tokenizer,
                    max_length=loaded.max_length,
                )
            )

    # Both models are traced before they are timed.
    tagger.tag(blocks[:BLOCKS_PER_CALL])
    in_order(limit=BATCH_SIZE)
    ours = _seconds(lambda: _tag(tagger, blocks))
    return _rates(blocks, ours, _seconds(in_order))


def _sample(directory, num_blocks, wanted):
    step = max(1, num_blocks // wanted)
    found = schema.read_blocks(directory)
    return [b for number, b in enumerate(found) if number % step == 0][:wanted]


def _tag(tagger, blocks):
    for first in range(0, len(blocks), BLOCKS_PER_CALL):
        tagger.tag(blocks[first : first + BLOCKS_PER_CALL])


def _seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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
    main()
