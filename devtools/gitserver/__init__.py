"""A real git server in a container, over https and ssh, for the demo and the tests; and the ways it can fail."""

from devtools.gitserver.client import GitClient
from devtools.gitserver.faults import Answer
from devtools.gitserver.home import introduce
from devtools.gitserver.recorder import Recorder
from devtools.gitserver.server import GitServer, LogEntry
from devtools.gitserver.tunnel import Tunnel

__all__ = ["Answer", "GitClient", "GitServer", "LogEntry", "Recorder", "Tunnel", "introduce"]
