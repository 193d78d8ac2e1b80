"""What is measured of the server."""

from realm_tf.evaluation.reproductions.measurement import Measurement
from realm_tf.evaluation.reproductions.measurement import grid
from realm_tf.evaluation.reproductions.measurement import listed
from realm_tf.evaluation.reproductions.pipelines import EPYC
from realm_tf.evaluation.reproductions.pipelines import QUICKSTART

_SECONDS = ("{:.3g} s, {:.3g} s", "", 1e-3)
_BATCHING = grid(
    {
        f"`{each}`": each
        for each in ("embed_query", "retrieve", "serving_default")
    },
    ("one client, a second", "{row}/one_client/per_second", "{:.1f}"),
    ("16 clients, a second", "{row}/batching/per_second", "{:.1f}"),
    ("ratio", "{row}/ratio", "{:.1f}", "20 %"),
    ("of three turns", "{row}/ratios/0 {row}/ratios/2", "{:.1f} to {:.1f}"),
    (
        "p50, p99 of 16 clients",
        "{row}/batching/p50_ms {row}/batching/p99_ms",
        *_SECONDS,
    ),
)
_SOAK = listed(
    ("questions asked", "asked"),
    ("answers of two versions in one", "mixed", "{:.0f}", "0"),
    ("versions seen, of 21", "versions_seen", "{:.0f}", "1"),
    ("answers a second at capacity", "capacity_per_second", "{:.1f}"),
    ("p50, p99", "p50_ms p99_ms", *_SECONDS),
)

SERVING = (
    Measurement(
        "serving-batching",
        (
            QUICKSTART,
            "python benchmarks/batching.py "
            "--saved-model {output}/quickstart/saved_model",
        ),
        12,
        EPYC,
        {"signature": _BATCHING},
    ),
    Measurement(
        "serving-soak",
        (
            QUICKSTART,
            "realm export --model {output}/quickstart/model "
            "--blocks {output}/quickstart/blocks "
            "--index {output}/quickstart/index --num-reader-blocks 4 "
            "--output {output}/other",
            # Published with batches of up to 16, here of up to 32.
            "python benchmarks/soak.py "
            "--saved-model {output}/quickstart/saved_model "
            "--other {output}/other --batching-parameters-file "
            "serving/tf_serving/batching_parameters.txt",
        ),
        24,
        EPYC,
        {"ten minutes at 80 % of capacity": _SOAK},
    ),
)
