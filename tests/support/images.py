"""Images of containers, built by podman for a test."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Containers need no rights on the machine's control groups.
RUN = [
    *("podman", "--runtime", "runc", "run", "--rm", "--network", "host"),
    *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4000:4000"),
]


def build(dockerfile: str, base: str, name: str) -> str:
    """Builds an image; skips the test where podman or the base is missing."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    if subprocess.run(["podman", "image", "exists", base]).returncode:
        pulled = subprocess.run(["podman", "pull", base], capture_output=True)
        if pulled.returncode:
            pytest.skip(f"podman cannot get {base}")
    chroot = ["--isolation", "chroot"] if os.getuid() == 0 else []
    subprocess.run(
        [
            *("podman", "build", "--format", "docker", "--network", "host"),
            *chroot,
            *("--file", dockerfile, "--tag", name, "."),
        ],
        cwd=ROOT,
        check=True,
    )
    return name
