"""Documents and questions of 184 invented organisations.

    python benchmarks/organisations.py --model DIR --output DIR
    python benchmarks/organisations.py --model DIR --output DIR --corpus FILE --questions FILE

organisations.tar.xz has a folder for each: a hospital, a railway, a bakery chain and so
on, with 11 or 12 documents in Markdown, HTML, CSV and plain text, handbooks, price lists
and minutes, and questions.jsonl, 43 or 44 questions in the words of people who have not
read them, with the document and the excerpt that answer each. A language model wrote
them for this project; no other text is in them, and nobody who wrote them saw the
handbook of the tests. 178 of them are train, the other six dev.

Printed are the metrics of a model on dev; by the second command the model learns
from train first. Each question is asked over the documents of its own
organisation, by f(x, z) and BM25 of wordpieces.
"""

import json
import pathlib
import random
import re
import tarfile

import numpy as np
import tyro

import realm_tf as realm
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import question_files
from realm_tf.evaluation import run_files
from realm_tf.retrieval import hybrid
from realm_tf.retrieval.retrievers import Dense

DEV = (
    *("ak-karga-tents", "larrungain-eraiki", "meltemia-cars"),
    *("radio-tamarinier", "skarvsund-kraft", "tambalagama-spices"),
)
PARTS = ("train", "dev")
_ARCHIVE = pathlib.Path(__file__).with_name("organisations.tar.xz")
_QUESTIONS = "questions.jsonl"
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
    """Measures a model, or one that has learned from the organisations of train.

    Args:
        model: model directory.
        output: where everything is kept.
        corpus: JSON lines of articles, to be searched beside the documents while
            the model learns (if not given: it does not).
        questions: JSONL of others that are learned from, too, so that
            nothing else is forgotten.
    """
    if bool(corpus) != bool(questions):
        raise realm.InputError("--corpus and --questions go together.")
    graph = realm.Graph()
    over = Searched(graph, realm.Model(model), output, corpus)
    measured = over.read(over.questions["dev"])
    if corpus:
        measured["model"] = learn(graph, over, questions)
    evaluation = graph.add(
        realm.Evaluate(
            **measured, retriever="file", output=f"{output}/evaluation-dev"
        )
    )
    graph.run()
    return evaluation.metrics


def learn(graph, over, questions) -> realm.Model:
    """What a model is that has learned from train.

    Args:
        graph: `realm.Graph`.
        over: `Searched`, with a corpus.
        questions: str. JSONL of others that are learned from, too.
    """
    mixed = _mix(
        over.questions["train"], questions, f"{over.output}/mixed.jsonl"
    )
    return graph.add(
        realm.FineTune(
            recipe="quickstart",
            set=_LEARN,
            **over.read(mixed),
            output=f"{over.output}/learned",
        )
    )


class Searched:
    """The documents, and what else is searched, with a model.

    Args:
        graph: `realm.Graph`. It is run.
        model: `realm.Model`.
        output: str. Where everything is kept.
        corpus: str. JSON lines of articles. Defaults to `None`.

    Attributes:
        output: str.
        questions: dict. Name of a part to its file.
    """

    def __init__(
        self,
        graph,
        model,
        output,
        corpus=None,
    ):
        self.output = output
        self._folder = unpack(f"{output}/documents")
        inputs = chunking(self._folder)
        if corpus:
            inputs["input"] += (corpus,)
        blocks = graph.add(
            realm.Chunk(
                vocab=model.vocabulary, output=f"{output}/blocks", **inputs
            )
        )
        rows = graph.add(
            realm.Embed(model=model, blocks=blocks, output=f"{output}/emb")
        )
        index = graph.add(
            realm.BuildIndex(
                embeddings=rows, kind="brute_force", output=f"{output}/index"
            )
        )
        graph.run()
        self._parts = {"model": model, "blocks": blocks, "index": index}
        self.questions = write_questions(self._folder, blocks, output)

    def read(self, questions) -> dict:
        """What an operation is given that reads what is found for questions."""
        ranking = write_ranking(
            self._folder,
            **self._parts,
            questions=questions,
            output=f"{questions.removesuffix('.jsonl')}.trec",
        )
        return {**self._parts, "questions": questions, "ranking": ranking}


def _mix(asked, others, output):
    """Writes questions of both files, in any order."""
    with open(asked) as one, open(others) as two:
        lines = [*one, *two]
    random.Random(0).shuffle(lines)
    pathlib.Path(output).write_text("".join(lines))
    return output


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
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
