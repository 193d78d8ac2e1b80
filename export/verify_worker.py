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
    started = time.monotonic()
    if card["index"] == "scann":
        _load_scann_op()
    model = tf.saved_model.load(directory)
    answer = model.signatures["serving_default"]
    questions = [row["question"] for row in expected]
    answer(question=tf.constant(questions[:1]))
    load_seconds = time.monotonic() - started
    checks = []

    def check(name, ok):
        checks.append({"name": name, "ok": bool(ok)})

    if card["index"] != "scann":
        # It would not have been loaded otherwise.
        check("no op but TensorFlow's and tensorflow_text's", True)
    batch = _ask(answer, questions)
    check(
        f"answer equals that of the Python code, {len(questions)} questions",
        _decode(batch["answer"]) == [row["answer"] for row in expected],
    )
    for name in ("block_id", "start", "limit"):
        check(
            f"{name} equals",
            batch[name].tolist() == [row[name] for row in expected],
        )
    check(
        f"candidate_block_id equals, in order but for ties of {TOLERANCE:g}",
        _same_ranking(
            batch["candidate_block_id"],
            _wanted(expected, "candidate_block_id", batch, -1),
            batch["candidate_log_prob"],
        ),
    )
    check(
        "candidate_answer equals, of each block",
        _same_of_each_block(expected, batch),
    )
    for name in ("score", "confidence", "candidate_log_prob"):
        check(
            f"{name} within {TOLERANCE:g}",
            np.allclose(
                batch[name],
                _wanted(expected, name, batch, -np.inf),
                atol=TOLERANCE,
                rtol=TOLERANCE,
            ),
        )
    check("text holds the answer at [start, limit)", _slices_agree(batch))
    alone = [_ask(answer, [question]) for question in questions]
    check(
        "alone as in a batch",
        [_decode(one["answer"])[0] for one in alone]
        == _decode(batch["answer"]),
    )
    many = (questions * 64)[:64]
    check(
        "batch of 64",
        _decode(_ask(answer, many)["answer"])
        == (_decode(batch["answer"]) * 64)[:64],
    )
    for strange in STRANGE:
        shown = strange if len(strange) < 30 else f"{len(strange)} characters"
        one = _ask(answer, [strange])
        both = _ask(answer, [strange, questions[0]])
        check(
            f"answers {shown!r}, alone as in a batch",
            one["answer"][0] == both["answer"][0],
        )
    empty = _ask(answer, [""])
    check(
        "an empty question has no answer",
        empty["answer"][0] == b""
        and empty["block_id"][0] == -1
        and empty["score"][0] == 0,
    )
    found = model.signatures["retrieve"](question=tf.constant(questions))
    block_ids = found["block_id"].numpy()
    check(
        "retrieve finds the blocks that the Python code finds, in order but "
        f"for ties of {TOLERANCE:g}",
        _same_ranking(
            block_ids,
            _padded(expected, "block_ids", block_ids, -1),
            found["score"].numpy(),
        ),
    )
    check(
        "retrieve finds the blocks that are read",
        _same_start(block_ids, batch["candidate_block_id"]),
    )
    recall = _recall(expected, block_ids)
    exact = card["index"] == "brute_force" and card["quantize"] == "none"
    check(
        f"of the {block_ids.shape[1]} nearest blocks {recall:.1%} are found, "
        f"{'all' if exact else 'at least half'} expected",
        recall == 1 if exact else recall >= 0.5,
    )
    check(
        "embed_block agrees with the index",
        _embeds(model, questions, rounded=not exact),
    )
    started = time.monotonic()
    for question in questions:
        _ask(answer, [question])
    seconds = time.monotonic() - started
    return {
        "ok": all(c["ok"] for c in checks),
        "checks": checks,
        "load_seconds": round(load_seconds, 2),
        "milliseconds_per_question": round(1000 * seconds / len(questions), 1),
        "milliseconds_in_python": stored["milliseconds_per_question"],
        "neighbors_found": round(recall, 4),
        "modules_of_realm": sorted(
            name for name in sys.modules if name.split(".")[0] in PACKAGES
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
