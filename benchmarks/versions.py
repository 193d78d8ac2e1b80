"""What versions of a model leave in memory, without a server or requests.

    python benchmarks/versions.py --saved-model DIR [--versions 40] [--alone]

Loads a SavedModel again and again and asks it once, as `realm serve` does when
versions come: the new one before the old is closed, or, with --alone, after. Prints
after each close the megabytes that are resident, and those allocated and not freed.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import load
import numpy as np

from realm_tf.artifacts.saved_models import find_version
from realm_tf.serving import memory
from realm_tf.serving.servable import SavedModelServable


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--saved-model", required=True)
    parser.add_argument("--versions", type=int, default=40)
    parser.add_argument("--alone", action="store_true")
    args = parser.parse_args()
    question = load.questions_of(find_version(args.saved_model)[0])[0]
    memory.keep_imports()
    old = None
    print("version  resident  allocated")
    for number in range(1, args.versions + 1):
        new = SavedModelServable(args.saved_model)
        new.run({"question": np.array([question.encode()], object)})
        if old:
            old.close()
        old = None if args.alone else new
        if args.alone:
            new.close()
        del new
        memory.hand_back()
        resident = load.resident_megabytes(os.getpid())
        allocated = memory.allocated_bytes() / 1e6
        print(f"{number:7}{resident:10.0f}{allocated:11.1f}", flush=True)


if __name__ == "__main__":
    main()
