"""`realm retrieve`."""

import dataclasses
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import check_new_file
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.artifacts.question_files import read_questions
from realm_tf.operations.computing import Computing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieve(Computing):
    """Writes the 100 best blocks of each question, for other programs.

      realm retrieve --model DIR --blocks DIR --index DIR \\
          --questions queries.jsonl --to trec --output run.trec

    trec: a run of trec_eval, which pyserini, BEIR and ir_measures read, with a
    line `QUERY Q0 DOCUMENT RANK SCORE realm` for each block. dpr: the JSON of
    DPR's retriever, with texts and whether they hold an answer, from which
    readers such as Fusion-in-Decoder learn.

    Questions are JSONL as for `realm evaluate`, or queries.jsonl of a BEIR data
    set; those without an id are numbered from 0. --of articles ranks articles,
    each by its best block, under their ids in the input of `realm chunk`, to
    which the judgements of a BEIR data set refer.
    """

    command = "retrieve"

    model: Model
    """model directory"""
    blocks: Blocks
    """blocks directory"""
    index: Index
    """index directory"""
    questions: Questions
    """JSONL with question and, for dpr and --qrels, answer"""
    form: Annotated[Literal["trec", "dpr"], tyro.conf.arg(name="to")]
    """format of the output"""
    output: str
    """file to write"""
    qrels: str | None = None
    """trec: also write judgements of the retrieved blocks, whether they hold an
    answer, for success@k and reciprocal ranks"""
    of: Literal["blocks", "articles"] = "blocks"
    """what is ranked"""
    retriever: Literal["realm", "bm25", "hybrid"] = "realm"
    """what finds the blocks"""

    def run(self) -> int:
        """Searches and writes the file.

        Returns:
            int, the number of questions.

        Raises:
            InputError: if the inputs are missing or do not match, answers are
                needed and not there, or a file exists already.
        """
        from realm_tf.answering.corpus import Corpus
        from realm_tf.answering.recall import NUM_RANKED
        from realm_tf.evaluation import run_files
        from realm_tf.retrieval import retrievers

        check_new_file(self.output, flag="--output")
        if self.qrels:
            check_new_file(self.qrels, flag="--qrels")
        if self.form == "dpr":
            self.refuse_given(("qrels", "of"), "--to dpr")
        asked = read_questions(
            self.questions.path,
            need_answers=self.form == "dpr" or bool(self.qrels),
        )
        corpus = Corpus.load(
            self.model, self.blocks, self.index, precision=self.computes_in
        )
        retriever = retrievers.make(self.retriever, corpus)
        found = run_files.search(retriever, asked, NUM_RANKED)
        if self.form == "dpr":
            text = run_files.dpr(found, corpus.records)
        else:
            names = None
            if self.of == "articles":
                names = run_files.article_ids(self.blocks)
            ranked = run_files.ranked(found, names)
            text = run_files.trec(ranked)
            if self.qrels:
                write_text(
                    self.qrels, run_files.qrels(found, corpus.records, names)
                )
        write_text(self.output, text)
        return len(asked)

    def report(self, result: int) -> str:
        return f"{self.output}: what was found for {result:,} questions"
