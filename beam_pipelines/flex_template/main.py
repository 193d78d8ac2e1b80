"""What the launcher of a Dataflow Flex Template runs."""

import sys

from realm_tf.beam_pipelines.flex_template import launcher

if __name__ == "__main__":
    sys.exit(launcher.main())
