"""Annotated passages as memory-mapped wordpieces, for training.

Written once from a directory of annotated passages; see `array_files`.

Files, `.npy`:

- `passages` int64 `(num_passages + 1, 6)`: block id, first wordpiece, first
  sentence, first span, first byte of the title, first byte of the text. The
  last row holds the totals.
- `token_ids` uint16 `(num_wordpieces,)`, int32 for more than 65,536 of them
  in the vocabulary.
- `sentences` int32 `(num_sentences, 3)` and `spans` int32 `(num_spans, 5)` as
  in `tokenized_passages.TokenizedPassage`, counted from the passage's beginning.
- `texts` uint8: title and text of each passage in UTF-8, for display.

`vocab.txt` is the tokenizer's.
"""

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts.objects import Passages
from realm_tf.data import tokenized_passages
from realm_tf.progress import Progress

# Passages tokenised at once, and passages whose spans are counted at once.
_BATCH = 256
_PART = 100_000


def pack_passages(
    annotated: str | Passages,
    tokenizer,
    output: str,
) -> Passages:
    """Tokenises annotated passages and writes them for training.

    Args:
        annotated: `Passages` or their path. What `realm annotate` wrote.
        tokenizer: `Tokenizer`.
        output: str. The directory to make, on a local disk.

    Returns:
        `Passages`; `counts` of `tokenized_passages.tokenize_passages`.

    Raises:
        InputError: if `annotated` is not complete or damaged, or `output`
            exists or is remote.
    """
    annotated = Passages.of(annotated)
    counts = Counter()
    progress = Progress("pack", "passages", annotated.num_passages)
    with PackedPassages.write(
        output,
        tokenizer=tokenizer.fingerprint(),
        parents=parents(annotated),
        wordpieces=tokenizer.vocabulary,
    ) as (files, stage):
        passages = annotated.read()
        while batch := list(itertools.islice(passages, _BATCH)):
            for passage in tokenized_passages.tokenize_passages(
                batch, tokenizer, counts
            ):
                _append(files, passage)
            progress(counts["passages"])
        _append_row(files, -1, 0)
        stage.metadata.update(
            num_passages=counts["passages"],
            counts=dict(counts),
        )
    return Passages(output)


def parents(annotated: Passages) -> dict:
    """Fingerprints of passages and, if they are blocks, of the blocks."""
    found = {"annotated": annotated.fingerprint}
    if annotated.blocks is not None:
        found["blocks"] = annotated.blocks
    return found


def _append(files, passage):
    title = passage.title.encode("utf-8")
    _append_row(files, passage.block_id, len(title))
    files["token_ids"].append(passage.token_ids)
    files["sentences"].append(passage.sentences)
    files["spans"].append(passage.spans)
    files["texts"].append(np.frombuffer(title + passage.text, "uint8"))


def _append_row(files, block_id, title_length):
    sizes = [files[name].num_rows for name in PackedPassages.limits]
    files["passages"].append([[block_id, *sizes, sizes[-1] + title_length]])


class PackedPassages(array_files.PackedArrays):
    """The passages of a directory that `pack_passages` wrote, by number.

    Passages are in the order of the annotated records.

    Args:
        directory: str.
    """

    kind = Passages.kinds[1]
    columns = {
        "passages": ("int64", 6),
        "token_ids": ("uint16", None),
        "sentences": ("int32", 3),
        "spans": ("int32", 5),
        "texts": ("uint8", None),
    }
    limits = {"token_ids": 1, "sentences": 2, "spans": 3, "texts": 4}

    def __getitem__(self, number: int) -> tokenized_passages.TokenizedPassage:
        """The passage of a number, 0 to `len() - 1`."""
        rows = self.rows(number)
        block_id, _, _, _, title, text = self.table[number].tolist()
        texts = rows["texts"].tobytes()
        return tokenized_passages.TokenizedPassage(
            block_id=block_id,
            title=texts[: text - title].decode("utf-8"),
            text=texts[text - title :],
            token_ids=rows["token_ids"],
            sentences=rows["sentences"],
            spans=rows["spans"],
        )

    def count_spans(self, eligible: Callable) -> np.ndarray:
        """How many spans of each passage are eligible.

        Args:
            eligible: function of spans, int array `(num_spans, 5)`, that gives
                which are, bool array `(num_spans,)`.

        Returns:
            int32 array `(num_passages,)`.
        """
        found = np.zeros(len(self), "int32")
        # In parts: the spans of a large corpus are not for memory.
        for first in range(0, len(self), _PART):
            limits = self.table[first : first + _PART + 1, 3]
            spans = self.arrays["spans"][limits[0] : limits[-1]]
            total = np.concatenate([[0], np.cumsum(eligible(spans))])
            places = total[limits - limits[0]]
            found[first : first + _PART] = np.diff(places)
        return found
