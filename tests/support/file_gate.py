"""A graph that runs until a file exists: a test decides when a run ends."""

import tensorflow as tf


def wait_for_file(begun, ended):
    """Writes the file `begun`, then waits until the file `ended` exists.

    Args:
        begun, ended: scalar string tensors, paths.

    Returns:
        int32 scalar tensor, 1.
    """
    with tf.control_dependencies([tf.io.write_file(begun, "")]):
        (found,) = tf.while_loop(
            lambda found: found < 1,
            lambda found: (tf.size(tf.io.matching_files(ended)),),
            (0,),
        )
    return found


class WaitingModule(tf.Module):
    """A module with the signature `wait`."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.string, name="begun"),
            tf.TensorSpec([], tf.string, name="ended"),
        ]
    )
    def wait(self, begun, ended):
        return {"found": wait_for_file(begun, ended)}
