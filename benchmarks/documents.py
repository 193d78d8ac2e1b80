"""From documents to answers: what is right, and what is refused.

    python benchmarks/documents.py own --model quickstart-output/model --output DIR
    python benchmarks/documents.py real --model quickstart-output/model --debian debian \
        --output DIR
    python benchmarks/documents.py words --folder FOLDER

Each of the first two makes a corpus below OUTPUT and asks its SavedModel.
"""

import bisect
import collections
import gzip
import html
import itertools
import json
import pathlib
import re
import shutil
import sys
import time

import lxml.html
import numpy as np
import tyro

import realm_tf as realm
from realm_tf import quickstart
from realm_tf.articles import collecting
from realm_tf.articles import readers
from realm_tf.articles.sources import Source
from realm_tf.artifacts.question_files import Questions
from realm_tf.serving.servable import SavedModelServable
from realm_tf.text import answers

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "support"))
import handbook

_NUM_CHANGED = 15
_NUM_UNANSWERABLE = 40
_QUESTIONS = pathlib.Path(__file__).with_name("debian_questions.jsonl.gz")
# Of each corpus: what is left out, and a folder to its files below usr/share.
_CORPORA = {
    # Every page of the FAQ is there twice. Indexes, pictures, a licence, a list
    # of changes, and all in one page.
    "handbooks": (
        {
            *("ap-flowcharts.html", "ap-license.html", "genindex.html"),
            *("developers-reference.html", "index.en.html", "index.html"),
            *("search.html", "upgrading-checklist.html"),
        },
        {
            "developers-reference": ("developers-reference", "*.html"),
            "faq": ("doc/debian/FAQ", "*.en.html"),
            "handbook": ("doc/debian-handbook/html/en-US", "*.html"),
            "policy": ("doc/debian-policy/policy.html", "*.html"),
        },
    ),
    # Indexes, what was planned, and what is no more.
    "rsyslog": (
        {"genindex.html", "historical", "proposals", "search.html"},
        {"rsyslog": ("doc/rsyslog-doc/html", "**/*.html")},
    ),
    "gnucash": (
        set(),
        {"gnucash": ("doc/gnucash-docs/gnucash-guide-en", "*.html")},
    ),
}
_AT_ONCE = 16
# What is no text of a page, by its own marks: those of Sphinx and DocBook.
_NO_TEXT = "//head|//script|//style|//noscript|//nav|//*[{}]".format(
    " or ".join(
        [f"@role='{name}'" for name in ("navigation", "search", "contentinfo")]
        + [
            f"contains(concat(' ',@class,' '),' {name} ')"
            for name in ("headerlink", "navheader", "navfooter", "docnav")
        ]
    )
)
_INLINE = "a|abbr|acronym|b|big|cite|code|em|font|i|kbd|samp|small|span|strong|su[bp]|tt|u|var|wbr"
# Markup of each format, from the first to the last, and what stands for it.
_MARKUP = {
    "html": ((rf"</?(?:{_INLINE})\b[^>]*>", ""), (r"<[^>]*>", " ")),
    "md": (
        (r"(?s)\A---\n.*?\n---\n|<!--.*?-->", " "),
        (r"(?m)^(\s*(?:[>*-] *)*[`~]{3,})[^\n`]*$|^ {0,3}\[[^]\n]+\]:.*$", " "),
        (r"\]\((?:[^()]|\([^()]*\))*\)|\]\[[^]]*\]|!\[[^]]*\]", "] "),
        (r"(?i)</?[a-z][\w-]*(?:\s[^<>]*)?/?>", " "),
        (r"(?m)^([\s>*+-]*)\d+[.)](?=\s)", r"\1"),
        (r"\\(?=[^\w\s])", ""),
    ),
    "rst": (
        # Of the document's tree, pictures, comments and targets; options.
        (
            r"(?m)^( *)\.\. (?:\|[^|\n]+\| )?(?:toctree|index|meta|include|image|raw"
            r"|figure|contents|only|highlight|role)::.*(?:\n(?:\1 +.*|\s*$))*",
            "",
        ),
        (r"(?m)^( *)\.\.(?: (?!.*::|\[).*|$)(?:\n\1 +.*)*", ""),
        (r"(?m)^\s+:(?!header:|caption:|param|return)[\w-]+:.*$", ""),
        (r"(?m)^(\s*\.\. )(?:code[\w-]*|sourcecode)::.*$|\.\. [\w:-]+::", ""),
        (r":(?:[\w+-]+:)+`|\|[\w ]+\|", " "),
        (r"\s+<[^<>`]*>`", " "),
        (r"\\(.)", r"\1"),
    ),
}


def words(folder: str):
    """How many words of the documents below FOLDER arrive in a corpus of them.

    A line for each extension: files, words that a reader sees of them (letters and
    digits, without markup and, of HTML, without what the page marks as navigation,
    header or footer), the share found in titles and texts of their files, the
    share of the words that occur once in both which are in order, and the share
    that is dropped because its lines recur on most pages, which the first page
    keeps. Files of other formats need the same file in Markdown beside them.
    """
    rows = collecting.collect(Source.of(folder)).rows.values()
    left = sum(len(_words(f"{e['title']}\n{e['text']}")) for e in rows)
    before = 0
    told = collections.defaultdict(collections.Counter)
    for file in sorted({row["file"] for row in rows}):
        path = pathlib.Path(folder).parent / file
        pages = readers.read_pages(str(path))
        words = _words("\n".join(f"{e.title}\n{e.text}" for e in pages))
        before += len(words)
        source = _source(path)
        counts = collections.Counter(source), collections.Counter(words)
        once = {w for w, n in counts[0].items() if n == counts[1][w] == 1}
        places = {word: place for place, word in enumerate(words)}
        places = [places[word] for word in source if word in once]
        told[path.suffix].update(
            files=1,
            words=len(source),
            lost=(counts[0] - counts[1]).total(),
            once=len(places),
            in_order=_longest(places),
        )
    for suffix, each in told.items():
        share = 1 - each["lost"] / each["words"]
        order = each["in_order"] / each["once"]
        print(f"{suffix} {dict(each)} found {share:.2%}, in order {order:.2%}")
    print(f"recurring: {1 - left / before:.2%}")


def _words(text):
    return re.findall(r"[^\W_]+", text)


def _source(path):
    """The words that a reader of a document sees."""
    kind = path.suffix[1:]
    if kind not in _MARKUP:
        path, kind = path.with_suffix(".md"), "md"
    text = path.read_text("utf-8", "replace")
    if kind == "html":
        root = lxml.html.document_fromstring(text.encode())
        for each in root.xpath(_NO_TEXT):
            each.drop_tree()
        text = lxml.html.tostring(root, encoding="unicode")
    for pattern, new in _MARKUP[kind]:
        text = re.sub(pattern, new, text)
    return _words(html.unescape(text))


def _longest(numbers):
    """Length of the longest increasing part."""
    ends = []
    for number in numbers:
        place = bisect.bisect_left(ends, number)
        ends[place : place + 1] = [number]
    return len(ends)


def own(*, model: str, output: str, calibration: str | None = None):
    """The handbook of an invented company, 60 documents of the tests.

    Asks its 40 questions, and as near misses 40 questions of the quick start, which
    the handbook cannot answer; then 15 documents change. Seconds are of whole
    commands, in this process.
    """
    root = pathlib.Path(output)
    documents = root / "documents"
    shutil.copytree(handbook.DOCUMENTS, documents)
    others = Questions(quickstart.questions("test")).questions
    others = others[:: len(others) // _NUM_UNANSWERABLE][:_NUM_UNANSWERABLE]
    asked = [
        {"question": question, "answer": accepted, "file": ""}
        for question, accepted in handbook.read_questions()
    ]
    asked += [
        {"question": each.question, "answer": [], "file": "", "near_miss": True}
        for each in others
    ]
    options = {"documents": str(documents), "calibration": calibration}
    told = {"create": measure(asked, output, model=model, **options)}
    for path in sorted(documents.rglob("*.md"))[:_NUM_CHANGED]:
        with path.open("a") as file:
            file.write("\nChanged today, by Ola.\n")
    told["sync"] = _run(realm.SyncCorpus(corpus=str(root / "corpus")))
    print(json.dumps(told, indent=1))


def _run(operation):
    started = time.perf_counter()
    made = operation.run()
    seconds = round(time.perf_counter() - started, 1)
    counts = ("documents", "blocks", "blocks_embedded")
    return {"seconds": seconds, **{name: made[name] for name in counts}}


def _is_held(candidates, accepted):
    """Whether an answer is in the blocks."""
    finder = answers.AnswerFinder([each.text for each in candidates])
    return finder.first_rank(range(len(candidates)), accepted) is not None


def area(first, second):
    """Under the ROC curve: how often a value of the first is the higher one."""
    if not first or not second:
        return None
    differences = np.sign(np.subtract.outer(first, second))
    return round(float(np.mean(0.5 + differences / 2)), 3)


def real(
    *,
    model: str,
    debian: str,
    output: str,
    calibration: str | None = None,
    corpora: tuple[str, ...] = tuple(_CORPORA),
):
    """Three kinds of documentation from Debian 12; a line of a table for each.

    handbooks: four of the Debian project, 171 pages of HTML, 270 questions.
    rsyslog: the manual of a log server for administrators, 275 pages with the
    menus of their site. gnucash: a guide for people who keep books at home or in
    a small firm, 124 pages. These two have 32 questions each. Each corpus has 36
    near misses: questions about its subject that it does not answer.

    DEBIAN is a folder with the files of six packages:

        for name in debian-faq debian-handbook debian-policy developers-reference \\
            gnucash-docs rsyslog-doc
        do apt-get download $name; dpkg -x ${name}_*.deb debian; done

    Their versions are: policy 4.6.2.0, reference 12.18, FAQ 11.1, handbook
    11.20220922, GnuCash 4.13, rsyslog 8.2302.0. Nothing here was trained on them.
    A language model that had the documents wrote the questions in its own words,
    before any system was asked.
    """
    with gzip.open(_QUESTIONS, "rt") as file:
        rows = [json.loads(line) for line in file]
    told = {}
    for name in corpora:
        left_out, parts = _CORPORA[name]
        root = pathlib.Path(output) / name
        for folder, (top, pattern) in parts.items():
            top = pathlib.Path(debian) / "usr/share" / top
            for path in top.glob(pattern):
                copy = root / "documents" / folder / path.relative_to(top)
                if left_out.isdisjoint(path.relative_to(top).parts):
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)
        options = {"documents": f"{root}/documents", "calibration": calibration}
        asked = [
            # Sources are called as their folders.
            {**row, "file": f"documents/{row['file']}"}
            for row in rows
            if row["file"].partition("/")[0] in parts
        ]
        told[name] = measure(asked, str(root), model=model, **options)
    print(table(told))


def measure(asked, output, **options) -> dict:
    """Makes a corpus below OUTPUT and asks its SavedModel, as a user does.

    Args:
        asked: see `report`; a "filter" goes with its question.
        output: str. Gets the corpus, and answers.jsonl.
        **options: of `realm.CreateCorpus`.

    Returns:
        dict: `seconds` and `blocks` of the corpus, and what `report` returns.
    """
    corpus = f"{output}/corpus"
    made = _run(realm.CreateCorpus(output=corpus, **options))
    found = []
    with SavedModelServable(f"{corpus}/saved_model") as servable:
        for filter, rows in itertools.groupby(
            asked, lambda row: row.get("filter", "")
        ):
            questions = [row["question"] for row in rows]
            for first in range(0, len(questions), _AT_ONCE):
                part = questions[first : first + _AT_ONCE]
                found += servable.ask(part, filter=filter)
    told = report(asked, found, f"{output}/answers.jsonl")
    return {"seconds": made["seconds"], "blocks": made["blocks"], **told}


def report(asked, found, path) -> dict:
    """The figures of a corpus; PATH gets the answer to each question.

    A near miss that is answered rightly all the same was answered by another
    document: it does not count. Areas are those under the ROC curve of
    confidence: right answers against near misses, and against near misses and
    wrong answers.

    Args:
        asked: list of dict. "question", "answer" (list of str), "file" (that
            answers it) and, if so, "near_miss".
        found: list of `Answer`.
        path: path. The JSON lines to write.
    """
    rows = [
        {
            **row,
            "given": each.answer,
            "is_right": bool(answers.exact_match(each.answer, row["answer"])),
            "answered": each.answered,
            "confidence": each.confidence,
            "score": each.score,
            "is_held": _is_held(each.candidates, row["answer"]),
            "files": [read.url.partition("#")[0] for read in each.candidates],
            "text": each.text,
        }
        for row, each in zip(asked, found, strict=True)
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    pathlib.Path(path).write_text("".join(lines))
    own = [row for row in rows if "near_miss" not in row]
    right = [row for row in own if row["is_right"]]
    near = [row for row in rows if "near_miss" in row and not row["is_right"]]
    wrong = [row for row in own if not row["is_right"]]
    sure, *others = (
        [row["confidence"] for row in group]
        for group in (right, near, near + wrong)
    )
    return {
        "questions": len(own),
        "right": _share(row["is_right"] for row in own),
        "document first": _share(
            row["file"] in row["files"][:1] for row in own
        ),
        "document read": _share(row["file"] in row["files"] for row in own),
        "answer read": _share(row["is_held"] for row in own),
        "near misses": len(near),
        "refused": _share(not row["answered"] for row in near),
        "right refused": _share(not row["answered"] for row in right),
        "area": area(sure, others[0]),
        "area with wrong": area(sure, others[1]),
    }


def _share(are_so):
    are_so = list(are_so)
    return round(float(np.mean(are_so)), 3) if are_so else None


def table(told) -> str:
    """Figures by name, as a table of Markdown with a line for each name."""
    names = list(next(iter(told.values())))
    rows = [["", *names], ["---"] * (1 + len(names))]
    rows += [[name, *figures.values()] for name, figures in told.items()]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"own": own, "real": real, "words": words}, description=__doc__
    )
