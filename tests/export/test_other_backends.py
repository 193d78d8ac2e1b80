"""An export from another Keras backend is the same op-free graph."""

import json

import pytest
import python_code
from graph_ops import op_names

from realm_tf.errors import InputError
from realm_tf.operations.ask import Ask
from realm_tf.operations.export import Export
from realm_tf.operations.verify import Verify

QUESTIONS = ("Where was Ada?", "What is the river of Rome?")
# Exports, and answers with JAX.
_WITH_JAX = f"""
import json, sys
import realm_tf as realm
model, blocks, index, output = sys.argv[1:]
realm.Export(model=model, blocks=blocks, index=index, output=output).run()
answers = realm.Answerer(model, blocks, index).ask({QUESTIONS})
print(json.dumps([
    [a.answer, a.score, [c.block_id for c in a.candidates]] for a in answers
]))
"""


@pytest.mark.slow
def test_what_is_wrong_is_said(tmp_path, capfd):
    with pytest.raises(InputError, match="ended with status 2"):
        Export(
            precision="float32",
            **{
                name: str(tmp_path / "none")
                for name in ("model", "blocks", "index", "output")
            },
        )._export_with_tensorflow()
    assert "none does not exist" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["brute_force", "ivf"])
def test_jax_answers_what_its_export_answers(
    kind, tmp_path, model_dir, blocks_dir, request
):
    base = str(tmp_path / "base")
    index = request.getfixturevalue(f"{kind}_index_dir")
    printed = python_code.run(
        *(_WITH_JAX, model_dir, blocks_dir, index, base), KERAS_BACKEND="jax"
    )
    wanted = json.loads(printed.splitlines()[-1])
    found = Ask(question=QUESTIONS, saved_model=base).run()
    for view, (answer, score, candidates) in zip(found, wanted, strict=True):
        assert view.answer.answer == answer != ""
        assert view.answer.score == pytest.approx(score, abs=1e-4)
        found = [each.block_id for each in view.answer.candidates]
        assert found == candidates
    report = Verify(saved_model=base).run()
    assert report["ok"], [c for c in report["checks"] if not c["ok"]]
    # What JAX would put into a SavedModel.
    assert "XlaCallModule" not in op_names(f"{base}/1")
