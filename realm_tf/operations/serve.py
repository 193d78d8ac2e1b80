"""`realm serve`."""

import dataclasses

from realm_tf.operations.operation import Operation
from realm_tf.serving.options import ServerOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Serve(ServerOptions, Operation):
    """Serves a corpus or a SavedModel by gRPC, REST and a web page.

    Prints one line when it is ready. It loads each new version or state while
    the old one answers. On SIGTERM or Ctrl-C it finishes the running requests
    and ends.
    """

    command = "serve"

    def run(self) -> None:
        """Serves until a signal; call it in the main thread of a process.

        Raises:
            InputError: if the model is not there or does not load, a port is
                taken or a file cannot be used.
        """
        # The quick mistakes first: TensorFlow and the model take long.
        self.check()
        from realm_tf.serving import server

        server.serve_until_signal(self)

    def report(self, result: None) -> str:
        return ""
