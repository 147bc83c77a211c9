from __future__ import annotations

import pytest

from sandbox.checks.perl_packages import guess_package


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("Foo::Bar_Baz", "libfoo-bar-baz-perl"),
        ("List::MoreUtils::XS", "liblist-moreutils-xs-perl"),
        ("LWP::UserAgent", "libwww-perl"),
        ("LWP::Protocol::https", "liblwp-protocol-https-perl"),
        ("URI::Escape", "liburi-perl"),
        ("URI::Find", "liburi-find-perl"),
        ("Plack::Middleware::Static", "libplack-perl"),
        ("Plack::Middleware::Debug::Panel", "libplack-middleware-debug-perl"),
        ("Types::Standard", "libtype-tiny-perl"),
        ("Types::URI", "libtypes-uri-perl"),
        ("DBD::SQLite::Constants", "libdbd-sqlite3-perl"),
        ("CGI", "libcgi-pm-perl"),
        ("Tk::Widget", "perl-tk"),
        ("Starman", "starman"),
        ("TkX", "libtkx-perl"),
    ],
)
def test_debian_has_a_module_in_the_package_of_its_distribution(module: str, package: str) -> None:
    assert guess_package(module) == package
