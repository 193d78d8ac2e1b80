"""The variables of an export's blocks, of several states in one graph.

A graph refers to a variable by a handle that is made once. Here the handles of
what belongs to the blocks are looked up under names that are fed to every run:
each run reads one state from beginning to end, and a state that is read from the
disk meanwhile changes nothing for it. A state that is freed lasts until the last
run that looked it up has ended.
"""

import contextlib
import os

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.export import checkpoint

# What TensorFlow takes for "a new one each time that the op runs"
# (resource_variable_ops.cc); freed when nothing refers to it.
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
# Apart from all names of an export's graph.
_SCOPE = "corpus_states"


class CorpusStates:
    """Makes, fills and frees states in a session.

    Args:
        session: `tf.compat.v1.Session`. Its graph is about to get the export's.
        meta_graph: `MetaGraphDef`. The export's.
        reading: `tf.compat.v1.RunOptions`. Of runs that read from the disk.

    Attributes:
        first: tuple of str. A state whose variables have no values yet: it is
            what runs without `feeds` read and write, as the loader does.
        input_map: dict. For `import_meta_graph`.
    """

    def __init__(
        self, session, meta_graph: meta_graph_pb2.MetaGraphDef, *, reading
    ):
        self._session = session
        self._reading = reading
        nodes, keys = zip(*_variables(meta_graph), strict=True)
        dtypes = [node.attr["dtype"].type for node in nodes]
        with session.graph.as_default(), tf.name_scope(_SCOPE):
            self._made = [
                tf.compat.v1.get_session_handle(
                    tf.raw_ops.VarHandleOp(
                        dtype=dtype,
                        shape=node.attr["shape"].shape,
                        shared_name=_ANONYMOUS,
                    )
                )
                for node, dtype in zip(nodes, dtypes, strict=True)
            ]
            self.first = self._new()
            self._names = tf.compat.v1.placeholder_with_default(
                tf.constant(self.first), [len(nodes)]
            )
            names = tf.unstack(self._names)
            handles = [
                tf.raw_ops.GetSessionTensor(handle=name, dtype=tf.resource)
                for name in names
            ]
            self._prefix = tf.compat.v1.placeholder(tf.string, [])
            values = tf.raw_ops.RestoreV2(
                prefix=self._prefix,
                tensor_names=keys,
                shape_and_slices=[""] * len(keys),
                dtypes=dtypes,
            )
            self._filled = tf.group(
                *(
                    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
                    for handle, value in zip(handles, values, strict=True)
                )
            )
            self._freed = tf.group(
                *(tf.raw_ops.DeleteSessionTensor(handle=name) for name in names)
            )
        self.input_map = {
            f"{node.name}:0": handle
            for node, handle in zip(nodes, handles, strict=True)
        }

    def read(self, directory: str) -> tuple[str, ...]:
        """A state of the same graph's export in a version directory.

        Raises:
            tf.errors.OpError: if its variables cannot be read.
        """
        state = self._new()
        prefix = os.path.join(directory, checkpoint.PREFIX)
        try:
            self._session.run(
                self._filled,
                {self._prefix: prefix, **self.feeds(state)},
                options=self._reading,
            )
        except BaseException:
            # With a session that was closed meanwhile all is freed.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                self.free(state)
            raise
        return state

    def feeds(self, state: tuple[str, ...]) -> dict:
        """What to feed, so that a run reads a state."""
        return {self._names: state}

    def free(self, state: tuple[str, ...]) -> None:
        """Lets a state go."""
        self._session.run(self._freed, self.feeds(state))

    def _new(self) -> tuple[str, ...]:
        # Unlike its Python object, the name does not go with a reference.
        return tuple(
            made.get_raw_handle() for made in self._session.run(self._made)
        )


def _variables(meta_graph):
    """(node, key in the checkpoint) of each variable of the blocks.

    The graph's function that restores says which is which, as TensorFlow's
    `SavedModel`s have one.
    """
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    restore = nodes[meta_graph.saver_def.restore_op_name]
    functions = {
        function.signature.name: function
        for function in meta_graph.graph_def.library.function
    }
    function = functions[restore.attr["f"].func.name]
    inside = {node.name: node for node in function.node_def}

    def maker(tensor):
        return inside[tensor.partition(":")[0]]

    handle_of = {
        given.name: nodes[name]
        for given, name in zip(
            function.signature.input_arg, restore.input, strict=True
        )
    }
    for assign in function.node_def:
        if assign.op != "AssignVariableOp":
            continue
        argument, value = assign.input
        while maker(value).op == "Identity":
            value = maker(value).input[0]
        # RestoreV2 gives a tensor for each of its names.
        names = maker(maker(value).input[1]).attr["value"].tensor.string_val
        key = names[int(value.rpartition(":")[2])].decode()
        if key.startswith(checkpoint.CORPUS):
            yield handle_of[argument], key
