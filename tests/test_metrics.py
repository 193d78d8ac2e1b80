"""What is watched in training, by hand."""

import numpy as np

from realm_tf import metrics


def test_predictions_are_those_of_the_mixture():
    # Each block alone would say 0 or 2; both together say 1.
    probs = np.array(
        [[[0.55, 0.45, 1e-9]], [[1e-9, 0.45, 0.55]], [[1e-9, 1e-9, 1.0]]]
    )
    logits = np.log(probs)[None] + 3.0
    priors = np.log([[0.5, 0.5, 1.0]]).astype("float32")
    mask = np.array([[True, True, False]])
    predictions = metrics.marginal_predictions(
        logits.astype("float32"), priors, mask
    )
    assert np.asarray(predictions).tolist() == [[1]]
    mask = np.array([[True, False, False]])
    predictions = metrics.marginal_predictions(
        logits.astype("float32"), priors, mask
    )
    assert np.asarray(predictions).tolist() == [[0]]
