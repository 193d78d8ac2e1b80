"""`ram://`, TensorFlow's file system in memory, as an object store of tests."""

from etils.epath import backend
from etils.epath import gpath
from etils.epath import register


def add_ram_paths() -> None:
    """Lets `artifacts.paths.Path` take `ram://`, as it takes `gs://`."""
    if "ram" in gpath._PREFIX_TO_BACKEND:
        return
    gpath._URI_PREFIXES += ("ram://",)
    gpath._URI_SCHEMES |= {"ram"}
    gpath._URI_MAP_ROOT["ram://"] = "/ram/"
    gpath._PREFIX_TO_BACKEND["ram"] = backend.tf_backend
    register.register_path_cls(("ram://",))(gpath.PosixGPath)
