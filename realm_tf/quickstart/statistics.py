"""Prints what the embedded corpus holds, as the tables of its README.

python -m realm_tf.quickstart.statistics --blocks quickstart-output/blocks
"""

import argparse
import collections
import json
import pathlib
import re
import statistics

import mwparserfromhell
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from realm_tf import quickstart
from realm_tf.articles import readers
from realm_tf.artifacts import question_files
from realm_tf.errors import InputError
from realm_tf.quickstart import labelled
from realm_tf.text import answers
from realm_tf.text import sentences

_QUESTION_WORDS = (
    "who",
    "when",
    "where",
    "what",
    "which",
    "how many",
    "how long",
    "how",
    "why",
)
# Question words say what is asked for, not what about.
_NO_CONTENT = frozenset(STOPWORDS_EN) | set(
    [
        "who",
        "whom",
        "whose",
        "what",
        "which",
        "when",
        "where",
        "why",
        "how",
        "many",
        "much",
        "did",
        "do",
        "does",
    ]
)
# A question with at most this share of its content words in the sentence that
# answers it is asked in other words. Our choice.
LITTLE_OVERLAP = 1 / 3


def overlap(question: str, sentence: str) -> float:
    """Share of a question's content words that occur in a sentence.

    Words are compared by their stem (Snowball, English); stop words (those
    of bm25s) and question words do not count.

    Args:
        question: str.
        sentence: str.

    Returns:
        float between 0 and 1; 0 for a question without content words.
    """
    asked = _stems(question)
    return len(asked & _stems(sentence)) / max(1, len(asked))


def _stems(text):
    stem = Stemmer.Stemmer("english").stemWord
    words = re.findall(r"\w+", text.lower())
    return {stem(word) for word in words if word not in _NO_CONTENT}


def read_articles() -> dict[str, str]:
    """Title to text of the articles, as `realm chunk` sees them."""
    found = {}
    for page in readers.read_pages(quickstart.CORPUS):
        if not readers.drop_reason(page, format=readers.MEDIAWIKI):
            found[page.title] = readers.article_text(
                page, format=readers.MEDIAWIKI
            ).text
    return found


def link_targets(wikitext: str) -> list[str]:
    """Titles of the articles that a page links to, in the order of its text."""
    links = mwparserfromhell.parse(wikitext).filter_wikilinks()
    titles = [str(link.title).partition("#")[0].strip() for link in links]
    # An article's title begins with a capital, a file's or category's link
    # names its namespace.
    return [
        title[0].upper() + title[1:]
        for title in titles
        if title and ":" not in title
    ]


def corpus_table() -> str:
    """Pages, sizes and links, a Markdown table."""
    pages = list(readers.read_pages(quickstart.CORPUS))
    kinds = collections.Counter(
        readers.drop_reason(page, format=readers.MEDIAWIKI) or "articles"
        for page in pages
    )
    texts = read_articles()
    titles = {page.title for page in pages}
    links = [
        target
        for page in pages
        if page.title in texts
        for target in link_targets(page.text)
    ]
    words = [len(text.split()) for text in texts.values()]
    rows = [
        *kinds.most_common(),
        ("words of the articles", f"{sum(words):,}"),
        ("words of an article", _spread(words)),
        (
            "sentences",
            f"{sum(len(sentences.split(text)) for text in texts.values()):,}",
        ),
        ("links to pages of the export", sum(t in titles for t in links)),
        ("red links", sum(t not in titles for t in links)),
    ]
    return _table(("pages", ""), rows)


def _spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return (
        f"{min(values)} to {max(values)}, quartiles "
        f"{low:.0f}, {middle:.0f}, {high:.0f}"
    )


def questions_table() -> str:
    """Questions by split and kind, a Markdown table."""
    columns = {
        split: question_files.read_questions(quickstart.questions(split))
        for split in quickstart.SPLITS
    }
    columns["all"] = [q for split in columns.values() for q in split]
    shares = {
        name: [
            overlap(q.question, q.line["evidence"]["sentence"])
            for q in questions
        ]
        for name, questions in columns.items()
    }

    def row(title, count):
        return (title, *(count(questions) for questions in columns.values()))

    def by_overlap(low, high):
        return [
            sum(low < share <= high for share in shares[name])
            for name in columns
        ]

    rows = [
        row("questions", len),
        row("of articles", lambda qs: len({_title(q) for q in qs})),
        row(
            "with several accepted answers",
            lambda qs: sum(len(q.answers) > 1 for q in qs),
        ),
        row(
            "with a regular expression",
            lambda qs: sum(q.answer_type == "regex" for q in qs),
        ),
        *(
            row(
                f'ask "{word}"',
                lambda qs, word=word: sum(
                    _question_word(q.question) == word for q in qs
                ),
            )
            for word in _QUESTION_WORDS
        ),
        row(
            "ask in another way",
            lambda qs: sum(not _question_word(q.question) for q in qs),
        ),
        ("at most 1/3 of the words shared", *by_overlap(-1, LITTLE_OVERLAP)),
        ("1/3 to 2/3", *by_overlap(LITTLE_OVERLAP, 2 / 3)),
        ("more", *by_overlap(2 / 3, 1)),
    ]
    return _table(("", *columns), rows)


def _title(question):
    return question.line["evidence"]["title"]


def _question_word(question):
    found = [
        (match.start(), -len(word), word)
        for word in _QUESTION_WORDS
        if (match := re.search(rf"\b{word}\b", question.lower()))
    ]
    return min(found)[2] if found else ""


def labels_table() -> str:
    """The shared facts and the hand-labelled sets, a Markdown table."""
    facts = read_shared_facts()
    passages = labelled.read_passages(quickstart.SENTENCE_BOUNDARIES)
    marked = labelled.read_marked(quickstart.NAMES_AND_DATES)
    labels = collections.Counter(
        label for _, spans in marked for _, _, label in spans
    )
    rows = [
        ("facts in two articles", len(facts)),
        (
            "articles that share one",
            len({e["title"] for fact in facts for e in fact["evidence"]}),
        ),
        ("passages cut into sentences", len(passages)),
        ("boundaries in them", sum(len(p) - 1 for p in passages)),
        ("sentences with names and dates marked", len(marked)),
        *((f"{label} in them", labels[label]) for label in labelled.LABELS),
    ]
    return _table(("labelled by hand", ""), rows)


def read_shared_facts() -> list[dict]:
    """The facts in two articles.

    Returns:
        list of dict: `fact`, `answer`, and `evidence`, two of
        `{"title", "sentence", "answer"}`; each `answer` is a substring of its
        sentence.
    """
    lines = pathlib.Path(quickstart.SHARED_FACTS).read_text(encoding="utf-8")
    return [json.loads(line) for line in lines.splitlines()]


def blocks_table(directory: str) -> str:
    """Blocks of an article, and what BM25 finds, a Markdown table.

    Args:
        directory: str. Blocks of the embedded corpus, by `realm chunk`.
    """
    from realm_tf.answering.bootstrap import summarize
    from realm_tf.answering.recall import gold_blocks
    from realm_tf.artifacts.block_records import BlockRecords
    from realm_tf.retrieval.bm25 import Bm25

    records = BlockRecords(directory)
    if set(records.titles) != set(read_articles()):
        raise InputError(
            f"{directory} holds other articles than {quickstart.CORPUS}."
        )
    blocks = list(collections.Counter(records.titles).values())
    rows = [
        ("blocks", len(records)),
        ("blocks of an article", _spread(blocks)),
        (
            "articles of three or more",
            f"{sum(count >= 3 for count in blocks)} of {len(blocks)}",
        ),
    ]
    asked = question_files.read_questions(quickstart.questions("test"))
    gold = gold_blocks(asked, records)
    _, found = Bm25(records.titles, records.texts).search(
        [q.question for q in asked], 5
    )
    results = [
        {
            f"{name}@{k}": float(any(hits[:k]))
            for name, hits in (
                ("gold", [b == wanted for b in blocks]),
                ("answer", [_answers(q, records.texts[b]) for b in blocks]),
            )
            for k in (1, 5)
        }
        for q, wanted, blocks in zip(asked, gold, found, strict=True)
    ]
    metrics = summarize(results)
    for name in ("answer@1", "answer@5", "gold@1", "gold@5"):
        low, high = metrics[f"{name}_interval"]
        title = name.replace("answer", "answer recall").replace(
            "gold", "recall of the gold block "
        )
        rows.append(
            (
                f"BM25, test questions: {title}",
                f"{metrics[name]:.3f} ({low:.3f} to {high:.3f})",
            )
        )
    return _table(("blocks", ""), rows)


def _answers(question, text):
    return answers.contains_answer(text, question.answers, question.answer_type)


def _table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--blocks", help="blocks directory of the quick start")
    args = parser.parse_args()
    tables = [corpus_table(), questions_table(), labels_table()]
    if args.blocks:
        tables.append(blocks_table(args.blocks))
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
