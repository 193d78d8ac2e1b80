import os
import re

import html_reader
import pytest
from annotated_passages import passage
from annotated_passages import write_annotated

from realm_tf.errors import InputError
from realm_tf.tagging import page


def read(directory, tmp_path, **arguments):
    path = str(tmp_path / "page.html")
    page.write_page(directory, path, **arguments)
    return html_reader.read(path, scripts=1)


PASSAGES = [
    passage(
        "🚢 [Über|LOC] [<b>Zürich</b>|LOC] & [日本|A<B\"'&]: [é|LOC], "
        "in [1869|DATE].",
        title='</h2><script>alert("x")</script>',
    ),
    passage("Nothing here.", block_id=1, title=""),
    passage("[1869|DATE], [1869|DATE] and 1869.", block_id=2, title="Title 2"),
    passage("From [$x|LOC] to ${y}\x00\x1b[1m", block_id=-1, title="Title 3"),
]


def test_every_span_is_marked_once_and_text_is_escaped(tmp_path):
    directory = write_annotated(tmp_path / "annotated", PASSAGES)
    found, content = read(directory, tmp_path)
    labels = [each["data-label"] for each in found.attributes["mark"]]
    assert list(zip(found.texts["mark"], labels, strict=True)) == [
        span
        for each in PASSAGES
        for span in zip(each.spans(), each.span_label, strict=True)
    ]
    assert [text.split("\n")[1] for text in found.texts["article"]] == [
        *(each.text for each in PASSAGES[:3]),
        "From $x to ${y}\ufffd\ufffd[1m",
    ]
    assert found.texts["h2"] == [
        '</h2><script>alert("x")</script> block 0',
        "(no title) block 1",
        "Title 2 block 2",
        "Title 3 passage 3",
    ]
    # The second date of the third passage comes right after the first.
    assert re.search(
        r"<mark[^>]*>1869</mark>, <mark[^>]*>1869</mark> and 1869", content
    )
    assert os.listdir(tmp_path / "annotated").count("page.html") == 0


def test_labels_have_colours_counts_and_switches(tmp_path):
    directory = write_annotated(tmp_path / "annotated", PASSAGES)
    found, content = read(directory, tmp_path, num_passages=2)
    marks = found.attributes["mark"]
    shown = [each["data-label"] for each in marks]
    total = {"LOC": 4, "DATE": 3, "A<B\"'&": 1}
    boxes = (each.get("data-label") for each in found.attributes["input"])
    texts = (text.strip() for text in found.texts["label"])
    assert dict(zip(boxes, texts, strict=True)) == {
        **{
            label: f"{label} {shown.count(label)} / {count}"
            for label, count in total.items()
        },
        None: "show labels",
    }
    hues = {(each["data-label"], each["style"]) for each in marks}
    assert len(hues) == len({hue for _, hue in hues}) == len(set(shown))
    assert "2 of 4 passages; tagger: rules." in content


def test_passages_are_spread_evenly(tmp_path):
    passages = [passage(f"In [{n}|DATE].", block_id=n) for n in range(23)]
    directory = write_annotated(
        tmp_path / "annotated", passages, rows_per_shard=4
    )
    found = list(page.sample_passages(directory, num_passages=5))
    assert found == [(n, passages[n]) for n in (0, 4, 9, 13, 18)]
    for number in (23, 200):
        found = list(page.sample_passages(directory, num_passages=number))
        assert found == list(enumerate(passages))


def test_what_is_wrong_is_named(tmp_path):
    directory = write_annotated(tmp_path / "annotated", PASSAGES)
    path = str(tmp_path / "page.html")
    with pytest.raises(InputError, match="none does not exist"):
        page.write_page(str(tmp_path / "none"), path)
    with pytest.raises(InputError, match="none/page.html cannot be written"):
        page.write_page(directory, str(tmp_path / "none" / "page.html"))
    assert not os.path.exists(path)
