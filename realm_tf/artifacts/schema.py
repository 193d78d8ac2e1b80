"""The fields of every record.

Names ending in `_starts` and `_limits` count Unicode code points of `text`;
limits are exclusive.
"""

import dataclasses
import itertools


@dataclasses.dataclass
class Block:
    """One retrieval unit: some sentences of one article.

    Args:
        block_id: int. The row in every index; dense, from 0.
        article_id: str. The page id in its dump.
        title: str. The article's title.
        text: str. A slice of the article's text, line breaks as spaces.
        url: str. Where the article can be read, or `""`.
        title_ids: list of int. Wordpieces of the title.
        token_ids: list of int. Wordpieces of the text.
        token_starts: list of int. Code point where each wordpiece begins.
        token_limits: list of int. Code point after each wordpiece.
        sentence_starts: list of int. Code point where each sentence begins.
        link_starts: list of int. Where each wiki link's text begins.
        link_limits: list of int. Where it ends.
    """

    block_id: int
    article_id: str
    title: str
    text: str
    url: str = ""
    title_ids: list[int] = dataclasses.field(default_factory=list)
    token_ids: list[int] = dataclasses.field(default_factory=list)
    token_starts: list[int] = dataclasses.field(default_factory=list)
    token_limits: list[int] = dataclasses.field(default_factory=list)
    sentence_starts: list[int] = dataclasses.field(default_factory=list)
    link_starts: list[int] = dataclasses.field(default_factory=list)
    link_limits: list[int] = dataclasses.field(default_factory=list)

    def sentence_limits(self) -> list[int]:
        """Code point after each sentence, without the white space there."""
        bounds = itertools.pairwise([*self.sentence_starts, len(self.text)])
        return [
            start + len(self.text[start:limit].rstrip())
            for start, limit in bounds
        ]


# The original's names (google-research/language, language/realm), block_id and
# span_label are ours. `_byte_start` and `_byte_limit` count UTF-8 bytes.
@dataclasses.dataclass
class AnnotatedPassage:
    """A passage with the spans of it that are worth masking.

    Args:
        block_id: int. The block that the passage is; -1 for one of another
            corpus.
        title: str. The article's title.
        text: str.
        sentence_byte_start: list of int. UTF-8 byte where each sentence
            begins.
        sentence_byte_limit: list of int. The byte after its last one.
        span_byte_start: list of int. UTF-8 byte where each salient span
            begins; spans lie inside one sentence and do not overlap.
        span_byte_limit: list of int. The byte after its last one.
        span_label: list of str. What each span is, by its tagger.
    """

    block_id: int
    title: str
    text: str
    sentence_byte_start: list[int] = dataclasses.field(default_factory=list)
    sentence_byte_limit: list[int] = dataclasses.field(default_factory=list)
    span_byte_start: list[int] = dataclasses.field(default_factory=list)
    span_byte_limit: list[int] = dataclasses.field(default_factory=list)
    span_label: list[str] = dataclasses.field(default_factory=list)

    def sentences(self) -> list[str]:
        """The texts of the sentences."""
        return self._texts(self.sentence_byte_start, self.sentence_byte_limit)

    def spans(self) -> list[str]:
        """The texts of the spans."""
        return self._texts(self.span_byte_start, self.span_byte_limit)

    def _texts(self, starts, limits):
        content = self.text.encode("utf-8")
        return [
            content[start:limit].decode("utf-8")
            for start, limit in zip(starts, limits, strict=True)
        ]
