"""What is watched in training, by hand."""

import numpy as np

from realm_tf import metrics


def test_predictions_are_those_of_the_mixture():
    # Each block alone would say 0 or 2; both together say 1.
    probs = np.array(
        [[[0.55, 0.45, 1e-9]], [[1e-9, 0.45, 0.55]], [[1e-9, 1e-9, 1.0]]]
    )
    logits = (np.log(probs)[None] + 3.0).astype("float32")
    priors = np.log([[0.5, 0.5, 1.0]]).astype("float32")
    for num_blocks, wanted in ((2, 1), (1, 0)):
        mask = np.arange(3)[None] < num_blocks
        found = metrics.marginal_predictions(logits, priors, mask)
        assert np.asarray(found).tolist() == [[wanted]]
