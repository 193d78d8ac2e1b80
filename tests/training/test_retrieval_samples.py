import numpy as np
import pytest

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


def _samples(**arguments):
    return retrieval_samples.make_samples(
        _outputs(),
        BATCH,
        token_ids=np.arange(40, 160).reshape(1, 3, 40),
        lengths=np.array([[3, 33, 5]]),
        title_ids=np.array([[[30, 31], [32, 0], [33, 0]]]),
        title_lengths=np.array([[2, 1, 1]]),
        **arguments,
    )


def test_what_stands_where():
    (sample,) = _samples()
    assert sample.token_ids == [20, 4, 4, 21]
    assert sample.mask_positions == [2, 3]
    assert sample.mask_ids == [11, 15]
    assert sample.predicted_ids == [11, 12]
    null, first, second = sample.candidates
    assert null.block_id is None and not null.token_ids
    # By p(z | x), the null block first whatever it has.
    assert (first.block_id, second.block_id) == (4, 7)
    assert first.title_ids == [32] and second.title_ids == [30, 31]
    assert first.token_ids == list(range(80, 112)) and first.is_cut
    assert second.token_ids == [40, 41, 42] and not second.is_cut
    found = [c.probability for c in sample.candidates]
    assert found == pytest.approx([0.5, 0.3, 0.2])


def test_the_gradient_by_hand():
    """r(z) = [p(y|z,x) / p(y|x) - 1] p(z|x)."""
    # The second wordpiece is as likely with every block: it adds 0 to the
    # token form's mean and changes nothing in the span form.
    # p(y|x) = 0.5 * 0.1 + 0.2 * 0.2 + 0.3 * 0.4 = 0.21
    expected = [
        (0.1 / 0.21 - 1) * 0.5,
        (0.4 / 0.21 - 1) * 0.3,
        (0.2 / 0.21 - 1) * 0.2,
    ]
    assert sum(expected) == pytest.approx(0)
    (span,) = _samples(marginalization="span")
    found = [c.gradient for c in span.candidates]
    assert found == pytest.approx(expected, abs=1e-6)
    (token,) = _samples(marginalization="token")
    found = [c.gradient for c in token.candidates]
    assert found == pytest.approx([r / 2 for r in expected], abs=1e-6)


def test_the_table():
    vocabulary = [f"w{number}" for number in range(200)]
    vocabulary[4] = "[MASK]"
    vocabulary[12] = "##a|b"
    vocabulary[21] = "##*"
    vocabulary[31] = "<b>"
    (sample,) = _samples(marginalization="span")
    body = " ".join(f"w{number}" for number in range(80, 112))
    assert retrieval_samples.format_sample(sample, vocabulary) == (
        "w20 \\[MASK\\] \\[MASK\\]\\*\n"
        "\n"
        "masked: **w11 w15**; predicted: **w11a\\|b**\n"
        "\n"
        "| block | p(z given x) | r(z) | title | text |\n"
        "|--:|--:|--:|:--|:--|\n"
        "| null | 0.5000 | -0.2619 |  |  |\n"
        f"| 4 | 0.3000 | +0.2714 | w32 | {body} … |\n"
        "| 7 | 0.2000 | -0.0095 | w30 &lt;b> | w40 w41 w42 |"
    )


def test_masks_apart():
    candidates = [retrieval_samples.Candidate(None, 1.0, 0.0, [], [], False)]
    sample = retrieval_samples.Sample(
        [1, 4, 4, 2, 4], [2, 3, 5], [5, 6, 7], [8, 9, 1], candidates
    )
    text = retrieval_samples.format_sample(sample, list("abcd_fghij"))
    assert "masked: **f g**, **h**; predicted: **i j**, **b**" in text


def _train(model, batch, *callbacks):
    def batches():
        while True:
            yield (batch,)

    return model.fit(
        batches(),
        epochs=2,
        steps_per_epoch=3,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=0,
    ).history


def _values(model):
    return [np.array(v) for v in (*model.variables, *model.optimizer.variables)]


@pytest.mark.slow
def test_samples_of_a_run(realm_model, realm_batch, tokenizer):
    """They are what the model says, and leave its training as it is."""
    start = _values(realm_model)
    history = _train(realm_model, realm_batch)
    end = _values(realm_model)
    variables = (*realm_model.variables, *realm_model.optimizer.variables)
    for variable, value in zip(variables, start, strict=True):
        variable.assign(value)
    written = []
    callback = RetrievalSamples(
        realm_batch,
        tokenizer,
        lambda name, text, step: written.append((step, name, text)),
        every_steps=2,
        num_steps=6,
    )
    assert _train(realm_model, realm_batch, callback) == history
    for one, two in zip(end, _values(realm_model), strict=True):
        np.testing.assert_array_equal(one, two)
    names = [f"retrieval/{number}" for number in range(3)]
    assert [(step, name) for step, name, _ in written] == [
        (step, name) for step in (0, 2, 4, 6) for name in names
    ]
    samples = retrieval_samples.run_samples(realm_model, realm_batch)
    texts = [
        retrieval_samples.format_sample(sample, tokenizer.vocabulary)
        for sample in samples
    ]
    assert [text for *_, text in written[-3:]] == texts
    assert written[0][2] != texts[0]
    assert texts[0].startswith(
        "in \\[MASK\\] the fire was in the city.\n\nmasked: **1669**;"
    )
    assert texts[1].startswith("the \\[MASK\\] is a river.\n")
    for sample, text in zip(samples, texts, strict=True):
        assert 2 <= len(sample.candidates) <= 4
        total = sum(c.probability for c in sample.candidates)
        assert total == pytest.approx(1, abs=1e-5)
        total = sum(c.gradient for c in sample.candidates)
        assert total == pytest.approx(0, abs=1e-5)
        for candidate in sample.candidates[1:]:
            title = tokenizer.vocabulary[candidate.title_ids[0]]
            assert f"| {candidate.block_id} |" in text
            assert f"| {title} | " in text


def test_wrong_arguments(realm_batch, tokenizer):
    with pytest.raises(ValueError, match="every_steps=0"):
        RetrievalSamples(realm_batch, tokenizer, print, every_steps=0)
