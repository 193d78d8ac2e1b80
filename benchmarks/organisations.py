"""Documents and questions of 184 invented organisations.

    python benchmarks/organisations.py --model DIR --output DIR
    python benchmarks/organisations.py --model DIR --output DIR --corpus FILE --questions FILE

organisations.tar.xz has a folder for each: a hospital, a railway, a bakery chain and so
on. It holds 11 or 12 documents in Markdown, HTML, CSV and plain text, and
questions.jsonl: 43 or 44 questions with their document and the excerpt that answers
them. A language model wrote all of them for this project, the questions in the words of
people who have not read the documents. Nobody who wrote them saw the handbook of the
tests. 178 organisations are train, the other six dev.

The archive's products/ has the documentation of 32 invented software products: 8 or 9
pages in Markdown, HTML and reStructuredText, 40 such questions, and in near_misses.jsonl
15 that the pages do not answer, each with the page that a reader would look at. Five of
them are dev.

Prints what a model answers of dev and refuses, as documents.py tells it. Each question
is asked over the documents of its own organisation or product. Near misses of an
organisation are its questions, asked while their own document is left out. With a corpus
and questions, the model learns from the train organisations first.
"""

import json
import pathlib
import random
import re
import shutil
import tarfile

import documents
import numpy as np
import runs
import tyro

import realm_tf as realm
from realm_tf.answering.corpus import Corpus
from realm_tf.articles import collecting
from realm_tf.artifacts import question_files
from realm_tf.evaluation import run_files
from realm_tf.retrieval import hybrid
from realm_tf.retrieval.retrievers import Dense

DEV = (
    *("ak-karga-tents", "larrungain-eraiki", "meltemia-cars"),
    *("radio-tamarinier", "skarvsund-kraft", "tambalagama-spices"),
)
# random.Random(0).sample(sorted(names), 5), drawn before any was asked.
DEV_PRODUCTS = (
    *("counterfoyle", "pallowick", "tamberline", "tidemarl", "yokefield"),
)
PARTS = ("train", "dev")
_ARCHIVE = pathlib.Path(__file__).with_name("organisations.tar.xz")
_QUESTIONS = "questions.jsonl"
_NEAR_MISSES = "near_misses.jsonl"
_LEARN = (
    *("retriever=file", "read_titles=true", "num_epochs=2", "batch_size=16"),
    *("gold=read", "num_candidates=30", "num_reader_blocks=3"),
    *("dropout=0.1", "learning_rate=5e-5"),
)
_DEPTH = 30
_BATCH_SIZE = 32
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z0-9\"“‘(])")


def main(
    *,
    model: str,
    output: str,
    corpus: str | None = None,
    questions: str | None = None,
):
    """Measures a model, or one that has learned from the train organisations.

    Args:
        model: model directory.
        output: where everything is kept.
        corpus: JSON lines of articles. While the model learns, questions of no
            organisation are asked over them (if not given: it does not learn).
        questions: JSONL of such questions, so that the model forgets nothing.
    """
    if bool(corpus) != bool(questions):
        raise realm.InputError("--corpus and --questions go together.")
    if corpus:
        model = learn(Searched(realm.Model(model), output, corpus), questions)
    folder = unpack(f"{output}/documents")
    return {
        each.name: measure(model, each, names, f"{output}/{each.name}")
        for each, names in (
            (folder, DEV),
            (folder.parent / "products", DEV_PRODUCTS),
        )
    }


def measure(model, folder, names, output) -> dict:
    """Makes one corpus of some organisations or products, and asks it.

    A filter leaves out the documents of others. reStructuredText, which the package
    does not know, is read as plain text.

    Args:
        model: `realm.Model`, or its directory.
        folder: path. Holds a folder for each.
        names: sequence of str. Of them.
        output: str. Where the corpus and the answers go.

    Returns:
        dict, see `documents.report`.
    """
    root = pathlib.Path(output)
    copies = root / "documents"
    for name in names:
        no_document = shutil.ignore_patterns(_QUESTIONS, _NEAR_MISSES)
        shutil.copytree(folder / name, copies / name, ignore=no_document)
    for path in copies.rglob("*.rst"):
        path.rename(f"{path}.txt")
    rows, _, _ = collecting.collect([str(copies)])
    with open(f"{root}/articles.jsonl", "w") as file:
        for row in rows.values():
            document = row["file"].replace(".rst.txt", ".rst")
            owner, _, _ = document.partition("/")
            row.update(url=document, document=document, owner=owner)
            file.write(json.dumps(row) + "\n")
    asked = [row for name in names for row in _asked(folder / name)]
    return documents.measure(
        sorted(asked, key=lambda row: row["filter"]),
        output,
        documents=file.name,
        model=model,
        fields=("owner", "document"),
    )


def _asked(folder):
    """The questions of an organisation or product, and its near misses."""

    def read(name):
        for line in (folder / name).read_text().splitlines():
            row = {"answer": [], **json.loads(line)}
            row["file"] = f"{folder.name}/{row['document']}"
            yield {**row, "filter": f"owner={folder.name}"}

    own = list(read(_QUESTIONS))
    if (folder / _NEAR_MISSES).exists():
        near = read(_NEAR_MISSES)
    else:
        near = (
            {**row, "filter": f"{row['filter']}; document!={row['file']}"}
            for row in own
        )
    return [*own, *({**row, "near_miss": True} for row in near)]


class Searched(runs.Runs):
    """The blocks that questions are asked over, and an index of a model.

    Args:
        model: `realm.Model`.
        output: str. Where everything is kept.
        corpus: str. JSON lines of further articles. Defaults to `None`.

    Attributes:
        questions: dict. Name of a part to its file.
    """

    def __init__(self, model, output, corpus=None):
        super().__init__(output)
        self._folder = unpack(f"{output}/documents")
        inputs = chunking(self._folder)
        if corpus:
            inputs["input"] += (corpus,)
        blocks = self.add(
            realm.Chunk, "blocks", vocab=model.vocabulary, **inputs
        )
        index = self.index(model, blocks)
        self.graph.run()
        self._parts = {"model": model, "blocks": blocks, "index": index}
        self.questions = write_questions(self._folder, blocks, output)

    def read(self, questions) -> dict:
        """The arguments of an operation that answers questions."""
        ranking = write_ranking(
            self._folder,
            **self._parts,
            questions=questions,
            output=f"{questions.removesuffix('.jsonl')}.trec",
        )
        return {**self._parts, "questions": questions, "ranking": ranking}


def learn(over: Searched, questions: str) -> realm.Model:
    """Trains and returns a model.

    Args:
        over: `Searched`, with a corpus.
        questions: str. JSONL of further questions, asked over the corpus.
    """
    with open(over.questions["train"]) as one, open(questions) as two:
        lines = [*one, *two]
    random.Random(0).shuffle(lines)
    mixed = f"{over.output}/mixed.jsonl"
    pathlib.Path(mixed).write_text("".join(lines))
    model = over.add(
        realm.FineTune,
        "learned",
        recipe="quickstart",
        set=_LEARN,
        **over.read(mixed),
    )
    over.graph.run()
    return model


def unpack(folder: str) -> pathlib.Path:
    """Writes the documents and questions; returns their folder."""
    top = pathlib.Path(folder).resolve()
    with tarfile.open(_ARCHIVE) as archive:
        for member in archive:
            path = top.joinpath(member.name).resolve()
            # Python before 3.11.4 has no `extractall(filter="data")`.
            if member.isfile() and path.is_relative_to(top):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
    return top / "organisations"


def chunking(folder: pathlib.Path) -> dict:
    """What cuts the documents as `realm corpus create` does."""
    kinds = ("md", "html", "csv", "txt")
    return {
        "input": tuple(f"{folder}/**/*.{kind}" for kind in kinds),
        "cut_sentences": True,
        "keep_all_titles": True,
    }


def write_questions(folder, blocks, output) -> dict[str, str]:
    """Name of a part to its questions; `evidence` is a sentence of a block.

    Args:
        folder: path. Of `unpack`.
        blocks: `realm.Blocks`. Of the documents, and of others perhaps.
        output: str. Where the files go.
    """
    of_document = {}
    for block in blocks.read():
        document = block.article_id.partition("#")[0]
        of_document.setdefault(document, []).append(block)
    paths = {part: f"{output}/{part}.questions.jsonl" for part in PARTS}
    lines = {part: [] for part in PARTS}
    for path in sorted(folder.glob(f"*/{_QUESTIONS}")):
        name = path.parent.name
        for number, text in enumerate(path.read_text().splitlines()):
            asked = json.loads(text)
            document = str(path.parent / asked["document"])
            line = {
                "id": f"{name}-{number}",
                "question": asked["question"],
                "answer": asked["answer"],
                "organisation": name,
                "evidence": _evidence(asked, of_document[document]),
            }
            part = "dev" if name in DEV else "train"
            lines[part].append(json.dumps(line, ensure_ascii=False) + "\n")
    for part, path in paths.items():
        pathlib.Path(path).write_text("".join(lines[part]))
    return paths


def _evidence(asked, blocks):
    """The sentence with an answer that has most words of the excerpt."""
    words = set(re.findall(r"\w+", asked["excerpt"].lower()))

    def shared(found):
        block, sentence = found
        text = f"{sentence} {block.title}".lower()
        return len(words.intersection(re.findall(r"\w+", text)))

    texts = [(block, " ".join(block.text.split())) for block in blocks]
    sentences = [
        (block, sentence)
        for block, text in texts
        for sentence in _SENTENCE.split(text)
    ]
    # An answer may be longer than a sentence, as the rule cuts it.
    for candidates in (sentences, texts):
        found = [
            (block, text)
            for block, text in candidates
            if any(answer in text for answer in asked["answer"])
        ]
        if found:
            break
    block, sentence = max(found, key=shared)
    return {"title": block.title, "sentence": sentence}


def write_ranking(folder, *, model, blocks, index, questions, output) -> str:
    """Writes what is found for questions, as `realm retrieve --to trec` does.

    A line with "organisation" is asked over the blocks of that one, others over
    the blocks of none.

    Args:
        folder: path. Of `unpack`.
        model, blocks, index: objects. What is searched.
        questions: str. JSONL.
        output: str. The file to write.
    """
    corpus = Corpus.load(model, blocks, index)
    owners = np.array(
        [_owner(folder, block.article_id) for block in blocks.read()]
    )
    asked = question_files.read_questions(questions)
    owner_of = {q.question: q.line.get("organisation", "") for q in asked}
    owned = _Owned(corpus, owners, owner_of)
    found = run_files.search(owned, asked, _DEPTH)
    ranked = run_files.ranked(found, None)
    pathlib.Path(output).write_text(run_files.trec(ranked))
    return output


def _owner(folder, article_id):
    """The organisation of a document, or "" of another article."""
    path = pathlib.Path(article_id.partition("#")[0])
    return path.relative_to(folder).parts[0] if folder in path.parents else ""


class _Owned(Dense):
    """f(x, z) and BM25 of wordpieces, over a question's own blocks.

    Args:
        corpus: `Corpus`.
        owners: str array `(num_blocks,)`.
        owner_of: dict. Question to owner.
    """

    def __init__(self, corpus, owners, owner_of):
        super().__init__(corpus)
        self._owners = owners
        self._owner_of = owner_of
        self._hybrid = hybrid.Hybrid(
            corpus.index, corpus.lexical, hybrid.LEXICAL_WEIGHT
        )

    def search(self, questions, num_candidates):
        embeddings = self.embed(questions)
        tokenizer = self._corpus.loaded.tokenizer
        wordpieces = [
            question_files.query_wordpieces(each, tokenizer)
            for each in questions
        ]
        scores = np.full((len(questions), num_candidates), -np.inf, "float32")
        block_ids = np.zeros(scores.shape, "int32")
        owners = np.array([self._owner_of[each] for each in questions])
        for owner in np.unique(owners):
            allowed = self._owners == owner
            num_found = min(num_candidates, int(allowed.sum()))
            rows = np.flatnonzero(owners == owner)
            for part in np.array_split(rows, -(-len(rows) // _BATCH_SIZE)):
                packed = question_files.pack_queries(
                    [wordpieces[row] for row in part],
                    tokenizer.pad_id,
                )
                found = self._hybrid.search(
                    *(embeddings[part], packed["token_ids"], num_found),
                    np.tile(allowed, (len(part), 1)),
                )
                scores[part, :num_found] = found["scores"]
                block_ids[part, :num_found] = found["block_ids"]
        return scores, block_ids


if __name__ == "__main__":
    print(documents.table(tyro.cli(main, description=__doc__)))
