"""`realm verify`: a good export passes, a tampered one does not."""

import functools
import json
import shutil

import backends
import numpy as np
import pytest

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.export import card
from realm_tf.export import verify
from realm_tf.export.runtime import Runtime
from realm_tf.operations import verify as verify_module
from realm_tf.operations.export import Export
from realm_tf.operations.graph import Graph
from realm_tf.operations.verify import Verify

pytestmark = backends.exports


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.slow),
        3,
    ],
)
def test_an_export_passes_every_check(exported, version, tmp_path):
    directory = f"{exported}/{version}"
    output = str(tmp_path / "verification")
    report = Verify(saved_model=directory, output=output).run()
    failed = [c["name"] for c in report["checks"] if not c["ok"]]
    assert report["ok"] and not failed
    names = " ".join(check["name"] for check in report["checks"])
    for what in (
        *("answer equals that of the Python code", "candidate_log_prob within"),
        *("alone as in a batch", "batch of 64"),
        "answers 10,000 letters, alone as in a batch",
        *("answers invalid UTF-8", "an empty question has no answer"),
        "retrieve finds the blocks that the Python code finds",
        "embed_block agrees with the index",
        # Not even the package that the fresh process is in.
        "nothing of realm's was imported",
        "every file is as it was exported",
    ):
        assert what in names
    assert report["load_seconds"] > 0
    assert report["milliseconds_per_question"] > 0
    artifact.read(output, kind="verification")
    stored = json.loads(Path(f"{output}/report.json").read_text())
    assert stored == report


@pytest.mark.slow
def test_an_export_of_bfloat16_passes(
    model_dir, blocks_dir, brute_force_index_dir, tmp_path
):
    made = Export(
        model=model_dir,
        blocks=blocks_dir,
        index=brute_force_index_dir,
        output=str(tmp_path / "exported"),
        precision="bfloat16",
    ).run()
    report = Verify(saved_model=made.path).run()
    assert [c["name"] for c in report["checks"] if not c["ok"]] == []


@pytest.fixture
def copy(exported, tmp_path):
    """A base directory with a copy of the exact version."""
    shutil.copytree(f"{exported}/1", tmp_path / "base" / "1")
    return tmp_path / "base"


def test_other_answers_than_were_stored_fail(copy, capsys, monkeypatch):
    path = copy / "1" / "assets.extra" / "expected.json"
    expected = json.loads(path.read_text())
    expected[0]["answer"] += "x"
    expected[0]["block_ids"].reverse()
    expected[1]["score"] += 0.01
    expected[2]["candidate_block_id"][-1] = 10_000
    path.write_text(json.dumps(expected))
    # In this process, which has TensorFlow already.
    monkeypatch.setattr(
        verify_module,
        "ask_in_a_fresh_process",
        functools.partial(verify.main, runtime_class=Runtime),
    )
    monkeypatch.setattr(card, "read", lambda _: {})
    assert cli.main(["verify", "--saved-model", str(copy)]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert [line.split()[1] for line in failed] == [
        *("answer", "candidate_block_id", "score", "retrieve"),
        # Of realm's was imported: of course.
        "nothing",
    ]
    assert sum(line.startswith("ok") for line in lines) > 10


def test_damaged_weights_fail(copy, capsys):
    (path,) = (copy / "1" / "variables").glob("*.data-*")
    path.write_bytes(path.read_bytes()[:-5000])
    (copy / "1" / "assets.extra" / "tf_serving_warmup_requests").unlink()
    assert cli.main(["verify", "--saved-model", str(copy)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "FAILED  every file is as it was exported\n"
    assert captured.err.startswith(
        f"{copy}/1/assets.extra/tf_serving_warmup_requests is missing or not as "
        f"it was written. {path} is missing or not as it was written. Export"
    )


@pytest.mark.slow
def test_a_process_that_cannot_load_fails(copy, capsys, monkeypatch):
    monkeypatch.setattr(card, "read", lambda _: {})
    (copy / "1" / "saved_model.pb").write_bytes(b"\xff\xff")
    assert cli.main(["verify", "--saved-model", str(copy)]) == 1
    captured = capsys.readouterr()
    assert captured.out == (
        "ok      every file is as it was exported\n"
        "FAILED  a fresh process loads and asks\n"
    )
    assert "It ended with status 1:" in captured.err


def test_a_failure_leaves_no_report(copy, monkeypatch, tmp_path, capsys):
    report = {
        "ok": False,
        "error": "2 of 3",
        "checks": [
            {"name": "good", "ok": True},
            {"name": "score within 0.0001", "ok": False},
        ],
    }
    monkeypatch.setattr(
        verify_module, "ask_in_a_fresh_process", lambda _: report
    )
    output = tmp_path / "verification"
    arguments = ["--saved-model", str(copy), "--output", str(output)]
    assert cli.main(["verify", *arguments]) == 1
    assert "FAILED  score within 0.0001" in capsys.readouterr().out
    assert not output.exists()
    # Among steps, what follows is not done.
    graph = Graph()
    graph.add(Verify(saved_model=str(copy), output=str(output)))
    with pytest.raises(RuntimeError, match="FAILED  score within 0.0001"):
        graph.run()


def test_what_is_no_export_is_refused(copy, tmp_path, capsys):
    with pytest.raises(InputError, match="none does not exist"):
        Verify(saved_model=str(tmp_path / "none")).run()
    (copy / "1" / "assets.extra" / "card.json").unlink()
    with pytest.raises(InputError, match="exported by an earlier version"):
        Verify(saved_model=str(copy)).run()
    (copy / "1" / "COMPLETED").unlink()
    assert cli.main(["verify", "--saved-model", str(copy)]) == 2
    assert "was not written by `realm export` to its end" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "found, wanted, same",
    [
        ([3, 1, 2, 7], [3, 1, 2, 7], True),
        # Their scores are like.
        ([1, 3, 2, 7], [3, 1, 2, 7], True),
        # Theirs are not.
        ([3, 2, 1, 7], [3, 1, 2, 7], False),
        # Pushed out by another, which is like the last, or is not.
        ([3, 1, 2, 8], [3, 1, 2, 7], True),
        ([3, 1, 8, 7], [3, 1, 2, 7], False),
        # Found twice.
        ([3, 3, 2, 7], [3, 1, 2, 7], False),
        # Not found at all.
        ([3, 1, 2, -1], [3, 1, 2, 7], False),
    ],
)
def test_blocks_of_like_score_come_in_any_order(found, wanted, same):
    scores = np.array([[9.0, 8.99995, 5.0, 4.0]])
    if -1 in found:
        scores[0, -1] = -np.inf
    assert (
        verify._same_ranking(
            np.array([found]), [wanted], scores, verify._close(1e-4)
        )
        is same
    )
