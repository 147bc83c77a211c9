"""The command with which a client starts this installation, from any directory and environment.

Theory. Clients start servers in the folder that the user has open: the untrusted repository. `python
-m` puts that folder first on the import path. So does an empty or relative element of `PYTHONPATH`, for console
scripts as well. A `click.py` or `sandbox/__main__.py` in the folder would then run on the host. `-I` ignores the
folder, the `PYTHON*` variables of the import path and the user's site-packages (not `PYTHONEXECUTABLE`, which no
client sets). An installation in the user's site-packages needs `-E -P`, which ignores the first two. One that only
its own script can find (wrapped by a package manager, or a zip file) gets the absolute path of the script, and values
for those variables that name no directory. Each command is tried before it is printed, in the environment that
clients leave: the TypeScript SDK keeps six variables (getDefaultEnvironment in its client/stdio.ts). If no command
works, no snippet would work: that is an error.

Such a client drops the variables that choose the home, the engine and the settings. They are written into the snippet,
except secrets.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox import __file__ as package
from sandbox.config import is_setting
from sandbox.credentials import TOKEN_VARIABLES
from sandbox.errors import ErrorCode, SandboxError
from sandbox.version import __version__

KEPT_BY_CLIENTS = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
_FLAGS = (("-I",), ("-E", "-P"))
_ISOLATION = {"PYTHONPATH": "", "PYTHONHOME": "", "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PLAIN_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DBUS_SESSION_BUS_ADDRESS", *_PROXIES)
_PATH_VARIABLES = (
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)
_SSH_AGENT = "SSH_AUTH_SOCK"
_SECRET = "it is a secret; store it with `sandbox credentials set`"  # noqa: S105 - about secrets
_PER_LOGIN = "it changes with each login; a key file does not: `sandbox credentials set --ssh-key`"
_PROBE = "import sandbox.cli.app; print(sandbox.__file__)"
_PROBE_S = 30.0


@dataclass(frozen=True)
class Launch:
    """What a client runs. `left_out`: environment variables it will lack, and why."""

    command: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)


def build_launch(home: Path | None, interpreter: str, script: str, environ: Mapping[str, str]) -> Launch:
    """How to start the server of `home` (None: the default home), with the settings of `environ`.

    `interpreter`, `script`: those of this process. Starts each once or twice. Raises: `invalid_input` when neither
    finds this installation without the working directory or Python's variables.
    """
    command, *arguments = find_command(interpreter, script, environ)
    words = ("--home", str(home), "mcp") if home else ("mcp",)
    env, left_out = split_environment(environ)
    isolation = {} if arguments else _ISOLATION
    return Launch(command, (*arguments, *words), {**env, **isolation}, left_out)


def find_command(interpreter: str, script: str, environ: Mapping[str, str]) -> list[str]:
    """The first command that starts this installation, and no other. A command of one word is a script."""
    reduced = {name: environ[name] for name in KEPT_BY_CLIENTS if name in environ}
    for flags in _FLAGS if interpreter else ():
        if _is_this_package(_output_of([interpreter, *flags, "-c", _PROBE], reduced)):
            return [interpreter, *flags, "-m", "sandbox"]
    path = Path(script).absolute()
    if path.is_file() and _output_of([str(path), "--version"], {**reduced, **_ISOLATION}).endswith(f" {__version__}"):
        return [str(path)]
    raise SandboxError(
        ErrorCode.INVALID_INPUT,
        "A client cannot start this sandbox: it is found only through the working directory or PYTHON* variables",
        details=f"Tried {interpreter} with {' and '.join(map(' '.join, _FLAGS))}, and {path}",
        hint="Install it, e.g. with `pipx install` or `uv tool install`, and run `sandbox mcp config` from there.",
    )


def _is_this_package(printed: str) -> bool:
    return bool(printed) and Path(printed).resolve() == Path(package or "").resolve()


def _output_of(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """What a command prints; '' if it fails."""
    try:
        ended = subprocess.run(  # noqa: S603 - this process's own interpreter or script
            argv, cwd="/", env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PROBE_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.decode(errors="replace").strip() if ended.returncode == 0 else ""


def split_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Variables for the snippet, and those left out of it with the reason. Pure."""
    env: dict[str, str] = {}
    left_out = {name: _SECRET for name in TOKEN_VARIABLES if environ.get(name)}
    for name, value in _relevant_variables(environ):
        if "@" in value and ("://" in value or name in _PROXIES):
            left_out[name] = "its value may hold a password or token"
        elif not value.isprintable():
            left_out[name] = "its value has characters that a configuration cannot hold"
        elif name == _SSH_AGENT and not value.startswith(f"{environ.get('XDG_RUNTIME_DIR') or None}/"):
            left_out[name] = _PER_LOGIN
        else:
            env[name] = str(Path(value).absolute()) if name in _PATH_VARIABLES else value
    return env, left_out


def _relevant_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(environ):
        if environ[name] and (name in (*_PLAIN_VARIABLES, *_PATH_VARIABLES, _SSH_AGENT) or is_setting(name)):
            yield name, environ[name]
