"""Reads Natural Questions in full and makes open questions of its examples.

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
import json
import re
from collections.abc import Iterator

from realm_tf.articles import pages
from realm_tf.data.question_sets.entry import Entry
from realm_tf.errors import InputError

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


def read_natural_questions(
    path: str, *, max_answer_tokens: int = MAX_ANSWER_TOKENS
) -> Iterator[Entry]:
    """The examples of a file, as published (v1.0) or simplified.

    Where the page's HTML is there, an answer is the text of its bytes: what the
    page says, as in NQ-open. Without it, the spaces between tokens come from
    their byte offsets. The simplified form has neither: there they follow
    English habits ("T . J . Miller" is "T. J. Miller"), which is a guess.

    Args:
        path: str. JSONL; may be compressed.
        max_answer_tokens: int. Of a span, tags counted. Defaults to `5`.

    Yields:
        `Entry`. Dropped are `long_answer` (every span is longer), `yes_no`
        and `no_answer`.

    Raises:
        InputError: naming file and line, if a line is no such example.
    """
    with pages.open_bytes(path) as file:
        for number, text in pages.read_lines(file, path):
            if not text.strip():
                continue
            place = f"{path}, line {number}"
            try:
                yield _entry(json.loads(text), place, max_answer_tokens)
            except (
                ArithmeticError,
                AttributeError,
                LookupError,
                RecursionError,
                TypeError,
                ValueError,
            ) as error:
                raise InputError(
                    f"{place} is no example of Natural Questions "
                    f"({type(error).__name__}: {error}): expected "
                    '"question_text", "annotations" and "document_html", '
                    '"document_tokens" or "document_text".'
                ) from error


def _entry(example, place, max_answer_tokens):
    answers, is_long, is_yes_no = [], False, False
    page = _Page(example)
    for annotation in example["annotations"]:
        is_yes_no |= annotation.get("yes_no_answer") in ("YES", "NO")
        for span in annotation["short_answers"]:
            if span["end_token"] - span["start_token"] > max_answer_tokens:
                is_long = True
            else:
                answers.append(page.text(span))
    dropped = ""
    if not answers:
        dropped = (is_long and "long_answer") or (is_yes_no and "yes_no")
        dropped = dropped or "no_answer"
    return Entry(
        place=place,
        question=example["question_text"],
        answers=answers,
        dropped=dropped,
    )


class _Page:
    """The page of an example, which is prepared once it is needed."""

    def __init__(self, example):
        self._example = example
        self._html = self._tokens = None

    def text(self, span):
        if "document_html" in self._example and "start_byte" in span:
            if self._html is None:
                self._html = self._example["document_html"].encode("utf-8")
            cut = self._html[span["start_byte"] : span["end_byte"]]
            return strip_tags(cut.decode("utf-8"))
        start, limit = span["start_token"], span["end_token"]
        if "document_tokens" in self._example:
            tokens = self._example["document_tokens"]
            return _join_at_offsets(_cut(tokens, start, limit))
        if self._tokens is None:
            # Not split(): some tokens hold other white space.
            self._tokens = self._example["document_text"].split(" ")
        return join_tokens(_cut(self._tokens, start, limit))


def _cut(tokens, start, limit):
    if not 0 <= start < limit <= len(tokens):
        raise ValueError(
            f"tokens {start} to {limit} of a page of {len(tokens)}"
        )
    return tokens[start:limit]


def _join_at_offsets(tokens):
    text, last = "", tokens[0]["start_byte"]
    for token in tokens:
        # A tag is no space, as in the text of the page's bytes.
        text += " " * (token["start_byte"] > last)
        text += "" if token["html_token"] else token["token"]
        last = token["end_byte"]
    return text


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
    parser = _TextParser()
    parser.feed(text)
    parser.close()
    return "".join(parser.pieces)


class _TextParser(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.pieces = []

    def handle_data(self, data):
        self.pieces.append(data)
