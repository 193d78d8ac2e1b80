"""Rate of cutting text into blocks, beside `tokenizers`, in one thread.

    python benchmarks/chunking.py --data-dir DIR --vocab FILE

Ours makes sentences, wordpieces, blocks and their records of the texts of
DIR/corpus.jsonl.gz. The peer, encode_batch_fast, only tokenizes. The best of three
rounds each, in turns. Each round of ours begins without known words, then reads the
same texts again, as in a large corpus with few new words. Ratios are ours to the
peer's, in bytes a second.
"""

import json
import os
import timeit

# Before the library is loaded: one thread.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers
import tyro

from realm_tf.articles import readers
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import transforms
from realm_tf.text import blocks
from realm_tf.text import tokenizer as tokenizer_lib

_ROUNDS = 3


def main(*, data_dir: str, vocab: str):
    """Measures both; `vocab` is the model's vocab.txt."""
    passages = f"{data_dir}/corpus.jsonl.gz"
    kept = [
        (page, readers.article_text(page, format="jsonl"))
        for page in readers.read_pages(passages, format="jsonl")
    ]
    texts = [article.text for _, article in kept]
    vocabulary = tokenizer_lib.read_vocabulary(vocab)
    ours, again, theirs = [], [], []
    for _ in range(_ROUNDS):
        tokenizer = tokenizer_lib.Tokenizer(vocabulary)
        for found in (ours, again):
            found.append(
                timeit.timeit(lambda t=tokenizer: _chunk(kept, t), number=1)
            )
        peer = tokenizers.BertWordPieceTokenizer(vocab, lowercase=True)
        peer = tokenizers.Tokenizer.from_str(peer.to_str())
        theirs.append(
            timeit.timeit(
                lambda t=peer: t.encode_batch_fast(
                    texts, add_special_tokens=False
                ),
                number=1,
            )
        )
    num_bytes = sum(len(text.encode()) for text in texts)
    return {
        "passages_per_second": len(texts) / min(ours),
        "megabytes_per_second": num_bytes / min(ours) / 1e6,
        "ratio_to_peer": min(theirs) / min(ours),
        "ratio_to_peer_without_new_words": min(theirs) / min(again),
    }


def _chunk(kept, tokenizer):
    """Cuts and collects articles in the batches of the pipeline."""
    writer = parts.PartWriter()
    batch, length = [], 0
    for place, (page, article) in enumerate(kept, start=1):
        batch.append((page, article))
        length += len(article.text)
        if length >= transforms.BATCH_LENGTH or place == len(kept):
            found = blocks.split_articles(
                [article for _, article in batch], tokenizer, blocks.Packing()
            )
            pages = [page for page, _ in batch]
            writer.add(list(zip(pages, found, strict=True)))
            batch, length = [], 0


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
