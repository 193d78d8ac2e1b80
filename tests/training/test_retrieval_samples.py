import numpy as np

from realm_tf.training import retrieval_samples

OUTPUTS = {
    "candidate_ids": np.array([[7, 4, 9]]),
    # The last one may not be read.
    "candidate_mask": np.array([[True, True, True, False]]),
    "retrieval_log_probs": np.log([[0.5, 0.2, 0.3, 1e-9]]),
    "predicted_ids": np.array([[11, 12, 13]]),
}
BATCH = {
    "token_ids": np.array([[2, 20, 4, 4, 21, 3, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 1, 0]]),
    "mask_ids": np.array([[11, 15, 0]]),
    "mask_weights": np.array([[1, 1, 0]]),
}
BLOCKS = {
    "token_ids": np.arange(40, 160).reshape(1, 3, 40),
    "lengths": np.array([[3, 33, 5]]),
    "title_ids": np.array([[[30, 31], [32, 0], [33, 0]]]),
    "title_lengths": np.array([[2, 1, 1]]),
}
VOCABULARY = [f"w{number}" for number in range(200)]
VOCABULARY[4] = "[MASK]"
VOCABULARY[12] = "##a|b"
VOCABULARY[21] = "##*"
VOCABULARY[31] = "<b>"


def test_a_sample_by_hand():
    sample = retrieval_samples.format_sample(
        *(
            {n: rows[0] for n, rows in x.items()}
            for x in (OUTPUTS, BATCH, BLOCKS)
        ),
        VOCABULARY,
    )
    body = " ".join(f"w{number}" for number in range(80, 112))
    assert sample == (
        "w20 \\[MASK\\] \\[MASK\\]\\*\n"
        "\n"
        "masked: **w11 w15**; predicted: **w11a\\|b**\n"
        "\n"
        "| block | p(z given x) | title | text |\n"
        "|--:|--:|:--|:--|\n"
        "| null | 0.5000 |  |  |\n"
        f"| 4 | 0.3000 | w32 | {body} |\n"
        "| 7 | 0.2000 | w30 &lt;b> | w40 w41 w42 |"
    )
