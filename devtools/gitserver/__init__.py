"""A real git server in a container, over https and ssh, for the demo and the tests."""

from devtools.gitserver.client import GitClient
from devtools.gitserver.server import GitServer, LogEntry

__all__ = ["GitClient", "GitServer", "LogEntry"]
