import numpy as np
import pytest
import realm_world as world

from realm_tf.data.feeding import ahead
from realm_tf.training import retrieval_samples
from realm_tf.training.retrieval_samples import RetrievalSamples

PRIORS = [0.5, 0.2, 0.3, 0.0]
# Of both masked wordpieces, by candidate; the last one may not be read.
LIKELIHOODS = [[0.1, 0.3], [0.2, 0.3], [0.4, 0.3], [0.9, 0.9]]


def _outputs():
    with np.errstate(divide="ignore"):
        log_priors = np.maximum(np.log([PRIORS]), -1.7e38)
    return {
        "candidate_ids": np.array([[7, 4, 9]]),
        "candidate_mask": np.array([[True, True, True, False]]),
        "retrieval_log_probs": log_priors.astype("float32"),
        # A third place is padding.
        "log_probs": np.pad(
            np.log([LIKELIHOODS]), [[0, 0], [0, 0], [0, 1]]
        ).astype("float32"),
        "predicted_ids": np.array([[11, 12, 13]]),
    }


BATCH = {
    "token_ids": np.array([[2, 20, 4, 4, 21, 3, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 1, 0]]),
    "mask_positions": np.array([[2, 3, 0]]),
    "mask_ids": np.array([[11, 15, 0]]),
    "mask_weights": np.array([[1, 1, 0]]),
}


VOCABULARY = [f"w{number}" for number in range(200)]
VOCABULARY[4] = "[MASK]"
VOCABULARY[12] = "##a|b"
VOCABULARY[21] = "##*"
VOCABULARY[31] = "<b>"


def _sample(marginalization="span", **batch):
    blocks = {
        "token_ids": np.arange(40, 160).reshape(1, 3, 40),
        "lengths": np.array([[3, 33, 5]]),
        "title_ids": np.array([[[30, 31], [32, 0], [33, 0]]]),
        "title_lengths": np.array([[2, 1, 1]]),
    }
    (sample,) = retrieval_samples.format_samples(
        _outputs(),
        {**BATCH, **batch},
        blocks,
        VOCABULARY,
        marginalization=marginalization,
    )
    return sample


def test_the_table():
    """r(z) = [p(y|z,x) / p(y|x) - 1] p(z|x), by hand."""
    # The second wordpiece is as likely with every block: it adds 0 to the
    # token form's mean and changes nothing in the span form.
    # p(y|x) = 0.5 * 0.1 + 0.2 * 0.2 + 0.3 * 0.4 = 0.21
    gradients = [
        (0.1 / 0.21 - 1) * 0.5,
        (0.4 / 0.21 - 1) * 0.3,
        (0.2 / 0.21 - 1) * 0.2,
    ]
    body = " ".join(f"w{number}" for number in range(80, 112))
    for form, factor in (("span", 1.0), ("token", 0.5)):
        null, four, seven = (f"{factor * each:+.4f}" for each in gradients)
        assert _sample(form) == (
            "w20 \\[MASK\\] \\[MASK\\]\\*\n"
            "\n"
            "masked: **w11 w15**; predicted: **w11a\\|b**\n"
            "\n"
            "| block | p(z given x) | r(z) | title | text |\n"
            "|--:|--:|--:|:--|:--|\n"
            f"| null | 0.5000 | {null} |  |  |\n"
            f"| 4 | 0.3000 | {four} | w32 | {body} … |\n"
            f"| 7 | 0.2000 | {seven} | w30 &lt;b> | w40 w41 w42 |"
        )


def test_masks_apart():
    text = _sample(
        mask_positions=np.array([[1, 2, 4]]),
        mask_ids=np.array([[5, 6, 7]]),
        mask_weights=np.array([[1, 1, 1]]),
    )
    assert "masked: **w5 w6**, **w7**; predicted: **w11a\\|b**, **w13**" in text


@pytest.mark.slow
def test_samples_of_a_run(packed_blocks):
    """They are what the model says, and leave its training as it is."""
    make = world.make_batches(packed_blocks)
    runs, written = [], []
    vocabulary = [f"w{number}" for number in range(world.VOCABULARY)]

    def samples():
        return RetrievalSamples(
            world.make_batch(packed_blocks, 0),
            vocabulary,
            lambda name, text, step: written.append((step, name, text)),
            every_steps=2,
        )

    for callbacks in ([], [samples()]):
        model = world.make_model(packed_blocks)
        history = model.fit(
            ahead(make),
            steps_per_epoch=3,
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        ).history
        runs.append((history, model.get_weights()))
    assert runs[0][0] == runs[1][0]
    for one, two in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(one, two)
    names = [f"retrieval/{number}" for number in range(world.BATCH_SIZE)]
    assert [(step, name) for step, name, _ in written] == [
        (step, name) for step in (0, 2, 4, 6) for name in names
    ]
    of_run, written[:] = [text for *_, text in written], []
    again = samples()
    again.set_model(model)
    again.on_train_begin()
    again.on_train_end()
    texts = [text for *_, text in written]
    assert of_run[-world.BATCH_SIZE :] == texts
    assert of_run[0] != texts[0]
    for text in texts:
        assert "\nmasked: **w" in text
        rows = [line.split(" | ") for line in text.splitlines()[6:]]
        assert 2 <= len(rows) <= 4
        assert sum(float(row[1]) for row in rows) == pytest.approx(1, abs=1e-3)
        assert sum(float(row[2]) for row in rows) == pytest.approx(0, abs=1e-3)
