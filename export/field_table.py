"""Fields of documents, and the filters over them, inside a graph."""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from realm_tf.export import corpus_tables
from realm_tf.export.compressed_texts import CompressedTexts
from realm_tf.export.compressed_texts import table

# Of a filter (our choice): each takes time. A server joins that of a request and
# that of its key, 16 each.
_MOST_CONDITIONS = 32
_CONDITION = r"(?s:\s*([^<>=!]*[^<>=!\s])\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*)"
_DATE = r"(?s:[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ].*)?)?)?)"
_NUMBER = r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?"


class FieldTable(tf.Module):
    """Which blocks a filter allows.

        language=de|en; date>=2024-01-01; tags!=draft

    ";" separates conditions, which must all hold. `=` holds where one of a
    document's values of the field equals one of the alternatives, which "|"
    separates, `!=` where none does. `<`, `<=`, `>`, `>=` compare the first value
    of the document where this and the bound are two numbers or two ISO 8601
    dates; other documents are not found. A date without a day or a time stands
    for all of it: `date=2024` and `date<=2024` find each day of that year,
    `date>2024` none. Times compare as written, whatever their zone. An empty
    filter allows all blocks.

    Args:
        names: sequence of str. Of the fields.
        fields: sequence of mappings. Of each block, name to list of str.

    Attributes:
        texts: `CompressedTexts`. Of each block its fields, see `told`.
    """

    def __init__(
        self,
        names: Sequence[str],
        fields: Sequence[Mapping],
    ):
        super().__init__()
        self._names = tuple(names)
        tables = corpus_tables.of_fields(names, fields, _read_eagerly)
        self.terms = table(tables["terms"])
        self.rows = table(tables["rows"])
        # (n, f, 2): as numbers, and as dates.
        self.orders = table(tables["orders"])
        self.texts = CompressedTexts(
            corpus_tables.told(names, each) for each in fields
        )

    def allowed(self, filters):
        """Which blocks may be found.

        Args:
            filters: string tensor `(batch_size,)`.

        Returns:
            bool tensor `(batch_size, num_rows)`. The graph fails on a filter
            that is none, or names no field.
        """
        # Questions that are asked together often have the same filter.
        filters, places = tf.unique(filters)
        found = tf.map_fn(
            self._allowed,
            filters,
            # The numbers of all rows take the most memory.
            parallel_iterations=1,
            fn_output_signature=tf.TensorSpec((None,), tf.bool),
        )
        return tf.gather(found, places)

    def _allowed(self, filter):
        """Which blocks one filter allows, `(num_rows,)`."""
        parts = tf.strings.split(filter, ";")
        # Nothing else is blank: what is no condition must not pass for none.
        conditions = tf.boolean_mask(
            parts, tf.strings.length(tf.strings.strip(parts)) > 0
        )
        conditions = _checked(
            conditions,
            tf.size(conditions) <= _MOST_CONDITIONS,
            filter,
            f"has more than {_MOST_CONDITIONS} conditions",
        )
        return tf.foldl(
            lambda allowed, each: allowed & self._holds(each),
            conditions,
            initializer=tf.ones(self._num_rows(), tf.bool),
            parallel_iterations=1,
        )

    def _holds(self, condition):
        """Whether a condition holds of each block, `(num_rows,)`."""
        condition = _checked(
            condition,
            tf.strings.regex_full_match(condition, _CONDITION),
            condition,
            "is no condition of a filter; expected NAME=VALUE, or one of "
            "!=, <, <=, >, >= instead of =; a filter joins them by ;",
        )
        name, sign, value = (
            tf.strings.regex_replace(condition, f"^{_CONDITION}$", group)
            for group in (r"\1", r"\2", r"\3")
        )
        # As the fields of documents are.
        name, value = (tf_text.normalize_utf8(e, "NFC") for e in (name, value))
        # (f,)
        is_field = tf.equal(name, tf.constant(self._names))
        is_field = _checked(
            is_field,
            tf.reduce_any(is_field),
            name,
            "is no field of this corpus; expected one of "
            f"{', '.join(self._names)}",
        )
        return tf.cond(
            tf.strings.regex_full_match(sign, "[<>]=?"),
            lambda: self._compared(tf.argmax(is_field), sign, value),
            lambda: tf.equal(
                self._equal(name, value) | self._within(is_field, value),
                sign == "=",
            ),
        )

    def _compared(self, field, sign, value):
        """Whether the first value of each block is less or more."""
        # (2,)
        first, last = (tf.stack(_orders(value, rest)) for rest in "09")
        first = _checked(
            first,
            tf.reduce_any(~tf.math.is_nan(first)),
            value,
            "cannot be compared by <, <=, > or >=; expected a number or a date",
        )
        # (n, 2): nothing is less, more or equal to what is no number.
        orders = tf.gather(self.orders, field, axis=1)
        holds = (
            (tf.strings.regex_full_match(sign, "<=?") & (orders < first))
            | (tf.strings.regex_full_match(sign, ">=?") & (orders > last))
            | (
                tf.strings.regex_full_match(sign, "[<>]=")
                & (orders >= first)
                & (orders <= last)
            )
        )
        return tf.reduce_any(holds, axis=1)

    def _within(self, is_field, value):
        """Whether the first value of each block is in a time that is named."""
        alternatives = tf.strings.strip(tf.strings.split(value, "|"))
        # (alternatives, 1)
        first, last = (_orders(alternatives, rest)[1][:, None] for rest in "09")
        # (n,): dates alone.
        orders = tf.gather(self.orders[..., 1], tf.argmax(is_field), axis=1)
        return tf.reduce_any((orders >= first) & (orders <= last), axis=0)

    def _equal(self, name, value):
        """Whether a value of each block is an alternative."""
        alternatives = tf.strings.strip(tf.strings.split(value, "|"))
        wanted = tf.sort(
            _fingerprints(tf.strings.join([name, alternatives], "="))
        )
        terms = tf.convert_to_tensor(self.terms)
        place = tf.minimum(tf.searchsorted(wanted, terms), tf.size(wanted) - 1)
        rows = tf.boolean_mask(self.rows, tf.gather(wanted, place) == terms)
        found = tf.scatter_nd(
            rows[:, None], tf.ones_like(rows), (self._num_rows(),)
        )
        return found > 0

    def _num_rows(self):
        return tf.shape(self.orders)[0]


def read(keys, firsts) -> dict:
    """What filters look up, as of `corpus_tables.of_fields`: tensors."""
    return {
        "terms": _fingerprints(keys),
        "orders": tf.stack(_orders(firsts), axis=-1),
    }


def _read_eagerly(keys, firsts):
    tensors = (tf.constant(each, tf.string) for each in (keys, firsts))
    return {name: each.numpy() for name, each in read(*tensors).items()}


def _fingerprints(keys):
    return tf.strings.to_hash_bucket_fast(keys, corpus_tables.NO_TERM)


def _orders(texts, rest="0"):
    """Texts as numbers and as dates, float64; not a number where not such.

    Args:
        texts: string tensor.
        rest: str. The digit of what a date leaves out: its beginning with
            `"0"`, its end with `"9"`. Defaults to `"0"`.
    """
    # 20240501093000, without parts of seconds and zones.
    digits = tf.strings.regex_replace(texts, "([T ][0-9:]*).*", r"\1")
    digits = tf.strings.regex_replace(digits, "[^0-9]", "")
    digits = tf.strings.join([digits, rest * 10])
    digits = tf.strings.substr(digits, 0, 14)
    return [
        tf.where(
            is_such := tf.strings.regex_full_match(texts, form),
            tf.strings.to_number(tf.where(is_such, read, "0"), tf.float64),
            np.nan,
        )
        for form, read in ((_NUMBER, texts), (_DATE, digits))
    ]


def _checked(value, is_right, text, message):
    """`value`, where a text is right; else the graph fails."""
    # The message must be text, whatever the bytes are.
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
    check = tf.debugging.Assert(is_right, [text, message])
    with tf.control_dependencies([check]):
        return tf.identity(value)
