"""Words of shell scripts and what they mean for a check: data only."""

# fmt: off
COMPOUND = frozenset({
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select", "function",
    "{", "}", "[[", "!", "time",
})
"""Words of constructs that span commands."""

CHANGES_SHELL = frozenset({
    ".", "alias", "cd", "eval", "exec", "export", "pushd", "popd", "readonly", "return", "set", "shopt", "source",
    "trap", "ulimit", "umask",
})
"""Builtins that change the shell for the lines after them."""

SAYS_ONLY = frozenset({
    ":", "cat", "date", "echo", "env", "exit", "false", "head", "id", "ls", "printenv", "printf", "pwd", "sleep",
    "true", "uname", "which",
})
"""Commands without a result that matters to a check."""

NETWORK_TOOLS = frozenset({
    "apt", "apt-get", "aptitude", "apk", "aws", "az", "brew", "choco", "conda", "curl", "docker", "docker-compose",
    "dnf", "gcloud", "gem", "gh", "helm", "kubectl", "mamba", "nvm", "pacman", "pip", "pip3", "pipx", "podman",
    "pre-commit", "pyenv", "rsync", "rustup", "scp", "snap", "ssh", "svn", "tdnf", "terraform", "twine", "wget",
    "yum", "zypper",
})
"""Programs that fetch or send something."""

NETWORK_COMMANDS = {
    "bundle": {"install", "update"},
    "cargo": {"fetch", "install", "publish", "update"},
    "corepack": {"enable", "prepare"},
    "git": {"clone", "fetch", "pull", "push", "submodule"},
    "go": {"get", "install", "mod"},
    "hatch": {"publish"},
    "npm": {"ci", "i", "install", "publish"},
    "pdm": {"install", "publish", "sync"},
    "pnpm": {"add", "i", "install", "publish"},
    "poetry": {"add", "install", "publish"},
    "uv": {"add", "pip", "publish", "sync", "tool"},
    "yarn": {"", "add", "install"},
}
"""Subcommands that fetch or send something, by program."""

APT = frozenset({"apt", "apt-get", "aptitude"})
"""Debian's package managers."""

APT_VALUES = frozenset({"--config-file", "--option", "--target-release", "-c", "-o", "-t"})
"""Options of apt that take a value."""

SUDO_VALUES = frozenset({"--group", "--user", "-g", "-u"})
"""Options of sudo that take a value."""
# fmt: on
