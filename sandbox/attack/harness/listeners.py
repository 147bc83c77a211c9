"""Listeners on the host that no guest may reach: TCP and UDP on loopback, and an abstract unix socket."""

from __future__ import annotations

import contextlib
import socket

WAIT_S = 5.0


class Listeners:
    """Listen until `close`. Connections stay in the kernel's accept queue; they get no answer."""

    def __init__(self, name: str) -> None:
        self.abstract = f"sandbox-attack-{name}"
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(f"\0{self.abstract}")
        self._unix.listen()
        for listener in (self._tcp, self._udp, self._unix):
            listener.setblocking(False)

    @property
    def tcp_port(self) -> int:
        """The port of the TCP listener."""
        return int(self._tcp.getsockname()[1])

    @property
    def udp_port(self) -> int:
        """The port of the UDP listener."""
        return int(self._udp.getsockname()[1])

    def pop_reached(self) -> list[str]:
        """The listeners that were reached since the last call."""
        reached = []
        for name, listener in (("TCP", self._tcp), ("abstract socket", self._unix)):
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    reached.append(name)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._udp.recv(100)
                reached.append("UDP")
        return reached

    def reach_all(self) -> list[str]:
        """Do what the probe does, as a process of this host. Returns the listeners that were reached."""
        self.pop_reached()
        socket.create_connection(("127.0.0.1", self.tcp_port), WAIT_S).close()
        with socket.socket(socket.AF_UNIX) as client, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
            client.connect(f"\0{self.abstract}")
            datagram.sendto(b"exfiltrated", ("127.0.0.1", self.udp_port))
        return self.pop_reached()

    def close(self) -> None:
        """Stop listening."""
        for listener in (self._tcp, self._udp, self._unix):
            listener.close()
