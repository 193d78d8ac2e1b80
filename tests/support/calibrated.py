"""An evaluation as its readers see it: a calibration, and predictions."""

import dataclasses
import pathlib

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Model


def write_evaluation(path, model_dir, calibration, *, predictions=None) -> str:
    """Writes one of a model with a hybrid retriever.

    Args:
        path: path-like.
        model_dir: str. The model that was evaluated.
        calibration: `Calibration`.
        predictions: str. The rows of predictions.jsonl. Defaults to `None`: no
            such file.

    Returns:
        str, the path.
    """
    with artifact.write(
        str(path),
        kind="evaluation",
        parameters={"retriever": "hybrid"},
        parents={"model": Model(model_dir).fingerprint},
    ) as stage:
        stage.metadata["calibration"] = dataclasses.asdict(calibration)
        if predictions is not None:
            pathlib.Path(stage.path("predictions.jsonl")).write_text(
                predictions
            )
    return str(path)
