"""Debian's names for Perl modules: `Foo::Bar` is in `libfoo-bar-perl` (Debian's Perl policy, 4.2). Pure.

A guess for advice: it holds where the distribution is named after the module. Distributions that projects use much and
that hold modules of other names are listed. Where a guess is wrong, the build of the image names similar packages.
"""

from __future__ import annotations

_DISTRIBUTIONS = {
    "HTML::Entities": "html-parser",
    "HTTP::Headers": "http-message",
    "HTTP::Request": "http-message",
    "HTTP::Response": "http-message",
    "LWP": "www",
    "Mojo": "mojolicious",
    "Moose": "moose",
    "Plack": "plack",
    "Template": "template",
    "Test::LWP": "test-lwp-useragent",
    "URI": "uri",
    "YAML::XS": "yaml-libyaml",
}
"""By the beginning of their modules' names."""


def guess_package(module: str) -> str:
    """The Debian package that probably has a Perl module."""
    words = module.split("::")
    beginnings = ("::".join(words[:count]) for count in range(len(words), 0, -1))
    known = next((name for beginning in beginnings if (name := _DISTRIBUTIONS.get(beginning))), "")
    name = known or "-".join(words).lower().replace("_", "-")
    return f"lib{name}-perl"
