"""Questions a second of a server with batching, beside one without.

    python benchmarks/batching.py --saved-model DIR

For each signature, in one run: one client that asks a server without batching,
one question at a time, again and again; then 16 such clients of a server that
merges their requests; in turns, several times. Servers and clients are
processes on one machine and share its processors; who is not asked waits.
Prints, of the median turn, requests a second and latencies; the ratios of all
turns and their median; and the servers' memory.
"""

import argparse
import contextlib
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import load

from realm_tf.artifacts.saved_models import find_version

SIGNATURES = ("embed_query", "retrieve", "serving_default")
_NUM_CLIENTS = 16


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--saved-model", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--num-turns", type=int, default=3)
    parser.add_argument("--signatures", nargs="+", default=SIGNATURES)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                load.serve(
                    args.saved_model,
                    *("--rest-port", "none"),
                    *("--max-merged-size", str(merged)),
                )
            )
            for name, merged in (("one_client", 1), ("batching", _NUM_CLIENTS))
        }
        results = {
            name: _measure(args, servers, name) for name in args.signatures
        }
        for name, server in servers.items():
            results[f"{name}_megabytes"] = round(
                load.resident_megabytes(server.process.pid)
            )
    print(json.dumps(results, indent=2))


def _measure(args, servers, signature):
    questions = load.questions_of(find_version(args.saved_model)[0])
    turns = []
    # In the first, which does not count, every size of batch is compiled.
    for number in range(1 + args.num_turns):
        turns.append(
            {
                name: load.closed_loop(
                    server.target,
                    questions,
                    signature=signature,
                    num_clients=1 if name == "one_client" else _NUM_CLIENTS,
                    seconds=args.seconds if number else 3,
                )
                for name, server in servers.items()
            }
        )
    turns = sorted(turns[1:], key=_ratio)
    return {
        **turns[len(turns) // 2],
        "ratios": [round(_ratio(turn), 2) for turn in turns],
        "ratio": round(statistics.median(map(_ratio, turns)), 2),
    }


def _ratio(turn):
    return turn["batching"]["per_second"] / turn["one_client"]["per_second"]


if __name__ == "__main__":
    main()
