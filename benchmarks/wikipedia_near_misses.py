"""Questions about Wikipedia, each also asked where no passage answers it.

    python benchmarks/wikipedia_near_misses.py --model DIR --data-dir DIR --output DIR

The model is one of package_reader.py, not calibrated yet.

--data-dir is that of `sample_questions.py`. 747 questions of dev, asked over 50,000
passages by the model's towers and BM25; then over what is found when every passage that
holds an answer is left out. OUTPUT/answers.jsonl is for `confidence.py`.
"""

import json
import pathlib

import package_reader
import runs
import sample_questions
import tyro

import realm_tf as realm
from realm_tf.answering import retrieve_and_answer
from realm_tf.answering.predict import NUM_READER_BLOCKS
from realm_tf.artifacts.question_files import Questions
from realm_tf.text import answers


def main(*, model: str, data_dir: str, output: str):
    """Asks, and writes the answers.

    Args:
        model: model directory.
        data_dir: corpus and questions.
        output: where everything is kept.
    """
    folder = pathlib.Path(output, "questions")
    corpus = pathlib.Path(data_dir, "corpus.jsonl.gz")
    of_data = pathlib.Path(data_dir, "questions")
    sample_questions.main(questions=of_data, corpus=corpus, output=folder)
    asked = [
        question
        for name in ("dev", "further_dev")
        for question in Questions(str(folder / f"{name}.jsonl")).questions
    ]
    steps, model = runs.Runs(output), realm.Model(model)
    blocks = steps.add(
        realm.Chunk, "blocks", input=str(corpus), vocab=model.vocabulary
    )
    index = steps.index(model, blocks)
    steps.graph.run()
    found = retrieve_and_answer.answer(
        *(model, blocks, index, asked),
        retriever="hybrid",
        num_reader_blocks=NUM_READER_BLOCKS,
        precision="auto",
        calibrate=True,
    )
    with open(f"{output}/answers.jsonl", "w") as file:
        for near_miss, predictions in (
            (False, found.predictions),
            (True, found.unanswerable),
        ):
            for question, each in zip(asked, predictions, strict=True):
                row = {
                    "question": question.question,
                    "given": each.answer,
                    "confidence": package_reader.PLAIN.confidence(
                        each.reader_score
                    ),
                    "is_right": answers.is_correct(
                        each.answer,
                        question.answers,
                        question.answer_type,
                        question.language,
                    ),
                    "near_miss": near_miss,
                }
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
