import numpy as np
import pytest

from realm_tf.operations.evaluate import Evaluate


@pytest.mark.slow
def test_bfloat16_rounds_the_scores(
    model_dir, blocks_dir, brute_force_index_dir, questions_path, tmp_path
):
    found, expected = (
        Evaluate(
            model=model_dir,
            blocks=blocks_dir,
            index=brute_force_index_dir,
            questions=questions_path,
            output=tmp_path / precision,
            precision=precision,
        ).run()
        for precision in ("bfloat16", "float32")
    )
    assert found.parameters["precision"] == "bfloat16"
    scores, wanted = (
        np.array([line["score"] for line in each.predictions])
        for each in (found, expected)
    )
    largest = np.abs(scores - wanted).max()
    assert 1e-5 < largest < 0.05 * np.abs(wanted).max()
