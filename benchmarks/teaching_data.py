"""Arrays of questions, blocks and right spans, for `teach_reader.py`.

    python benchmarks/teaching_data.py --data-dir DIR --output DIR

DIR is that of `sample_questions.py`: corpus.jsonl.gz and a folder questions. The
organisations and products of organisations.py are further documents; each question
about one is asked over its own. Blocks are found as in `realm corpus create`, by
MiniLM's towers and BM25. Questions of dev and test whose gold passage a training
question has are left out.

OUTPUT gets teaching.npz: wordpieces of all blocks and questions, 30 blocks found for
each question, and the right spans in these.
"""

import gzip
import json
import pathlib
import re

import numpy as np
import organisations
import runs
import tyro

import realm_tf as realm
from realm_tf.artifacts import question_files
from realm_tf.models import model_directory
from realm_tf.retrieval import hybrid
from realm_tf.retrieval import wordpiece_scores

MAX_WIDTH = 32
_SETS = "nq_open", "squad_open", "webquestions", "curatedtrec"
_EXTRA = "nq_open_extra"
_DEPTH = 30
_MOST_SPANS = 20
_AT_ONCE = 128
_COLUMNS = "title_ids", "token_ids", "token_starts", "token_limits"


def main(*, data_dir: str, output: str, wheel: str | None = None):
    """Writes teaching.npz.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`.
    """
    folder = organisations.unpack(f"{output}/documents")
    steps = runs.Runs(output)
    model = steps.add(realm.Init, "start", from_="minilm", wheel=wheel)
    # Its vocabulary decides the wordpieces of the blocks.
    steps.graph.run()
    parts = []
    for name, inputs in (
        ("wikipedia", {"input": f"{data_dir}/corpus.jsonl.gz"}),
        ("documents-of", _chunking(folder.parent)),
    ):
        vocab = model.vocabulary
        blocks = steps.add(realm.Chunk, f"{name}-blocks", vocab=vocab, **inputs)
        given = {"model": model, "blocks": blocks}
        parts.append(
            (blocks, steps.add(realm.Embed, f"{name}-embeddings", **given))
        )
    steps.graph.run()
    asked = read_questions(pathlib.Path(data_dir, "questions"), folder.parent)
    searched = _Searched(model_directory.load(model), parts, folder.parent)
    arrays = searched.find(asked)
    np.savez_compressed(f"{output}/teaching.npz", **arrays, **searched.arrays())


def _chunking(top):
    """What cuts the documents as `realm corpus create` does."""
    # reStructuredText is read as plain text, as in organisations.py.
    for path in list(top.rglob("*.rst")):
        path.rename(f"{path}.txt")
    kinds = ("md", "html", "csv", "txt")
    return {
        "input": tuple(f"{top}/*/**/*.{kind}" for kind in kinds),
        "cut_sentences": True,
        "keep_all_titles": True,
    }


def read_questions(directory: pathlib.Path, top: pathlib.Path) -> list[dict]:
    """All questions.

    Args:
        directory: path. The files of questions about Wikipedia.
        top: path. Where `organisations.unpack` put its folders.

    Returns:
        list of dict: `part`, such as `"nq_open.train"`; `owner`, "" for
        Wikipedia; `question`, `answers`, `type`; `gold`, the passage or
        document that answers, "" if none is known.
    """
    asked = []
    for part in ("train", "dev", "test"):
        for name in (*_SETS, _EXTRA) if part == "train" else _SETS:
            with gzip.open(directory / f"{name}.{part}.jsonl.gz", "rt") as file:
                asked += [
                    _asked(row, f"{name}.{part}", gold=row["gold_passage_id"])
                    for row in map(json.loads, file)
                    if part == "train" or not row.get("gold_seen_in_train")
                ]
    dev = (*organisations.DEV, *organisations.DEV_PRODUCTS)
    for path in sorted(top.glob("*/*/*.jsonl")):
        owner = path.parent.name
        kind = path.parent.parent.name
        is_near = path.name == "near_misses.jsonl"
        part = f"{'near' if is_near else kind}."
        part += "dev" if owner in dev else "train"
        for row in map(json.loads, path.read_text().splitlines()):
            gold = "" if is_near else str(path.parent / row["document"])
            gold = re.sub(r"\.rst$", ".rst.txt", gold)
            asked.append(_asked(row, part, owner=owner, gold=gold))
    held_out = {
        value
        for row in asked
        if not row["part"].endswith("train")
        for value in (row["gold"], row["question"].lower())
    }
    return [
        row
        for row in asked
        if row["owner"]
        or not row["part"].endswith("train")
        or row["gold"] not in held_out - {""}
        and row["question"].lower() not in held_out
    ]


def _asked(row, part, *, gold, owner=""):
    return {
        "part": part,
        "owner": owner,
        "question": row["question"],
        "answers": row.get("answers", row.get("answer", [])),
        "type": row.get("answer_type", "string"),
        "gold": gold or "",
    }


def right_spans(row: dict, text: str, starts, limits) -> list[tuple[int, int]]:
    """Where the answers stand in a text, in wordpieces.

    Args:
        row: dict. `answers` and `type`, as of `read_questions`.
        text: str.
        starts, limits: int arrays `(num_wordpieces,)`. Code points.

    Returns:
        list of `(start, width - 1)` of the wordpieces that cover an answer, at
        most 20, none wider than `MAX_WIDTH`. A string is whole words.
    """
    found = set()
    for answer in row["answers"]:
        pattern = rf"(?<!\w){re.escape(answer.strip())}(?!\w)"
        try:
            compiled = re.compile(
                answer if row["type"] == "regex" else pattern, re.I
            )
        except re.error:
            # CuratedTREC has patterns that are none; they match nothing.
            continue
        for match in compiled.finditer(text):
            first, last = match.span()
            start = np.searchsorted(starts, first, side="right") - 1
            end = np.searchsorted(limits, last)
            if (
                first < last
                and 0 <= start <= end < min(len(limits), start + MAX_WIDTH)
                and first < limits[start]
                and starts[end] < last
            ):
                found.add((int(start), int(end - start)))
            if len(found) == _MOST_SPANS:
                return sorted(found)
    return sorted(found)


class _Searched:
    """The blocks of all parts one after the other, and their embeddings."""

    def __init__(self, loaded, parts, top):
        self._loaded = loaded
        tables = [blocks.table for blocks, _ in parts]
        for name in _COLUMNS:
            column = [each for t in tables for each in t[name].to_numpy()]
            setattr(self, f"_{name}", column)
        self._texts = [each for t in tables for each in t["text"].to_pylist()]
        articles = [
            each for t in tables for each in t["article_id"].to_pylist()
        ]
        self._documents = [each.partition("#")[0] for each in articles]
        self._owners = np.array(
            [_owner(pathlib.Path(each), top) for each in self._documents]
        )
        self._embeddings = np.concatenate(
            [
                np.asarray(embeddings.read(), "float32")
                for _, embeddings in parts
            ]
        )

    def find(self, asked) -> dict:
        """Questions, the blocks found for each, and the right spans."""
        tokenizer = self._loaded.tokenizer
        pieces = [
            question_files.query_wordpieces(row["question"], tokenizer)[1:-1]
            for row in asked
        ]
        embedded = self._embed([row["question"] for row in asked])
        owners = np.array([row["owner"] for row in asked])
        found = np.full((len(asked), _DEPTH), -1, "int32")
        scores = np.full(found.shape, -np.inf, "float32")
        dense = np.full(found.shape, -1, "int32")
        for owner in np.unique(owners):
            own = np.flatnonzero(self._owners == owner)
            rows = np.flatnonzero(owners == owner)
            lexical = self._postings(own)
            for part in np.array_split(rows, -(-len(rows) // _AT_ONCE)):
                of_dense = embedded[part] @ self._embeddings[own].T
                of_words = _counts([pieces[row] for row in part], lexical)
                total = of_dense + hybrid.LEXICAL_WEIGHT * of_words
                order = np.argsort(-total, axis=1)[:, :_DEPTH]
                depth = order.shape[1]
                found[part, :depth] = own[order]
                scores[part, :depth] = np.take_along_axis(total, order, 1)
                order = np.argsort(-of_dense, axis=1)[:, :_DEPTH]
                dense[part, :depth] = own[order]
        parts = sorted({row["part"] for row in asked})
        return {
            "parts": np.array(parts),
            "part": np.array([parts.index(row["part"]) for row in asked]),
            **_flat("question", pieces),
            "found": found,
            "found_score": scores,
            "dense": dense,
            **self._spans(asked, np.concatenate([found, dense], axis=1)),
        }

    def arrays(self) -> dict:
        """Wordpieces of titles and bodies."""
        return {
            **_flat("title", self._title_ids),
            **_flat("body", self._token_ids),
        }

    def _embed(self, questions):
        tokenizer = self._loaded.tokenizer
        embedded = np.zeros((len(questions), self._embeddings.shape[1]), "f")
        for places, rows in question_files.batches_by_length(
            questions, tokenizer, _AT_ONCE
        ):
            inputs = question_files.pack_queries(rows, tokenizer.pad_id)
            inputs["segment_ids"] = np.zeros_like(inputs["token_ids"])
            embedded[places] = self._loaded.model.embed_queries(inputs)
        return embedded

    def _postings(self, own):
        bodies = [self._token_ids[row] for row in own]
        lengths = np.array([len(each) for each in bodies])
        return wordpiece_scores.postings(
            [self._title_ids[row] for row in own],
            question_files.pad(bodies, lengths.max()),
            lengths,
            len(self._loaded.tokenizer.vocabulary),
            unk_id=self._loaded.tokenizer.unk_id,
        )

    def _spans(self, asked, candidates):
        of_document = {}
        for block, document in enumerate(self._documents):
            of_document.setdefault(document, []).append(block)
        gold = np.full(len(asked), -1, "int32")
        found = []
        for number, row in enumerate(asked):
            own = of_document.get(row["gold"], [])
            for block in dict.fromkeys([*candidates[number].tolist(), *own]):
                spans = block >= 0 and right_spans(
                    row,
                    self._texts[block],
                    self._token_starts[block],
                    self._token_limits[block],
                )
                if not spans:
                    continue
                if gold[number] < 0 and block in own:
                    gold[number] = block
                found += [(number, block, *span) for span in spans]
        names = "question", "block", "start", "width"
        columns = np.array(found, "int32").reshape(-1, len(names)).T
        spans = zip(names, columns, strict=True)
        return {"gold": gold, **{f"span_{name}": each for name, each in spans}}


def _owner(path, top):
    """The organisation or product of a document; "" of a passage."""
    return path.relative_to(top).parts[1] if top in path.parents else ""


def _counts(rows, lexical):
    """BM25 of questions, `(num_questions, num_blocks)`."""
    of_row = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    asked = np.zeros((len(rows), lexical.shape[1]), "float32")
    np.add.at(asked, (of_row, np.concatenate(rows).astype(int)), 1)
    return (lexical @ asked.T).T


def _flat(name, rows):
    """Lists of wordpieces one after the other, and where each begins."""
    return {
        name: np.concatenate(rows).astype("uint16"),
        f"{name}_offsets": np.cumsum([0, *map(len, rows)]),
    }


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
