"""Salient spans shown to people: a page of passages, sentences as text."""

import bisect
import collections
from collections.abc import Iterator

from realm_tf.artifacts import html_page
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Passages

# Neighbouring labels get hues far apart: the golden angle, in degrees.
_HUE_STEP = 137.508
_FIRST_HUE = 210
# Passages to find a few sentences with spans in.
_NUM_LOOKED_AT = 32


def write_page(
    annotated_dir: str, path: str, *, num_passages: int = 200
) -> None:
    """Writes a page on which a person sees the spans marked in their text.

    One HTML file that needs nothing else: labels are colours, which can be
    switched off one by one.

    Args:
        annotated_dir: str. Output of `realm annotate`.
        path: str. The file to write; one that is there is replaced.
        num_passages: int. Passages to show, spread evenly over the corpus.
            Defaults to `200`.

    Raises:
        InputError: if the directory is not complete, or the file cannot be
            written.
    """
    metadata = Passages(annotated_dir).metadata
    found = list(sample_passages(annotated_dir, num_passages=num_passages))
    shown = collections.Counter(
        label for _, passage in found for label in passage.span_label
    )
    total = {
        name.removeprefix("spans_"): count
        for name, count in metadata["counts"].items()
        if name.startswith("spans_")
    }
    html_page.write(
        path,
        "spans.html",
        title="Salient spans",
        subtitle=f"{len(found):,} of {metadata['num_passages']:,} passages; "
        f"tagger: {metadata['parameters']['tagger']}. Numbers: spans on this "
        "page, and in the whole corpus.",
        labels={
            label: {
                "hue": round(_FIRST_HUE + number * _HUE_STEP) % 360,
                "shown": shown[label],
                "total": total[label],
            }
            for number, label in enumerate(sorted(total))
        },
        passages=[
            (number, passage, _pieces(passage, 0, len(passage.text.encode())))
            for number, passage in found
        ],
    )


def sample_passages(
    annotated_dir: str, *, num_passages: int
) -> Iterator[tuple[int, schema.AnnotatedPassage]]:
    """Passages spread evenly over an annotated corpus.

    Divides the corpus into equal parts and takes the first passage of each.

    Args:
        annotated_dir: str. Output of `realm annotate`.
        num_passages: int. At most this many.

    Yields:
        (place in the corpus, from 0; `schema.AnnotatedPassage`), in order.

    Raises:
        InputError: if the directory is not complete, or a shard is missing or
            damaged.
    """
    passages = Passages(annotated_dir)
    total = len(passages)
    for place in sorted(
        {total * n // num_passages for n in range(num_passages)}
    ):
        (passage,) = passages.read(place, place + 1)
        yield place, passage


def sample_sentences(annotated_dir: str, *, num_sentences: int) -> list[str]:
    """A few sentences with their spans marked as `[text|label]`.

    Args:
        annotated_dir: str. Output of `realm annotate`.
        num_sentences: int. At most this many, of different passages.

    Returns:
        list of str.
    """
    passages = sample_passages(annotated_dir, num_passages=_NUM_LOOKED_AT)
    found = [passage for _, passage in passages if passage.span_label]
    count = min(num_sentences, len(found))
    return [
        _marked_sentence(found[number * len(found) // count])
        for number in range(count)
    ]


def _marked_sentence(passage):
    """The sentence of the first span."""
    number = bisect.bisect(
        passage.sentence_byte_start, passage.span_byte_start[0]
    )
    return "".join(
        text if label is None else f"[{text}|{label}]"
        for text, label in _pieces(
            passage,
            passage.sentence_byte_start[number - 1],
            passage.sentence_byte_limit[number - 1],
        )
    )


def _pieces(passage, start, limit):
    """The text from byte to byte as (text, label); `None` between spans."""
    content = passage.text.encode("utf-8")
    place = start
    for span_start, span_limit, label in zip(
        passage.span_byte_start,
        passage.span_byte_limit,
        passage.span_label,
        strict=True,
    ):
        if start <= span_start and span_limit <= limit:
            yield content[place:span_start].decode("utf-8"), None
            yield content[span_start:span_limit].decode("utf-8"), label
            place = span_limit
    yield content[place:limit].decode("utf-8"), None
