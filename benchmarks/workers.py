"""What a second worker brings: `realm chunk`, and `realm annotate` by rules.

    python benchmarks/workers.py --data-dir DIR --vocab FILE

Both run from start to end over DIR/corpus.jsonl.gz, repeated with new ids in a
file each, with 1 and with 2 workers (processes); so many copies that the 10
seconds which a second process takes to start count for little. After the first
copy chunking knows all words: its rate is that of a corpus with few new ones.
"""

import argparse
import json
import os
import pathlib
import tempfile

import corpus


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--vocab", required=True, help="vocab.txt of the model")
    parser.add_argument(
        "--commands",
        nargs="+",
        choices=("chunk", "annotate"),
        default=("chunk", "annotate"),
    )
    parser.add_argument("--chunk-copies", type=int, default=16)
    parser.add_argument("--annotate-copies", type=int, default=12)
    parser.add_argument(
        "--temporary-dir", help="where to write (default: /tmp)"
    )
    args = parser.parse_args()
    passages = str(pathlib.Path(args.data_dir, "corpus.jsonl.gz"))
    result = {"cpus": os.cpu_count()}
    for name in args.commands:
        copies = getattr(args, f"{name}_copies")
        with tempfile.TemporaryDirectory(dir=args.temporary_dir) as folder:
            inputs = pathlib.Path(folder, "inputs")
            inputs.mkdir()
            num_passages = corpus.write_copies(passages, str(inputs), copies)
            chunk = ["chunk", "--input", f"{inputs}/*.jsonl"]
            chunk += ["--vocab", args.vocab, "--output"]
            command = [*chunk, f"{folder}/chunk"]
            if name == "annotate":
                corpus.seconds(*chunk, f"{folder}/blocks", workers=2)
                command = ["annotate", "--blocks", f"{folder}/blocks"]
                command += ["--tagger", "rules", "--output", f"{folder}/spans"]
            result[name] = speed_up(command, num_passages, str(inputs))
    print(json.dumps(result, indent=2))


def speed_up(command, num_passages, inputs):
    """Seconds with one and with two workers; the last argument is a path."""
    seconds = {
        workers: corpus.seconds(
            *command[:-1], f"{command[-1]}-{workers}", workers=workers
        )
        for workers in (1, 2)
    }
    num_bytes = corpus.num_bytes(inputs)
    return {
        "passages": num_passages,
        "megabytes": round(num_bytes / 1e6, 1),
        "seconds_1_worker": round(seconds[1], 1),
        "seconds_2_workers": round(seconds[2], 1),
        "passages_per_second_1_worker": round(num_passages / seconds[1], 1),
        "speed_up": round(seconds[1] / seconds[2], 3),
    }


if __name__ == "__main__":
    main()
