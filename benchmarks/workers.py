"""What a second worker brings: `realm chunk`, and `realm annotate` by rules.

    python benchmarks/workers.py --data-dir DIR --vocab FILE

Both run from start to end over DIR/corpus.jsonl.gz, repeated with new ids in a
file each, with 1 and with 2 workers (processes); so many copies that the 10
seconds which a second process takes to start count for little. After the first
copy chunking knows all words: its rate is that of a corpus with few new ones.
"""

import json
import os
from typing import Literal

import corpus
import tyro


def main(
    *,
    data_dir: str,
    vocab: str,
    commands: tuple[Literal["chunk", "annotate"], ...] = ("chunk", "annotate"),
    chunk_copies: int = 16,
    annotate_copies: int = 12,
    temporary_dir: str | None = None,
):
    """Measures each command over so many copies of the passages."""
    result = {"cpus": os.cpu_count()}
    copies = {"chunk": chunk_copies, "annotate": annotate_copies}
    for name in commands:
        with corpus.copied(data_dir, copies[name], temporary_dir) as copied:
            folder, inputs, num_passages = copied
            chunk = ["chunk", "--input", f"{inputs}/*.jsonl"]
            chunk += ["--vocab", vocab, "--output"]
            command = [*chunk, f"{folder}/chunk"]
            if name == "annotate":
                corpus.seconds(*chunk, f"{folder}/blocks", workers=2)
                command = ["annotate", "--blocks", f"{folder}/blocks"]
                command += ["--tagger", "rules", "--output", f"{folder}/spans"]
            result[name] = speed_up(command, num_passages, inputs)
    return result


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
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
