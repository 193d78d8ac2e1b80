"""Questions a second of a server with batching, beside one without.

    python benchmarks/batching.py --saved-model DIR

For each signature, in one run: one client that asks a server without batching,
one question at a time, again and again; then 16 such clients of a server that
merges their requests. Server and clients are processes on one machine and
share its processors. Prints requests a second, latencies, their ratio, and the
server's memory.
"""

import argparse
import json
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import load

from serving.locate import find_version

SIGNATURES = ("embed_query", "retrieve", "serving_default")
_NUM_CLIENTS = 16
_BATCHING = """
max_batch_size {{ value: {clients} }}
batch_timeout_micros {{ value: {micros} }}
num_batch_threads {{ value: {threads} }}
max_enqueued_batches {{ value: 100 }}
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--saved-model", required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--batch-timeout-micros", type=int, default=5000)
    parser.add_argument("--num-batch-threads", type=int, default=2)
    parser.add_argument("--signatures", nargs="+", default=SIGNATURES)
    args = parser.parse_args()
    questions = load.questions_of(find_version(args.saved_model)[0])
    results = {name: {} for name in args.signatures}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(
            _BATCHING.format(
                clients=_NUM_CLIENTS,
                micros=args.batch_timeout_micros,
                threads=args.num_batch_threads,
            )
        )
        file.flush()
        for name, num_clients, options in (
            ("one_client", 1, ()),
            (
                "batching",
                _NUM_CLIENTS,
                ("--batching-parameters-file", file.name),
            ),
        ):
            with load.serve(args.saved_model, "--no-rest", *options) as started:
                process, target = started
                for signature in args.signatures:
                    arguments = {
                        "signature": signature,
                        "num_clients": num_clients,
                    }
                    # Every size of batch is compiled before it counts.
                    load.closed_loop(target, questions, seconds=3, **arguments)
                    results[signature][name] = load.closed_loop(
                        target, questions, seconds=args.seconds, **arguments
                    )
                results[f"{name}_megabytes"] = round(
                    load.resident_megabytes(process.pid)
                )
    for signature in args.signatures:
        found = results[signature]
        found["ratio"] = round(
            found["batching"]["per_second"] / found["one_client"]["per_second"],
            2,
        )
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
