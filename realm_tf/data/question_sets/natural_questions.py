"""Open questions of the examples of Natural Questions in full.

An example becomes a question of NQ-open if one of its annotations has a short
answer of at most five tokens (Lee et al. 2019). As in the original's conversion
(google-research/language, orqa/preprocessing/convert_to_nq_open.py):

- the tokens of a span are counted with the HTML tags among them;
- a short answer of several spans gives one answer for each span, and a span
  that is too long goes alone;
- of several annotations (the development set has five) all answers count, even
  one that a single annotator gave;
- yes and no are no answers.

Unlike there, the answers keep their order, and white space in them is one
space, so that "October 29" with a no-break space is no second answer.
"""

import html.parser
import re

from realm_tf.data.question_sets.merging import Entry

# [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
MAX_ANSWER_TOKENS = 5

# The simplified form writes "<Th_colspan="2">": a tag holds no space there.
_TAG = re.compile(r"</?[A-Za-z][^ ]*>")
_SPACE_BEFORE = re.compile(
    r" (?=[.,;:!?%)\]}]|(?:'(?:s|re|ve|d|ll|m)?|n't)(?: |$))", re.IGNORECASE
)
_SPACE_AFTER = re.compile(r"(?<=[$£€(\[{]) ")
_HYPHEN = re.compile(r"(?<=\w) - (?=\w)")
_QUOTED = re.compile(r'" ([^"]*?) "')


def entry(
    example: dict, place: str, max_answer_tokens: int = MAX_ANSWER_TOKENS
) -> Entry:
    """An example, as published (v1.0) or simplified, as an open question.

    Where the page's HTML is there, an answer is the text of its bytes: what the
    page says, as in NQ-open. The simplified form has tokens alone: the spaces
    between them follow English habits ("T . J . Miller" is "T. J. Miller"),
    which is a guess.

    Args:
        example: dict. A line of a file.
        place: str. The file and the line.
        max_answer_tokens: int. Of a span, tags counted. Defaults to `5`.

    Returns:
        `Entry`. Dropped are `long_answer` (every span is longer), `yes_no`
        and `no_answer`.
    """
    spans, is_yes_no = [], False
    for annotation in example["annotations"]:
        is_yes_no |= annotation.get("yes_no_answer") in ("YES", "NO")
        spans += annotation["short_answers"]
    short = [
        span
        for span in spans
        if span["end_token"] - span["start_token"] <= max_answer_tokens
    ]
    dropped = ""
    if not short:
        dropped = "yes_no" if is_yes_no else "no_answer"
        dropped = "long_answer" if spans else dropped
    return Entry(
        place=place,
        question=example["question_text"],
        answers=_texts(example, short),
        dropped=dropped,
    )


def _texts(example, spans):
    """What a page says at some spans."""
    if not spans:
        return []
    if "document_html" in example:
        page = example["document_html"].encode("utf-8")
        return [
            strip_tags(page[s["start_byte"] : s["end_byte"]].decode("utf-8"))
            for s in spans
        ]
    # Not split(): some tokens hold other white space.
    tokens = example["document_text"].split(" ")
    for span in spans:
        if not 0 <= span["start_token"] < span["end_token"] <= len(tokens):
            raise ValueError(
                f"{span} is outside a page of {len(tokens)} tokens"
            )
    return [
        join_tokens(tokens[s["start_token"] : s["end_token"]]) for s in spans
    ]


def join_tokens(tokens: list[str]) -> str:
    """The text of tokens whose spaces are lost, without HTML tags.

    Args:
        tokens: list of str. Of the simplified form.

    Returns:
        str.

    Example:

    >>> join_tokens(["<P>", "Zachary", "'s", "cat", "(", "a", "-", "b", ")"])
    "Zachary's cat (a-b)"
    """
    text = " ".join(token for token in tokens if not _TAG.fullmatch(token))
    text = text.replace("``", '"').replace("''", '"')
    text = _QUOTED.sub(r'"\1"', text)
    text = _SPACE_AFTER.sub("", _SPACE_BEFORE.sub("", text))
    return _HYPHEN.sub("-", text)


def strip_tags(text: str) -> str:
    """The text of a piece of HTML; entities are resolved.

    Example:

    >>> strip_tags("<b>AT&amp;T</b> <a href='x'>Park</a>")
    'AT&T Park'
    """
    pieces = []
    parser = html.parser.HTMLParser()
    parser.handle_data = pieces.append
    parser.feed(text)
    parser.close()
    return "".join(pieces)
