"""The fresh process of `realm verify`: no code of realm, no Keras of ours.

Prints one JSON line. Run as `python -P verify_worker.py VERSION_DIR`: by its
path, so that not even the package that it is in is imported.
"""

import importlib.util
import json
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the wordpiece op)

# Realm's, none of which may be needed here.
PACKAGES = ("realm_tf", "export", "serving", "beam_pipelines")
# Scores of two graphs that add in another order; see docs of float32.
TOLERANCE = 1e-4
STRANGE = (
    "",
    "   ",
    "x" * 10_000,
    "who " * 2_500,
    "\U0001f9d1\u200d\U0001f680 \U0001f680?",
    b"\xff\xfe broken",
)


def main(directory: str) -> dict:
    """Loads and compares; see `export.verify`."""
    folder = pathlib.Path(directory, "assets.extra")
    stored = json.loads((folder / "expected.json").read_text("utf-8"))
    card = json.loads((folder / "card.json").read_text("utf-8"))
    expected = stored["questions"]
    questions = [row["question"] for row in expected]
    started = time.monotonic()
    if card["index"] == "scann":
        _load_scann_op()
    model = tf.saved_model.load(directory)
    answer = model.signatures["serving_default"]
    _ask(answer, questions[:1])
    load_seconds = time.monotonic() - started
    batch = _ask(answer, questions)
    retrieved = model.signatures["retrieve"](question=tf.constant(questions))
    recall = _recall(expected, retrieved["block_id"].numpy())
    checks = {
        # It would not have been loaded otherwise.
        **(
            {"no op but TensorFlow's and tensorflow_text's": True}
            if card["index"] != "scann"
            else {}
        ),
        **_check_answers(expected, batch),
        **_check_batching(answer, questions, batch),
        **_check_strange(answer, questions),
        **_check_retrieval(card, model, expected, batch, retrieved, recall),
    }
    started = time.monotonic()
    for question in questions:
        _ask(answer, [question])
    seconds = time.monotonic() - started
    return {
        "ok": all(checks.values()),
        "checks": [
            {"name": name, "ok": bool(ok)} for name, ok in checks.items()
        ],
        "load_seconds": round(load_seconds, 2),
        "milliseconds_per_question": round(1000 * seconds / len(questions), 1),
        "milliseconds_in_python": stored["milliseconds_per_question"],
        "neighbors_found": round(recall, 4),
        "modules_of_realm": sorted(
            name for name in sys.modules if name.split(".")[0] in PACKAGES
        ),
    }


def _check_answers(expected, batch):
    """Answers are those of the Python code."""
    checks = {
        "answer equals that of the Python code, "
        f"{len(expected)} questions": _decode(batch["answer"])
        == [row["answer"] for row in expected],
    }
    for name in ("block_id", "start", "limit"):
        checks[f"{name} equals"] = batch[name].tolist() == [
            row[name] for row in expected
        ]
    checks[
        f"candidate_block_id equals, in order but for ties of {TOLERANCE:g}"
    ] = _same_ranking(
        batch["candidate_block_id"],
        _wanted(expected, "candidate_block_id", batch, -1),
        batch["candidate_log_prob"],
    )
    checks["candidate_answer equals, of each block"] = _same_of_each_block(
        expected, batch
    )
    for name in ("score", "confidence", "candidate_log_prob"):
        checks[f"{name} within {TOLERANCE:g}"] = np.allclose(
            batch[name],
            _wanted(expected, name, batch, -np.inf),
            atol=TOLERANCE,
            rtol=TOLERANCE,
        )
    checks["text holds the answer at [start, limit)"] = _slices_agree(batch)
    return checks


def _check_batching(answer, questions, batch):
    """Answers do not depend on the other questions of a batch."""
    answers = _decode(batch["answer"])
    alone = [_ask(answer, [question]) for question in questions]
    many = _ask(answer, (questions * 64)[:64])
    return {
        "alone as in a batch": [_decode(one["answer"])[0] for one in alone]
        == answers,
        "batch of 64": _decode(many["answer"]) == (answers * 64)[:64],
    }


def _check_strange(answer, questions):
    """What is no question is answered, too, and disturbs no other."""
    checks = {}
    for strange in STRANGE:
        shown = repr(strange[:30])
        if len(strange) > 30:
            shown = f"{strange[:4]!r}... ({len(strange):,} characters)"
        one = _ask(answer, [strange])
        both = _ask(answer, [strange, questions[0]])
        checks[f"answers {shown}, alone as in a batch"] = (
            one["answer"][0] == both["answer"][0]
        )
    empty = _ask(answer, [""])
    checks["an empty question has no answer"] = (
        empty["answer"][0] == b""
        and empty["block_id"][0] == -1
        and empty["score"][0] == 0
    )
    return checks


def _check_retrieval(card, model, expected, batch, retrieved, recall):
    """The other signatures agree with the Python code and with one another."""
    block_ids = retrieved["block_id"].numpy()
    exact = card["index"] == "brute_force" and card["quantize"] == "none"
    return {
        "retrieve finds the blocks that the Python code finds, in order but "
        f"for ties of {TOLERANCE:g}": _same_ranking(
            block_ids,
            _padded(expected, "block_ids", block_ids, -1),
            retrieved["score"].numpy(),
        ),
        "retrieve finds the blocks that are read": _same_start(
            block_ids, batch["candidate_block_id"]
        ),
        f"of the {block_ids.shape[1]} nearest blocks {recall:.1%} are found, "
        f"{'all' if exact else 'at least half'} expected": (
            recall == 1 if exact else recall >= 0.5
        ),
        "embed_block agrees with the index": _embeds(
            model, [row["question"] for row in expected], rounded=not exact
        ),
    }


def _load_scann_op():
    spec = importlib.util.find_spec("scann")
    if spec is not None:
        (folder,) = spec.submodule_search_locations
        tf.load_op_library(f"{folder}/scann_ops/cc/_scann_ops.so")


def _ask(answer, questions):
    outputs = answer(question=tf.constant(questions))
    return {name: value.numpy() for name, value in outputs.items()}


def _decode(array):
    if array.ndim > 1:
        return [[value.decode("utf-8") for value in row] for row in array]
    return [value.decode("utf-8") for value in array]


def _wanted(expected, name, batch, filler):
    """What is stored under a name; lists as long as those of the export."""
    if isinstance(expected[0][name], list):
        return _padded(expected, name, batch[name], filler)
    return [row[name] for row in expected]


def _padded(expected, name, found, filler):
    width = found.shape[1]
    return [
        row[name][:width] + [filler] * (width - len(row[name]))
        for row in expected
    ]


def _same_ranking(found, wanted, scores):
    """Whether blocks come in one order, those of like score in any.

    Sums in another order are rounded otherwise, here and in Python. At the
    end of a row a block may have been pushed out by one of like score.
    """
    for ids, others, row in zip(found.tolist(), wanted, scores, strict=True):
        blocks = [block_id for block_id in ids if block_id >= 0]
        if len(set(blocks)) < len(blocks):
            return False
        for place, block_id in enumerate(ids):
            if block_id == others[place]:
                continue
            if block_id < 0:
                return False
            last = len(ids) - 1
            other = others.index(block_id) if block_id in others else last
            if not np.isclose(
                row[place], row[other], atol=TOLERANCE, rtol=TOLERANCE
            ):
                return False
    return True


def _same_of_each_block(expected, batch):
    """Whether each block that both read has one answer in both."""
    for row, ids, answers in zip(
        expected,
        batch["candidate_block_id"].tolist(),
        _decode(batch["candidate_answer"]),
        strict=True,
    ):
        wanted = dict(
            zip(row["candidate_block_id"], row["candidate_answer"], strict=True)
        )
        if any(
            wanted.get(block_id, answer) != answer
            for block_id, answer in zip(ids, answers, strict=True)
        ):
            return False
    return True


def _slices_agree(batch):
    return all(
        text.decode("utf-8")[start:limit] == answer.decode("utf-8")
        for text, start, limit, answer in zip(
            batch["text"],
            batch["start"],
            batch["limit"],
            batch["answer"],
            strict=True,
        )
    )


def _same_start(block_ids, read):
    width = min(block_ids.shape[1], read.shape[1])
    return (block_ids[:, :width] == read[:, :width]).all()


def _recall(expected, block_ids):
    """Which share of an exact search's blocks was found, over all questions."""
    pairs = [
        (set(row["exact_block_ids"]), set(found))
        for row, found in zip(expected, block_ids.tolist(), strict=True)
        if row["exact_block_ids"]
    ]
    num_exact = sum(len(exact) for exact, _ in pairs)
    return sum(len(exact & found) for exact, found in pairs) / num_exact


def _embeds(model, questions, *, rounded):
    """Scores of `retrieve` are inner products of the two embeddings."""
    # int8 rounds each score to about one part in a hundred, bfloat16 less.
    tolerances = (0.02, 0.05) if rounded else (TOLERANCE, TOLERANCE)
    found = model.signatures["retrieve"](question=tf.constant(questions[:4]))
    queries = model.signatures["embed_query"](
        question=tf.constant(questions[:4])
    )["embedding"].numpy()
    for row, query in enumerate(queries):
        # An empty question retrieves nothing.
        if found["block_id"][row, 0] < 0:
            continue
        blocks = model.signatures["embed_block"](
            title=found["title"][row], text=found["text"][row]
        )["embedding"].numpy()
        rtol, atol = tolerances
        if not np.allclose(
            blocks @ query, found["score"][row], rtol=rtol, atol=atol
        ):
            return False
    return True


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
