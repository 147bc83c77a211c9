"""Use-cases: what the rules in force say of a change, a URL, a tool or a check, and how they differ from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sandbox.config import find_resources
from sandbox.edits.unified_diff import PatchSection, parse_patch
from sandbox.errors import SandboxError
from sandbox.models import PolicyAnswer, PolicyDifference, PolicyRule, Risk
from sandbox.policy.approvals import Decision
from sandbox.policy.commit import AddedFile
from sandbox.policy.writes import find_flags, parse_writable_path
from sandbox.store.home import Home
from sandbox.store.records import not_found_error
from sandbox.workbench.controller.rules import list_rules
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.profile_checks import list_checks

_OUTCOMES = {Decision.ALLOW: "allowed", Decision.ASK: "asked", Decision.DENY: "refused"}


def check_patch(services: Services, patch: bytes, repo_id: str) -> tuple[PolicyAnswer, ...]:
    """What an edit with this unified diff would meet, by path. Raises: `patch_rejected` for text that is no patch."""
    found = list[PolicyAnswer]()
    for section in parse_patch(patch):
        old, new = _names_of(section)
        for path in dict.fromkeys(name for name in (old, new) if name is not None):
            found += _check_path(services, path, repo_id, section, added=path == new != old)
    return tuple(found)


def _names_of(section: PatchSection) -> tuple[str | None, str | None]:
    """The file before and after, without the prefixes `a/` and `b/`; None: there is none on that side. A patch is read
    as git writes it; an edit also compares names with the files that are there.
    """
    moved = [section.extended.get(f"{kind} {side}") for side in ("from", "to") for kind in ("rename", "copy")]
    names = [text for text in moved if text is not None]
    if len(names) == 2:
        return _as_text(names[0]), _as_text(names[1])
    if section.old is None and section.new is None:
        middle = (section.git or b"").rpartition(b" b/")
        return _as_text(middle[2]), _as_text(middle[2])
    return _strip(section.old, b"a/"), _strip(section.new, b"b/")


def _strip(text: bytes | None, prefix: bytes) -> str | None:
    name = (text or b"/dev/null").partition(b"\t")[0].strip(b'"')
    return None if name == b"/dev/null" else _as_text(name.removeprefix(prefix))


def _as_text(name: bytes) -> str:
    return name.decode("utf-8", errors="replace")[:4096]


def check_paths(services: Services, paths: Sequence[str], repo_id: str) -> tuple[PolicyAnswer, ...]:
    """What writing these paths would meet; a path is taken as a new file."""
    section = PatchSection(0)
    return tuple(answer for path in paths for answer in _check_path(services, path, repo_id, section, added=True))


def _check_path(
    services: Services, path: str, repo_id: str, section: PatchSection, added: bool
) -> Iterator[PolicyAnswer]:
    policies, folder = services.policies, services.home.root / "policies"
    source = _existing(folder / "paths.toml")
    try:
        parsed = parse_writable_path(path, policies.paths, repo_id)
    except SandboxError as error:
        yield PolicyAnswer(subject=path, outcome="refused", rule="paths", why=f"{error.brief}", source=source)
        return
    flags = find_flags(parsed, policies.paths, repo_id)
    for flag in flags:
        why = next((rule.why for rule in policies.paths.rules if rule.name == flag), "")
        yield PolicyAnswer(subject=path, outcome="flagged", rule=f"rule.{flag}.flag", why=why, source=source)
    content = b"".join(line for hunk in section.hunks for line in hunk.new)
    new = AddedFile(parsed, len(content), content[:64])
    suspicion = policies.commits.find_suspicion(new, services.settings.commit.max_file_bytes) if added else None
    if suspicion is not None:
        why = f"{suspicion}: a commit refuses it without --allow"
        yield PolicyAnswer(
            subject=path, outcome="refused", rule="commit", why=why, source=_existing(folder / "commit.toml")
        )
    elif not flags:
        yield PolicyAnswer(subject=path, outcome="allowed", rule="no rule covers it")


def _existing(operator_file: Path) -> str:
    return str(operator_file) if operator_file.exists() else str(find_resources("policies") / operator_file.name)


def check_url(services: Services, url: str) -> PolicyAnswer:
    """Whether a URL may be a remote."""
    try:
        remote = services.remotes.parse(url)
    except SandboxError as error:
        return PolicyAnswer(subject=url[:500], outcome="refused", rule="remotes", why=f"{error.brief}. {error.hint}")
    proxy = services.settings.remotes.proxy_of(remote.hostname)
    why = f"{remote.host.value} over {remote.protocol}" + (f", by the proxy {proxy}" if proxy else "")
    return PolicyAnswer(subject=remote.url, outcome="allowed", rule="remotes", why=why)


def check_tool(services: Services, tool: str, risk: Risk) -> PolicyAnswer:
    """What an agent's call of a tool would meet, as far as that does not depend on its arguments."""
    policy = services.policies.approvals
    decision, by_diff = policy.decide(tool, risk), policy.find_diff_rule(tool)
    named = tool in policy.tools
    rule = f"tools.{tool}" if named else f"risk.{risk.value}"
    why = "the policy names this tool" if named else f"its risk is {risk.value}"
    if decision is Decision.ASK and by_diff is not None and policy.tools.get(tool) is not Decision.ASK:
        rule = "when"
        why = f"asked about a change with one of the flags {', '.join(sorted(by_diff.rules))}" + (
            ", and about a tree that is not verified" if by_diff.verified else ""
        )
    source = _existing(services.home.root / "policies" / "approvals.toml")
    outcome = _OUTCOMES[decision]
    return PolicyAnswer.model_validate(
        {"subject": tool, "outcome": outcome, "rule": rule, "why": why, "source": source}
    )


def check_check(services: Services, owner_id: str, check_id: str) -> tuple[PolicyAnswer, ...]:
    """What a check of a task or repository would meet: each limit that it may not have. Raises: `not_found`."""
    known = {check.id: check for check in list_checks(services, owner_id)}
    if check_id not in known:
        raise not_found_error("check", check_id, known, f"`sandbox check list {owner_id}` shows all.")
    limits, ceiling = known[check_id].limits.model_dump(), services.policies.container.container.ceiling.model_dump()
    source = _existing(services.home.root / "policies" / "container.toml")
    above = tuple(
        PolicyAnswer(
            subject=f"{check_id}: {name}",
            outcome="refused",
            rule=f"ceiling.{name}",
            why=f"it asks for {value}, the ceiling is {ceiling[name]}",
            source=source,
        )
        for name, value in limits.items()
        if value > ceiling[name]
    )
    runs = " ".join(known[check_id].argv)[:200]
    fine = PolicyAnswer(subject=check_id, outcome="allowed", rule="ceiling", why=f"runs `{runs}` without network")
    return above or (fine,)


def diff_rules(services: Services, other_home: Path | None) -> tuple[PolicyDifference, ...]:
    """The rules in force that are not as shipped, or not as in another home, which is only read.

    Raises: the policy's error for a file of the other home that is invalid.
    """
    place = Home(other_home) if other_home is not None else Home(services.home.root / "no-such-home")
    other = Services(place, {}, {}, services.allow_file, services.surface)
    before, now = _by_key(list_rules(other, None)), _by_key(list_rules(services, None))
    found = []
    for policy, key in sorted(before.keys() | now.keys()):
        old, new = before.get((policy, key)), now.get((policy, key))
        if (old and old[0]) != (new and new[0]):
            source = new[1] if new and new[1] else old[1] if old else ""
            difference = PolicyDifference(
                policy=policy, key=key, before=old and old[0], now=new and new[0], source=source
            )
            found.append(difference)
    return tuple(found)


def _by_key(rules: Sequence[PolicyRule]) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Value and source by policy and key; rules of a list, such as names of files, have one key and many values."""
    values: dict[tuple[str, str], tuple[list[str], str]] = {}
    for rule in rules:
        text = ", ".join(rule.value) if isinstance(rule.value, tuple) else str(rule.value)
        known, source = values.get((rule.policy, rule.key), ([], ""))
        own = rule.source if rule.origin != "built-in" else ""
        values[(rule.policy, rule.key)] = ([*known, text], own or source)
    return {key: (", ".join(texts), source) for key, (texts, source) in values.items()}
