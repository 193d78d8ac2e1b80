"""What an export holds of its blocks: index, wordpieces, texts."""

import functools
import types

import numpy as np
import tensorflow as tf

from realm_tf.export import corpus_tables
from realm_tf.export.compressed_texts import CompressedTexts
from realm_tf.export.compressed_texts import table
from realm_tf.retrieval.scann import Scann
from realm_tf.text import answer_spans


class CorpusPart(tf.Module):
    """The variables of an export that other blocks would change.

    Args:
        records: `BlockRecords`.
        index: `retrieval.index.Index`.
        block_table: `BlockTable`.
        lexical: `WordpieceBm25`, or `None`.
        block_ids: int64 array `(num_blocks,)`. What each block is called
            outside; -1 for what is no block. Defaults to `None`: its row.
        fields: `FieldTable`. Defaults to `None`: nothing can be filtered.
        is_padded: bool. Whether rows at the end may be no block. Defaults to
            `False`.
    """

    def __init__(
        self,
        records,
        *,
        index,
        block_table,
        lexical,
        block_ids=None,
        fields=None,
        is_padded=False,
    ):
        super().__init__()
        if isinstance(index, Scann):
            index = index.for_graph()
        # In a namespace, where TensorFlow does not look: Keras's own objects
        # would be saved, too, and every weight a second time.
        self.layers = types.SimpleNamespace(
            index=index, block_table=block_table, lexical=lexical
        )
        self.scann_state = getattr(index, "module", None)
        self.index = _values(index)
        self.wordpieces = _values(block_table)
        self.lexical = _values(lexical)
        self.titles = CompressedTexts(records.titles)
        # Of texts, with a line break between two sentences.
        self.lines = CompressedTexts(map(records.line, range(len(records))))
        self.urls = CompressedTexts(records.urls)
        for name, array in corpus_tables.of_wordpieces(records).items():
            setattr(self, name, table(array))
        self._is_padded = is_padded
        self.block_ids = None if block_ids is None else table(block_ids)
        self.fields = fields

    def sizes(self) -> dict[str, int]:
        """Bytes of each part, in the SavedModel and in memory."""
        found = {name: num_bytes([v]) for name, v in self.named().items()}
        return corpus_tables.sizes(found)

    def named(self) -> dict[str, tf.Variable]:
        """Path from here to each variable: the shortest, as in a checkpoint."""
        view = tf.train.TrackableView(self)
        seen, left, found = {id(self)}, [("", self)], {}
        while left:
            path, node = left.pop(0)
            if isinstance(node, tf.Variable):
                found[path] = node
                continue
            for name, child in view.children(node).items():
                if id(child) not in seen:
                    seen.add(id(child))
                    left.append((f"{path}/{name}".lstrip("/"), child))
        return found

    def allowed(self, filters=None):
        """Which rows may be found, as `Index.search` takes it.

        Args:
            filters: string tensor `(batch_size,)`. Defaults to `None`: none.

        Returns:
            bool tensor; `None` where all may be.
        """
        if filters is None and not self._is_padded:
            return None
        is_block = tf.convert_to_tensor(self.block_ids)[None] >= 0
        if filters is None:
            return is_block
        return is_block & self.fields.allowed(filters)

    def ids_of(self, rows):
        """What blocks are called outside, int64; -1 stays."""
        if self.block_ids is None:
            return tf.cast(rows, tf.int64)
        found = tf.gather(self.block_ids, tf.maximum(rows, 0))
        return tf.where(rows >= 0, found, -1)

    def told(self, rows, name: str) -> dict:
        """What the fields of blocks are, as an output; none without fields."""
        if self.fields is None:
            return {}
        return {name: self.fields.texts.lookup(rows)}

    def slice(self, rows, lines, starts, limits, are_sentences) -> dict:
        """Answers and their sentences, as of `BlockRecords.span_offsets`.

        Args:
            rows: int tensor `(batch_size, num)`. Blocks.
            lines: string tensor of that shape. Of `self.lines`.
            starts: int tensor of that shape. First wordpieces; -1 of no span.
            limits: as `starts`. The ones after the last.
            are_sentences: bool tensor `(batch_size,)`. Whether the answers to
                a question are sentences.

        Returns:
            dict of tensors of that shape: `answer`, `sentence`, and of the answer
            `start` and `limit`, in code points.
        """
        found = starts >= 0
        start = self._offset(self.token_starts, rows, tf.maximum(starts, 0))
        limit = self._offset(self.token_limits, rows, tf.maximum(limits - 1, 0))
        start = tf.where(found, start, 0)
        limit = tf.where(found, tf.maximum(limit, start), 0)
        cut = functools.partial(tf.strings.substr, lines, unit="UTF8_CHAR")
        zero, replace = tf.zeros_like(start), tf.strings.regex_replace
        before = cut(zero, start)
        before = replace(before, answer_spans.BEFORE_SENTENCE, "")
        answer = text_of(cut(start, limit - start))
        # As much as there is.
        after = cut(limit, zero + 2**30)
        after = replace(after, answer_spans.AFTER_SENTENCE, r"\1")
        longer, begun, mended = answer_spans.mended(
            before, answer, after, replace=replace
        )
        sentence = tf.where(found, before + answer + after, "")
        whole = are_sentences[:, None] & found
        # Of marks alone nothing would be left.
        as_is = mended == ""
        moved = tf.where(as_is, 0, _length(longer) - _length(begun))
        moved = tf.where(whole, -_length(before), moved)
        answer = tf.where(as_is, answer, mended)
        answer = tf.where(whole, sentence, answer)
        return {
            "answer": answer,
            "sentence": sentence,
            "start": start + moved,
            "limit": start + moved + _length(answer),
        }

    def _offset(self, table, rows, wordpieces):
        """Code points of wordpieces of blocks; any where a block has none."""
        places = tf.gather(self.first_wordpieces, tf.maximum(rows, 0))
        places += tf.cast(wordpieces, places.dtype)
        places = tf.minimum(places, tf.size(table, places.dtype) - 1)
        return tf.cast(tf.gather(table, places), tf.int32)


def text_of(lines):
    """Texts of blocks, from `CorpusPart.lines`."""
    return tf.strings.regex_replace(lines, r"\n", " ")


def _length(texts):
    return tf.strings.length(texts, unit="UTF8_CHAR")


def _values(layer):
    """Keras's variables, as TensorFlow's own, are what is saved."""
    return [each.value for each in getattr(layer, "variables", ())]


def num_bytes(variables) -> int:
    """Bytes of the values of TensorFlow's variables."""
    total = 0
    for variable in variables:
        dtype = tf.as_dtype(variable.dtype)
        if dtype == tf.string:
            total += sum(map(len, np.ravel(variable.numpy())))
        else:
            total += dtype.size * int(tf.size(variable))
    return total
