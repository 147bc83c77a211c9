"""https or ssh: in which order the two protocols of a forge are tried. Pure."""

from __future__ import annotations

from sandbox.remotes import Remote


def order_routes(remote: Remote, other: Remote, *, key: bool, agent: bool, secret: bool) -> list[Remote]:
    """The remote as it was written and over the other protocol, as far as they are worth a try, the best one first.

    `key`: an ssh key is stored for the host; `agent`: an ssh agent runs; `secret`: there is a token for https. A key or
    token for the host goes before what was written. An agent does not: it may hold no key for this host, and a public
    repository needs none.
    """
    is_ssh = remote.protocol == "ssh"
    written, swapped = (key, secret) if is_ssh else (secret, key)
    if swapped and not written and not (is_ssh and agent):
        return [other, remote]
    if swapped or (agent and not is_ssh):
        return [remote, other]
    return [remote]
