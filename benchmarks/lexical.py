"""BM25 inside the graph beside the library bm25s: time, memory, recall.

    python benchmarks/lexical.py --model DIR --blocks DIR --questions F --copies 1 20

The blocks are repeated so many times. Both search for the questions, in turn,
one at a time and 16 at once; milliseconds are medians a question, megabytes
those of the arrays in memory. bm25s stems, leaves stop words out and uses as
many threads as there are cores; recall@5 (of blocks that hold an answer) is of
the blocks that are not repeated.
"""

import json
import statistics
import time

import numpy as np
import tensorflow as tf
import tyro
from keras import ops

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import Questions
from realm_tf.artifacts.question_files import pack_queries
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.retrieval import wordpiece_bm25
from realm_tf.retrieval.bm25 import Bm25
from realm_tf.text.answers import AnswerFinder

_NUM_BLOCKS = 100
_BATCH_SIZES = (1, 16)
_ROUNDS = 3


def main(
    *,
    model: str,
    blocks: str,
    questions: str,
    copies: tuple[int, ...] = (1, 20),
    num_questions: int = 64,
):
    """Measures both over so many copies of the blocks."""
    records = Blocks(blocks).records
    tokenizer = Model(model).load().tokenizer
    asked = Questions(questions).questions[:num_questions]
    return [_measure(records, tokenizer, asked, number) for number in copies]


def _measure(records, tokenizer, asked, copies):
    titles = list(records.titles) * copies
    started = time.perf_counter()
    postings = wordpiece_bm25.postings(
        [each.ids for each in tokenizer.tokenize_batch(titles)],
        np.tile(records.token_ids(), (copies, 1)),
        np.tile(records.lengths, copies),
        tokenizer.vocabulary_size,
    )
    graph = wordpiece_bm25.WordpieceBm25(postings)
    built = time.perf_counter() - started
    started = time.perf_counter()
    peer = Bm25(titles, list(records.texts) * copies)
    peer_built = time.perf_counter() - started

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def best(token_ids):
        return ops.top_k(graph(token_ids), _NUM_BLOCKS)[1]

    def in_graph(texts):
        rows = [query_wordpieces(text, tokenizer) for text in texts]
        inputs = pack_queries(rows, tokenizer.pad_id)
        return best(inputs["token_ids"]).numpy()

    def by_peer(texts):
        return peer.search(texts, _NUM_BLOCKS)[1]

    texts = [each.question for each in asked]
    finder = AnswerFinder(records.texts)
    found = {"num_blocks": len(titles)}
    for name, search, seconds, size in (
        ("graph", in_graph, built, _num_bytes(graph)),
        ("bm25s", by_peer, peer_built, _num_bytes_of_peer(peer)),
    ):
        found[name] = {
            "build_seconds": round(seconds, 1),
            "mb": round(size / 1e6),
        }
        if copies == 1:
            ranks = [
                finder.first_rank(ids.tolist(), q.answers, q.answer_type)
                for q, ids in zip(asked, search(texts), strict=True)
            ]
            found[name]["recall@5"] = float(
                np.mean([(rank or 99) <= 5 for rank in ranks])
            )
    for size in _BATCH_SIZES:
        times = {"graph": [], "bm25s": []}
        for search in (in_graph, by_peer):
            search(texts[:size])
        for _ in range(_ROUNDS):
            for name, search in (("graph", in_graph), ("bm25s", by_peer)):
                for first in range(0, len(texts), size):
                    batch = texts[first : first + size]
                    started = time.perf_counter()
                    search(batch)
                    times[name].append(
                        1000 * (time.perf_counter() - started) / len(batch)
                    )
        for name, each in times.items():
            found[name][f"milliseconds, {size} at once"] = round(
                statistics.median(each), 2
            )
    return found


def _num_bytes(layer):
    return sum(v.numpy().nbytes for v in layer.variables)


def _num_bytes_of_peer(peer):
    return sum(
        v.nbytes
        for v in peer._retriever.scores.values()
        if hasattr(v, "nbytes")
    )


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
