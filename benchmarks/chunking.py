"""Rates of chunking, beside peers in the same run. One thread or process each.

    python benchmarks/chunking.py --data-dir DIR --vocab FILE

`markup`: reading DIR/wiki.xml.bz2 and making plain text with places of links
of it; peer is mwparserfromhell's own parse and strip_code over the markup of
the same articles.
`plain_text`: sentences, wordpieces, blocks and their records of the texts of
DIR/corpus.jsonl.gz; peer is encode_batch_fast of the bare `tokenizers` library
with the same vocabulary over the same texts, which makes wordpieces only. The
best of three rounds each, in turn; ours begins each round without known words, and
then reads the same texts once more, as where a corpus is large and new words few.

Ratios are ours to the peer's, in bytes a second.
"""

import functools
import json
import os
import timeit

# Before the library is loaded: one thread.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import mwparserfromhell
import tokenizers
import tyro
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers

from realm_tf.articles import readers
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import transforms
from realm_tf.text import blocks
from realm_tf.text import tokenizer as tokenizer_lib

_ROUNDS = 3


def main(*, data_dir: str, vocab: str):
    """Measures both; `vocab` is the model's vocab.txt."""
    return {
        "cpus": os.cpu_count(),
        "markup": markup_rates(f"{data_dir}/wiki.xml.bz2"),
        "plain_text": plain_text_rates(f"{data_dir}/corpus.jsonl.gz", vocab),
    }


def markup_rates(dump):
    """Rates of reading a dump and of its markup alone."""
    ours, clean, theirs = [], [], []
    seconds = functools.partial(timeit.timeit, number=1)
    for _ in range(_ROUNDS):
        found = []
        ours.append(seconds(lambda found=found: found.extend(_texts(dump))))
        kept = _kept(dump)
        clean.append(seconds(lambda kept=kept: list(map(_text, kept))))
        theirs.append(seconds(lambda kept=kept: list(map(_bare, kept))))
    num_pages = sum(1 for _ in readers.read_pages(dump))
    markup_bytes = sum(len(page.text.encode()) for page in kept)
    return {
        "articles": len(kept),
        "pages_per_second": round(num_pages / min(ours), 1),
        "articles_per_second": round(len(kept) / min(ours), 1),
        "markup_megabytes_per_second": round(
            markup_bytes / min(clean) / 1e6, 3
        ),
        "ratio_to_peer": round(min(theirs) / min(clean), 3),
    }


def _kept(dump):
    return [
        page
        for page in readers.read_pages(dump, format=readers.MEDIAWIKI)
        if not readers.drop_reason(page, format=readers.MEDIAWIKI)
    ]


def _texts(dump):
    return map(_text, _kept(dump))


def _text(page):
    return readers.article_text(page, format=readers.MEDIAWIKI)


def _bare(page):
    return mwparserfromhell.parse(page.text).strip_code()


def plain_text_rates(passages, vocab):
    """Rates of blocks of plain text, and of the tokenizer alone."""
    kept = [
        (page, readers.article_text(page, format="jsonl"))
        for page in readers.read_pages(passages, format="jsonl")
    ]
    texts = [article.text for _, article in kept]
    batches = list(_batches(kept))
    vocabulary = tokenizer_lib.read_vocabulary(vocab)
    ours, again, theirs = [], [], []
    seconds = functools.partial(timeit.timeit, number=1)
    for _ in range(_ROUNDS):
        tokenizer = tokenizer_lib.Tokenizer(vocabulary)
        bare = _bare_tokenizer(vocabulary)
        for found in (ours, again):
            found.append(seconds(lambda t=tokenizer: _chunk(batches, t)))
        theirs.append(
            seconds(
                lambda b=bare: b.encode_batch_fast(
                    texts, add_special_tokens=False
                )
            )
        )
    num_bytes = sum(len(text.encode("utf-8")) for text in texts)
    return {
        "passages": len(texts),
        "passages_per_second": round(len(texts) / min(ours)),
        "megabytes_per_second": round(num_bytes / min(ours) / 1e6, 3),
        "ratio_to_peer": round(min(theirs) / min(ours), 3),
        "ratio_to_peer_without_new_words": round(min(theirs) / min(again), 3),
    }


def _batches(kept):
    """Articles as the pipeline takes them together."""
    batch, length = [], 0
    for item in kept:
        batch.append(item)
        length += len(item[1].text)
        if length >= transforms.BATCH_LENGTH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _chunk(batches, tokenizer):
    packing = blocks.Packing()
    writer = parts.PartWriter(tokenizer.unk_id)
    for batch in batches:
        found = blocks.split_articles(
            [article for _, article in batch], tokenizer, packing
        )
        writer.add(
            [
                (page, article_blocks)
                for (page, _), article_blocks in zip(batch, found, strict=True)
            ]
        )


def _bare_tokenizer(vocabulary):
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    bare = tokenizers.Tokenizer(
        models.WordPiece(
            ids,
            unk_token=tokenizer_lib.UNK,
            max_input_chars_per_word=tokenizer_lib.MAX_CHARACTERS_PER_WORD,
        )
    )
    bare.normalizer = normalizers.BertNormalizer(lowercase=True)
    bare.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return bare


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
