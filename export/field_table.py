"""Fields of documents, and the filters over them, inside a graph."""

import collections
import re
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from realm_tf.export.compressed_texts import CompressedTexts
from realm_tf.models.fixed_weight import shared

# One below is the largest that a fingerprint can be.
_NO_TERM = np.iinfo("int64").max
# Of a filter, those of a key included (our choice): a row of numbers each.
_MOST_CONDITIONS = 16
_CONDITION = r"(?s:\s*([^<>=!]*[^<>=!\s])\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*)"
_IS_ORDER = "[<>]=?"
_DATE = r"(?s:[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ].*)?)?)?)"
_NUMBER = r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?"
# How the values of a field are ordered; of one that no document has, in any way.
_UNORDERED, _BY_NUMBER, _BY_DATE, _EMPTY = range(4)


class FieldTable(tf.Module):
    """Which blocks a filter lets be found.

        language=de|en; date>=2024-01-01; tags!=draft

    All conditions must hold, which ";" separates. `=` holds where one of a
    document's values of the field equals one of the alternatives, which "|"
    separates, `!=` where none does. `<`, `<=`, `>`, `>=` compare by the first
    value of the document, in a field where most of these are numbers, or else
    dates as of ISO 8601; a document without such a value is not found by them.
    Days alone count of a date, and "2024" is before all of its days. An empty
    filter lets everything be found.

    Args:
        names: sequence of str. Of the fields.
        fields: sequence of mappings. Of each block, name to list of str.
        num_rows: int. Blocks that there is room for.
        num_terms: int. Different values that there is room for. Defaults to
            `None`: as many as there are.
        num_entries: int. Values of all blocks that there is room for. Defaults
            to `None`: as many as there are.

    Attributes:
        texts: `CompressedTexts`. Of each block its fields, as `told` tells them.
    """

    def __init__(
        self,
        names: Sequence[str],
        fields: Sequence[Mapping],
        *,
        num_rows: int,
        num_terms: int | None = None,
        num_entries: int | None = None,
    ):
        super().__init__()
        self._num_rows = num_rows
        self._names = tuple(names)
        rows_of = _rows_of(names, fields)
        keys = list(rows_of)
        order = np.argsort(_fingerprints(keys).numpy(), kind="stable")
        rows = [rows_of[keys[place]] for place in order]
        self.terms = _variable(
            _fingerprints(keys).numpy()[order], num_terms, _NO_TERM
        )
        self.limits = _variable(
            np.cumsum([0, *map(len, rows)]).astype("int32"),
            None if num_terms is None else num_terms + 1,
            sum(map(len, rows)),
        )
        self.rows = _variable(
            np.array([row for each in rows for row in each], "int32"),
            num_entries,
            0,
        )
        columns = [_column(name, fields) for name in names]
        self.orders = tf.Variable(
            [order for order, _ in columns], trainable=False
        )
        numbers = np.full((len(names), num_rows), np.nan)
        for place, (_, values) in enumerate(columns):
            numbers[place, : len(values)] = values
        self.numbers = tf.Variable(numbers, trainable=False)
        empty = [""] * (num_rows - len(fields))
        self.texts = CompressedTexts(
            [*(told(names, each) for each in fields), *empty]
        )

    def allowed(self, filters):
        """Which blocks may be found.

        Args:
            filters: string tensor `(batch_size,)`.

        Returns:
            bool tensor `(batch_size, num_rows)`. The graph fails on a filter
            that is none, or names no field.
        """
        split = tf.strings.split(filters, ";")
        # Nothing else is blank: what is no condition must not pass for none.
        is_condition = tf.strings.length(tf.strings.strip(split.values)) > 0
        questions = tf.boolean_mask(split.value_rowids(), is_condition)
        # Questions that are asked together often have the same ones.
        conditions, places = tf.unique(
            tf.boolean_mask(split.values, is_condition)
        )
        of_question = tf.RaggedTensor.from_value_rowids(
            places, questions, tf.size(filters, tf.int64)
        )
        conditions = _checked(
            conditions,
            of_question.row_lengths() <= _MOST_CONDITIONS,
            filters,
            f"has more than {_MOST_CONDITIONS} conditions",
        )
        field, *parts = self._parse(conditions)
        bounds = self._bounds(field, *parts[1:])
        of_all = tf.TensorSpec((self._num_rows,), tf.bool)
        # One after the other: numbers of all rows take the most memory.
        holds = tf.map_fn(
            lambda condition: self._holds(*condition),
            (field, *parts, bounds),
            parallel_iterations=1,
            fn_output_signature=of_all,
        )
        return tf.map_fn(
            lambda own: tf.reduce_all(tf.gather(holds, own), axis=0),
            of_question,
            fn_output_signature=of_all,
        )

    def _parse(self, conditions):
        """Number of the field, its name, the sign and the value of each."""
        conditions = _checked(
            conditions,
            tf.strings.regex_full_match(conditions, _CONDITION),
            conditions,
            "is no condition of a filter; expected NAME=VALUE, or one of "
            "!=, <, <=, >, >= instead of =; a filter joins them by ;",
        )
        names, signs, values = (
            tf.strings.regex_replace(conditions, f"^{_CONDITION}$", group)
            for group in (r"\1", r"\2", r"\3")
        )
        # (c, f)
        is_field = tf.equal(names[:, None], tf.constant(self._names)[None])
        is_field = _checked(
            is_field,
            tf.reduce_any(is_field, axis=1),
            names,
            "is no field of this corpus; expected one of "
            f"{', '.join(self._names)}",
        )
        return tf.argmax(is_field, axis=1), names, signs, values

    def _bounds(self, field, signs, values):
        """What numbers are compared with, float64 `(c,)`."""
        is_order = tf.strings.regex_full_match(signs, _IS_ORDER)
        order = tf.gather(self.orders, field)
        is_number = tf.strings.regex_full_match(values, _NUMBER)
        is_date = tf.strings.regex_full_match(values, _DATE)
        fits = tf.where(
            order == _EMPTY,
            is_number | is_date,
            ((order == _BY_NUMBER) & is_number)
            | ((order == _BY_DATE) & is_date),
        )
        values = _checked(
            values,
            fits | ~is_order,
            values,
            "cannot be compared by <, <=, > or >=; expected a number or a "
            "date, and a field whose values are such",
        )
        digits = tf.strings.regex_replace(values, "(?s)[T ].*|-", "")
        # As `_of_date`.
        digits = tf.strings.substr(tf.strings.join([digits, "0000"]), 0, 8)
        digits = tf.where(order == _BY_DATE, digits, values)
        is_read = is_order & fits & (order != _EMPTY)
        return tf.strings.to_number(tf.where(is_read, digits, "0"), tf.float64)

    def _holds(self, field, name, sign, value, bound):
        """Whether one condition holds of each block, `(n,)`."""

        def compared():
            numbers = tf.gather(self.numbers, field)
            return (
                (tf.strings.regex_full_match(sign, "<=?") & (numbers < bound))
                | (tf.strings.regex_full_match(sign, ">=?") & (numbers > bound))
                | (
                    tf.strings.regex_full_match(sign, "[<>]=")
                    & (numbers == bound)
                )
            )

        return tf.cond(
            tf.strings.regex_full_match(sign, _IS_ORDER),
            compared,
            lambda: tf.equal(self._equal(name, value), sign == "="),
        )

    def _equal(self, name, value):
        """Whether a value of each block is an alternative, `(n,)`."""
        alternatives = tf.strings.strip(tf.strings.split(value, "|"))
        keys = tf.strings.join([name, alternatives], "=")
        fingerprints, _ = tf.unique(_fingerprints(keys))
        terms = tf.convert_to_tensor(self.terms)
        place = tf.minimum(
            tf.searchsorted(terms, fingerprints), tf.size(terms) - 1
        )
        is_there = tf.equal(tf.gather(terms, place), fingerprints)
        place = tf.boolean_mask(place, is_there)
        # All lists, one after the other.
        listed = tf.ragged.range(
            tf.gather(self.limits, place), tf.gather(self.limits, place + 1)
        )
        rows = tf.gather(self.rows, listed.values)
        found = tf.scatter_nd(
            rows[:, None], tf.ones_like(rows), (self._num_rows,)
        )
        return found > 0


def told(names: Sequence[str], fields: Mapping) -> str:
    """What a document's fields are, as a filter for them would say.

    >>> told(["date", "tags"], {"date": ["2024-05-01"], "tags": ["hr", "law"]})
    'date=2024-05-01; tags=hr|law'
    """
    return "; ".join(
        f"{name}={'|'.join(fields[name])}" for name in names if fields.get(name)
    )


def count(names: Sequence[str], fields: Sequence[Mapping]) -> tuple[int, int]:
    """How many terms and entries a `FieldTable` of these has."""
    rows_of = _rows_of(names, fields)
    return len(rows_of), sum(map(len, rows_of.values()))


def _rows_of(names, fields):
    """Each value of each field, as a condition, to the blocks that have it."""
    found = {}
    for row, values_of in enumerate(fields):
        for name in names:
            for value in values_of.get(name, ()):
                found.setdefault(f"{name}={value}", []).append(row)
    return found


def _fingerprints(keys):
    return tf.strings.to_hash_bucket_fast(
        tf.constant(keys, tf.string) if isinstance(keys, list) else keys,
        _NO_TERM,
    )


def _variable(values, size, filler):
    """A variable with room for so many values, at least one."""
    size = max(1, len(values) if size is None else size)
    padded = np.full(size, filler, values.dtype)
    padded[: len(values)] = values
    return tf.Variable(shared(padded), trainable=False)


def _column(name, fields):
    """How a field is ordered, and a number for each block."""
    firsts = [next(iter(each.get(name, ())), None) for each in fields]
    # Many documents have the same.
    values = collections.Counter(each for each in firsts if each is not None)
    if not values:
        return _EMPTY, []
    number, date = (
        sum(n for each, n in values.items() if re.fullmatch(form, each))
        for form in (_NUMBER, _DATE)
    )
    # One odd value must not take the order from all others.
    if 2 * max(number, date) <= values.total():
        return _UNORDERED, []
    order, form, convert = (
        (_BY_NUMBER, _NUMBER, float)
        if number >= date
        else (_BY_DATE, _DATE, _of_date)
    )
    found = {each: convert(each) for each in values if re.fullmatch(form, each)}
    return order, [found.get(each, np.nan) for each in firsts]


def _of_date(value):
    digits = re.sub("[T ].*|-", "", value)
    return float((digits + "0000")[:8])


def _checked(value, is_right, texts, message):
    """`value`, once each of the texts is right; else the graph fails."""
    wrong = tf.boolean_mask(texts, ~is_right)[:1]
    # The message must be text, whatever the bytes are.
    wrong = tf.strings.unicode_transcode(wrong, "UTF-8", "UTF-8")
    check = tf.debugging.Assert(
        tf.reduce_all(is_right), [wrong, message], summarize=1
    )
    with tf.control_dependencies([check]):
        return tf.identity(value)
