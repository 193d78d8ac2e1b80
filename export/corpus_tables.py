"""What an export holds of its blocks, as arrays; needs no TensorFlow.

Each array is the value of a variable of `CorpusPart`, under its path there.
"""

import itertools
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from realm_tf.answering import corpus as corpora
from realm_tf.artifacts.array_files import smallest
from realm_tf.retrieval import wordpiece_scores

# Strings compressed together: half the size of English blocks, where one by
# one they keep 0.59 and in sixteens 0.48 of it (zlib, level 9, 4,000 passages
# of 540 bytes), and looking one up unpacks no more than these.
STRINGS_PER_GROUP = 8
# Rows of the least table: more than any search takes at once, so that a graph
# does not depend on how many blocks there are.
LEAST_ROWS = 128
# Entries that only fill a table up; fingerprints are smaller.
NO_TERM = np.iinfo("int64").max

# What a card calls the tables, by the beginning of their paths.
_PARTS = {
    **dict.fromkeys(("index", "scann_state"), "index"),
    **dict.fromkeys(
        (
            *("wordpieces", "first_wordpieces", "token_starts"),
            *("token_limits", "is_common", "block_ids"),
        ),
        "wordpieces of the blocks",
    ),
    **dict.fromkeys(("titles", "lines", "urls"), "texts, titles and addresses"),
    "lexical": "lists of BM25",
    "fields": "fields",
}


def of_state(
    state,
    *,
    tokenizer,
    reads_titles: bool,
    is_hybrid: bool,
    field_names: Sequence[str],
    read_fields: Callable,
) -> dict[str, np.ndarray]:
    """The tables of a state of a corpus that changes.

    Args:
        state: `live_corpus.State`.
        tokenizer: `Tokenizer`. The model's.
        reads_titles: bool. Whether the reader reads titles.
        is_hybrid: bool. Whether BM25 searches, too.
        field_names: sequence of str. What filters can name.
        read_fields: as of `of_fields`.
    """
    size = max(LEAST_ROWS, state.num_blocks)
    records = state.records(capacity=size)
    title_ids = corpora.title_ids(records, tokenizer)
    embeddings = state.embeddings()
    blocks = corpora.block_arrays(records, title_ids if reads_titles else None)
    found = {
        "index/0": _padded(embeddings, size),
        **_numbered("wordpieces", map(smallest, blocks.values())),
        **of_records(records),
        "block_ids": _padded(state.block_ids(), size, -1),
    }
    if is_hybrid:
        postings = corpora.postings(records, title_ids, tokenizer)
        found |= _numbered("lexical", wordpiece_scores.arrays(postings))
    if field_names:
        of_blocks = [*state.fields(), *[{}] * (size - state.num_blocks)]
        fields = of_fields(field_names, of_blocks, read_fields)
        found |= {f"fields/{name}": each for name, each in fields.items()}
    return found


def _numbered(name, arrays):
    return {f"{name}/{number}": each for number, each in enumerate(arrays)}


def _padded(rows, size, value=0):
    padding = [(0, size - len(rows)), *[(0, 0)] * (rows.ndim - 1)]
    return np.pad(rows, padding, constant_values=value)


def of_records(records) -> dict[str, np.ndarray]:
    """The tables of texts and wordpieces.

    Args:
        records: `BlockRecords`.
    """
    texts = {
        "titles": records.titles,
        # With a line break between two sentences.
        "lines": map(records.line, range(len(records))),
        "urls": records.urls,
    }
    return {
        **{
            f"{name}/{part}": array
            for name, strings in texts.items()
            for part, array in of_texts(strings).items()
        },
        **of_wordpieces(records),
    }


def of_wordpieces(records) -> dict[str, np.ndarray]:
    """Where wordpieces are in the texts, and which are common."""
    starts, limits = records.whole_places()
    return {
        # Of all blocks, one after the other: padded, they would take more.
        "first_wordpieces": records.first_wordpieces,
        "token_starts": smallest(starts),
        "token_limits": smallest(limits),
        "is_common": records.is_common,
    }


def of_texts(texts: Iterable[str]) -> dict[str, np.ndarray]:
    """The tables of `CompressedTexts`: `groups`, `starts`, `lengths`."""
    packed, lengths, starts = [], [], []
    # Group by group: all texts need not be in memory.
    texts = map(str.encode, texts)
    while group := list(itertools.islice(texts, STRINGS_PER_GROUP)):
        sizes = list(map(len, group))
        lengths += sizes
        starts += itertools.accumulate(sizes[:-1], initial=0)
        packed.append(zlib.compress(b"".join(group), 9))
    return {
        "groups": np.array(packed, object),
        "starts": smallest(np.array(starts)),
        "lengths": smallest(np.array(lengths)),
    }


def of_fields(
    names: Sequence[str], fields: Sequence[Mapping], read: Callable
) -> dict[str, np.ndarray]:
    """The tables of `FieldTable`.

    Args:
        names: sequence of str. Of the fields.
        fields: sequence of mappings. Of each block, name to list of str.
        read: function of the keys, string `(num_entries,)`, and of the first
            values, string `(num_rows, num_names)`, as bytes in arrays of dtype
            object. Returns dict of `terms`, the fingerprints of the keys, and
            `orders`, the values as numbers and dates.
    """
    entries = [
        (f"{name}={value}".encode(), row)
        for row, values_of in enumerate(fields)
        for name in names
        for value in values_of.get(name, ())
    ]
    firsts = np.full((len(fields), len(names)), b"", object)
    for row, values_of in enumerate(fields):
        for place, name in enumerate(names):
            firsts[row, place] = next(
                iter(values_of.get(name, ())), ""
            ).encode()
    keys = np.array([key for key, _ in entries], object)
    found = read(keys, firsts)
    texts = of_texts(told(names, each) for each in fields)
    return {
        # At least one: `searchsorted` takes no empty table.
        "terms": np.append(found["terms"], NO_TERM),
        "rows": np.array([*(row for _, row in entries), 0], "int32"),
        "orders": found["orders"],
        **{f"texts/{name}": array for name, array in texts.items()},
    }


def told(names: Sequence[str], fields: Mapping) -> str:
    """A document's fields, as a filter for them would state them.

    >>> told(["date", "tags"], {"date": ["2024-05-01"], "tags": ["hr", "law"]})
    'date=2024-05-01; tags=hr|law'
    """
    return "; ".join(
        f"{name}={'|'.join(fields[name])}" for name in names if fields.get(name)
    )


def argument(name: str) -> str:
    """Name of a table among the inputs of `signatures.SAVE`."""
    return name.replace("/", "_")


def sizes(num_bytes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each part, of the bytes of each table."""
    found = dict.fromkeys(_PARTS.values(), 0)
    for path, number in num_bytes.items():
        found[_PARTS[path.partition("/")[0]]] += number
    return {name: size for name, size in found.items() if size}


def num_bytes(array: np.ndarray) -> int:
    """Bytes of an array, those of its strings."""
    if array.dtype == object:
        return sum(map(len, array.ravel()))
    return array.nbytes
