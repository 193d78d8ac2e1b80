"""Writes one SavedModel: raw question in, answer with its evidence out.

  realm export --model DIR --blocks DIR --index DIR --output DIR

Tokenizer, query tower, index (the ScaNN op where the index is ScaNN's), block
texts, reader and the slicing of the answer are inside; nothing of Python is
needed to serve it. OUTPUT gets a new version directory (OUTPUT/1, OUTPUT/2,
...) as TF Serving reads them. `realm verify --saved-model OUTPUT` checks it.
"""

import json
import os
import types

import keras
import numpy as np
import tensorflow as tf

from realm_tf import stages
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.evaluation.predict import NUM_READER_BLOCKS
from realm_tf.evaluation.predict import Predictor
from realm_tf.models.retrieve_and_read import best_spans
from realm_tf.retrieval.corpus import Corpus
from realm_tf.text import packing
from realm_tf.text.graph_tokenizer import GraphTokenizer

NUM_BEST = 5
# Blocks that the signature `retrieve` returns.
NUM_RETRIEVED = 20
EXPECTED = "assets.extra/expected.json"


def add_arguments(parser):
    """Arguments of `realm export`."""
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--index", required=True, help="index directory")
    parser.add_argument(
        "--output", required=True, help="base directory; gets a new version"
    )
    parser.add_argument(
        "--num-reader-blocks",
        type=int,
        default=NUM_READER_BLOCKS,
        help="blocks read for a question, fixed in the export "
        f"(default: {NUM_READER_BLOCKS})",
    )
    parser.add_argument(
        "--questions",
        help="JSONL of questions whose answers are stored for `realm verify` "
        "(default: the titles of a few blocks)",
    )


def run(args, extra):
    """`realm export`."""
    path = export(
        args.model,
        args.blocks,
        args.index,
        args.output,
        num_reader_blocks=args.num_reader_blocks,
        questions=args.questions,
    )
    print(f"{path}: {directory_size(path) / 1e6:.0f} MB")


def directory_size(path: str) -> int:
    """Bytes of all files below a local directory."""
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
    )


def next_version(output: str) -> int:
    """One more than the highest version directory of a base directory."""
    if not stages.exists(output):
        return 1
    versions = [int(n) for n in stages.list_names(output) if n.isdigit()]
    return max(versions, default=0) + 1


def export(
    model: str,
    blocks: str,
    index: str,
    output: str,
    *,
    num_reader_blocks: int = NUM_READER_BLOCKS,
    questions: str | None = None,
    num_expected: int = 16,
) -> str:
    """Writes a new version of the SavedModel.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        index: str. Index directory; its kind is the kind of search.
        output: str. Base directory.
        num_reader_blocks: int. Blocks read for a question. Defaults to `5`.
        questions: str. JSONL file whose first questions are answered here
            and stored, so that `realm verify` can compare. Defaults to
            titles of blocks.
        num_expected: int. How many of them. Defaults to `16`.

    Returns:
        str, the version directory.

    Raises:
        InputError: if the inputs do not belong together.
    """
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            "`realm export` needs KERAS_BACKEND=tensorflow (it is "
            f"{keras.backend.backend()!r})."
        )
    if stages.is_complete(output):
        raise InputError(
            f"--output {output} is itself a finished stage; expected a base "
            "directory for versions."
        )
    asked = None
    if questions:
        asked = [
            q.question
            for q in data.read_questions(questions, need_answers=False)
        ][:num_expected]
    corpus = Corpus.load(model, blocks, index, for_export=True)
    asked = asked or list(dict.fromkeys(corpus.records.titles))[:num_expected]
    stages.make_directory(output)
    path = stages.join(output, str(next_version(output)))
    with stages.write(
        path,
        kind=schema.SAVED_MODEL,
        parameters={"num_reader_blocks": num_reader_blocks},
        parents={
            "model": corpus.loaded.metadata["fingerprint"],
            "blocks": corpus.records.fingerprint,
            "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
        },
    ) as stage:
        module = RealmModule(corpus, num_reader_blocks=num_reader_blocks)
        tf.saved_model.save(
            module,
            stage.directory,
            signatures=module.signatures(),
            # ScaNN's ops are of a namespace that TensorFlow does not know.
            options=tf.saved_model.SaveOptions(namespace_whitelist=["Scann"]),
        )
        stages.make_directory(stage.path("assets.extra"))
        stages.write_text(
            stage.path(EXPECTED),
            json.dumps(
                _expected(model, blocks, index, asked, num_reader_blocks),
                ensure_ascii=False,
                indent=1,
            ),
        )
        stage.metadata["num_blocks"] = len(corpus.records)
    return path


def _expected(model, blocks, index, questions, num_reader_blocks):
    """The Python path's answers, for `realm verify` to compare with."""
    predictor = Predictor(
        Corpus.load(model, blocks, index), num_reader_blocks=num_reader_blocks
    )
    rows = []
    for question, prediction in zip(
        questions, predictor.predict(questions), strict=True
    ):
        rows.append(
            {
                "question": question,
                "answer": prediction.answer,
                "score": prediction.score,
                "confidence": prediction.confidence,
                "block_id": prediction.block_id,
                "start": prediction.start,
                "limit": prediction.limit,
                "candidate_block_id": [
                    c.block_id for c in prediction.candidates
                ],
                "candidate_log_prob": [
                    c.log_prob for c in prediction.candidates
                ],
                "candidate_answer": [c.answer for c in prediction.candidates],
            }
        )
    return rows


class RealmModule(tf.Module):
    """The graph that is exported, and everything that it needs.

    Args:
        corpus: `Corpus`, loaded for export.
        num_reader_blocks: int. Blocks read; fewer blocks than that are
            padded with id -1.
    """

    def __init__(self, corpus: Corpus, *, num_reader_blocks: int):
        super().__init__()
        records = corpus.records
        self._num_padding = max(0, num_reader_blocks - len(records))
        self._max_block_length = records.metadata["max_block_length"]
        self.tokenizer = GraphTokenizer(
            corpus.loaded.tokenizer.vocabulary,
            lowercase=corpus.loaded.tokenizer.lowercase,
        )
        # In a namespace, where TensorFlow does not look: Keras's own objects
        # would be saved, too, and every weight a second time.
        self._keras = types.SimpleNamespace(
            loaded=corpus.loaded,
            retrieve_and_read=corpus.retrieve_and_read(
                num_candidates=max(NUM_RETRIEVED, num_reader_blocks),
                num_reader_blocks=num_reader_blocks,
            ),
        )
        # Keras's variables, as TensorFlow's own, are what is saved.
        self.weights = [
            v.value for v in self._keras.retrieve_and_read.variables
        ]
        self.block_tower_weights = [
            v.value for v in corpus.loaded.model.block_embedder.variables
        ]
        self.scann_state = getattr(corpus.index, "module", None)

        def constant(values, dtype):
            return tf.Variable(values, dtype=dtype, trainable=False)

        self.titles = constant(records.titles, tf.string)
        self.texts = constant(records.texts, tf.string)
        self.urls = constant(records.urls, tf.string)
        self.token_starts = constant(records.token_starts, tf.int32)
        self.token_limits = constant(records.token_limits, tf.int32)

    def signatures(self) -> dict:
        """The signatures by name; see the functions of the same names."""
        strings = tf.TensorSpec([None], tf.string, name="question")
        block = (
            tf.TensorSpec([None], tf.string, name="title"),
            tf.TensorSpec([None], tf.string, name="text"),
        )

        def concrete(function, *specs):
            # Nothing here branches on tensors in Python.
            traced = tf.function(function, autograph=False)
            return traced.get_concrete_function(*specs)

        return {
            "serving_default": concrete(self.answer, strings),
            "retrieve": concrete(self.retrieve, strings),
            "embed_query": concrete(self.embed_query, strings),
            "embed_block": concrete(self.embed_block, *block),
        }

    def answer(self, question):
        """question `(batch_size,)` -> answer with evidence."""
        inputs, asked = self._pack(question)
        outputs = self._keras.retrieve_and_read(inputs, training=False)
        spans = best_spans(outputs, num_best=NUM_BEST)
        block_ids = outputs["read_ids"]
        # (b, n): the block of each of the n best spans.
        nbest_blocks = tf.gather(
            block_ids, spans["nbest_positions"], batch_dims=1
        )
        nbest_answers, starts, limits = self._slice(
            nbest_blocks, spans["nbest_starts"], spans["nbest_limits"]
        )
        candidate_answers, _, _ = self._slice(
            block_ids, spans["candidate_starts"], spans["candidate_limits"]
        )
        found = asked & (spans["nbest_starts"][:, 0] >= 0)
        best = tf.where(found, nbest_blocks[:, 0], -1)

        def if_found(values, otherwise):
            shape = tf.concat(
                [tf.shape(found), tf.ones([tf.rank(values) - 1], tf.int32)], 0
            )
            return tf.where(tf.reshape(found, shape), values, otherwise)

        return {
            "answer": if_found(nbest_answers[:, 0], ""),
            "score": if_found(spans["nbest_scores"][:, 0], 0.0),
            "confidence": if_found(spans["confidence"], 0.0),
            "block_id": tf.cast(best, tf.int64),
            "title": self._text_of(self.titles, best),
            "text": self._text_of(self.texts, best),
            "url": self._text_of(self.urls, best),
            "start": tf.cast(if_found(starts[:, 0], 0), tf.int64),
            "limit": tf.cast(if_found(limits[:, 0], 0), tf.int64),
            "nbest_answer": if_found(nbest_answers, ""),
            "nbest_score": if_found(spans["nbest_scores"], 0.0),
            **self._candidates(
                tf.where(asked[:, None], block_ids, -1),
                candidate_answers,
                spans["candidate_log_probs"],
            ),
        }

    def retrieve(self, question):
        """question `(batch_size,)` -> the best blocks, best first."""
        inputs, asked = self._pack(question)
        embeddings = self._embed(inputs)
        scores, block_ids = self._keras.retrieve_and_read.index.search(
            embeddings, self._keras.retrieve_and_read.num_candidates
        )
        block_ids = tf.where(asked[:, None], block_ids, -1)
        return {
            "block_id": tf.cast(block_ids, tf.int64),
            "score": tf.where(asked[:, None], scores, 0.0),
            "title": self._text_of(self.titles, block_ids),
            "text": self._text_of(self.texts, block_ids),
        }

    def embed_query(self, question):
        """question `(batch_size,)` -> embedding, the score scale included."""
        inputs, _ = self._pack(question)
        return {"embedding": self._embed(inputs)}

    def embed_block(self, title, text):
        """title and text `(batch_size,)` -> embedding as in the index."""
        tokenizer = self._keras.loaded.tokenizer
        inputs = packing.join_bert(
            [self.tokenizer(title), self.tokenizer(text)],
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            max_length=self._max_block_length,
            segment_ids=self._keras.loaded.block_segment_ids,
        )
        return {"embedding": self._keras.loaded.model.embed_blocks(inputs)}

    def _pack(self, question):
        """Packed questions, and which of them ask anything at all."""
        tokenizer = self._keras.loaded.tokenizer
        ids = self.tokenizer(question)
        inputs = packing.join_bert(
            [ids],
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            max_length=data.MAX_QUERY_LENGTH,
        )
        return inputs, ids.row_lengths() > 0

    def _embed(self, inputs):
        return self._keras.loaded.model.embed_queries(inputs)

    def _slice(self, block_ids, starts, limits):
        """Answers, with their code points, of spans given in wordpieces."""
        found = starts >= 0
        first = tf.maximum(starts, 0)
        last = tf.maximum(limits - 1, 0)
        from_code_point = _pick(self.token_starts, block_ids, first)
        to_code_point = _pick(self.token_limits, block_ids, last)
        texts = tf.gather(self.texts, block_ids)
        answers = tf.strings.substr(
            texts,
            tf.where(found, from_code_point, 0),
            tf.where(found, to_code_point - from_code_point, 0),
            unit="UTF8_CHAR",
        )
        return answers, from_code_point, to_code_point

    def _text_of(self, table, block_ids):
        texts = tf.gather(table, tf.maximum(block_ids, 0))
        return tf.where(block_ids >= 0, texts, "")

    def _candidates(self, block_ids, answers, log_probs):
        padding = [[0, 0], [0, self._num_padding]]
        block_ids = tf.pad(block_ids, padding, constant_values=-1)
        return {
            "candidate_block_id": tf.cast(block_ids, tf.int64),
            "candidate_title": self._text_of(self.titles, block_ids),
            "candidate_text": self._text_of(self.texts, block_ids),
            "candidate_answer": tf.where(
                block_ids >= 0,
                tf.pad(answers, padding, constant_values=""),
                "",
            ),
            "candidate_log_prob": tf.where(
                block_ids >= 0,
                tf.pad(log_probs, padding),
                np.float32(-np.inf),
            ),
        }


def _pick(table, rows, columns):
    return tf.gather_nd(table, tf.stack([rows, columns], axis=-1))
