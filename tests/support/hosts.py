"""Hosts with addresses of their own, all on this machine."""

import contextlib
import ipaddress
import os
import shutil
import subprocess

# For tests of networks (RFC 2544): no other host has such an address.
_NETWORKS = ipaddress.ip_network("198.18.0.0/15").subnets(new_prefix=29)


@contextlib.contextmanager
def hosts(num_hosts: int):
    """Yields (words before a command that runs there, address) of each.

    They are network namespaces, joined by a bridge in the first to which this
    process has a cable, too. All of it ends with the namespaces. Where this
    process may not make namespaces, each host is this machine at 127.0.0.1.
    """
    names = [f"realm-{os.getpid()}-{n}" for n in range(num_hosts)]
    if os.getuid() or not shutil.which("ip") or _ip("netns add", names[0]):
        print("hosts: this machine's loopback")
        yield [((), "127.0.0.1")] * num_hosts
        return
    # Other test runs have other process ids.
    network = list(_NETWORKS)[os.getpid() % 2**14]
    ours, *addresses = map(str, list(network.hosts())[: num_hosts + 1])
    print(f"hosts: network namespaces of {network}: {names}")
    with contextlib.ExitStack() as stack:
        stack.callback(_do, "netns del", names[0])
        for name in names[1:]:
            _do("netns add", name)
            stack.callback(_do, "netns del", name)
        bridge = ("-n", names[0])
        _do(*bridge, "link add bridge type bridge")
        _use(bridge, "bridge", addresses[0])
        cables = [("", os.getpid(), f"realm{os.getpid()}", ours)]
        cables += [
            (f"-n {name}", name, "cable", address)
            for name, address in zip(names[1:], addresses[1:], strict=True)
        ]
        for n, (host, place, device, address) in enumerate(cables):
            peer = f"peer name {device} netns {place}"
            _do(*bridge, f"link add port{n} type veth", peer)
            _do(*bridge, f"link set port{n} master bridge up")
            _use((host,), device, address)
        yield [
            (("ip", "netns", "exec", name), address)
            for name, address in zip(names, addresses, strict=True)
        ]


def _use(host, device, address):
    _do(*host, f"address add {address}/29 dev {device}")
    _do(*host, f"link set {device} up")
    if any(host):
        _do(*host, "link set lo up")


def _ip(*words):
    return subprocess.run(["ip", *" ".join(words).split()]).returncode


def _do(*words):
    assert not _ip(*words), words
