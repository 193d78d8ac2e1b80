"""A page that shows people the salient spans of passages."""

import collections
from collections.abc import Iterator

from realm_tf.artifacts import html_page
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Passages

# Neighbouring labels get hues far apart: the golden angle, in degrees.
_HUE_STEP = 137.508
_FIRST_HUE = 210


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
            (number, passage, _pieces(passage)) for number, passage in found
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


def _pieces(passage):
    """The text as (text, label); the label is `None` between spans."""
    content = passage.text.encode("utf-8")
    place = 0
    for start, limit, label in zip(
        passage.span_byte_start,
        passage.span_byte_limit,
        passage.span_label,
        strict=True,
    ):
        yield content[place:start].decode("utf-8"), None
        yield content[start:limit].decode("utf-8"), label
        place = limit
    yield content[place:].decode("utf-8"), None
