"""Debian's names for Perl modules: `Foo::Bar` is in `libfoo-bar-perl` (Debian's Perl policy, 4.2). Pure.

A guess for advice: it holds where the distribution is named after the module. Distributions that projects use much and
that hold modules of other names are listed, as in bookworm. Where a guess is wrong, the build of the image names
similar packages.
"""

from __future__ import annotations

_DISTRIBUTIONS = {
    "CGI": "cgi-pm",
    "Catalyst": "catalyst",
    "DBD::SQLite": "dbd-sqlite3",
    "Date::Format": "timedate",
    "Date::Parse": "timedate",
    "HTML::Element": "html-tree",
    "HTML::Entities": "html-parser",
    "HTML::TreeBuilder": "html-tree",
    "HTTP::Headers": "http-message",
    "HTTP::Request": "http-message",
    "HTTP::Response": "http-message",
    "HTTP::Status": "http-message",
    "IO::Scalar": "io-stringy",
    "IO::Tty": "io-pty",
    "LWP": "www",
    "Locale::Country": "locale-codes",
    "MIME::Entity": "mime-tools",
    "MIME::Parser": "mime-tools",
    "Mail::Address": "mailtools",
    "Mail::Internet": "mailtools",
    "Mojo": "mojolicious",
    "Moose": "moose",
    "Plack": "plack",
    "Template": "template",
    "Test2": "test2-suite",
    "Test::LWP": "test-lwp-useragent",
    "Test::Mojo": "mojolicious",
    "Types::Common": "type-tiny",
    "Types::Standard": "type-tiny",
    "URI": "uri",
    "YAML::XS": "yaml-libyaml",
}
"""By the beginning of their modules' names."""

_OTHER_NAMES = {
    "Perl::Tidy": "perltidy",
    "Starlet": "starlet",
    "Starman": "starman",
    "Tk": "perl-tk",
    "Twiggy": "twiggy",
}
"""Packages that are not named after a module, by the beginning of their modules' names."""

_APART = frozenset(
    """
    catalyst-action-renderview catalyst-action-rest catalyst-authentication-credential-http
    catalyst-controller-actionrole catalyst-controller-formbuilder catalyst-controller-html-formfu catalyst-devel
    catalyst-dispatchtype-regex catalyst-log-log4perl catalyst-manual catalyst-model-adaptor catalyst-model-dbi
    catalyst-plugin-authentication catalyst-plugin-authorization-acl catalyst-plugin-authorization-roles
    catalyst-plugin-cache catalyst-plugin-configloader catalyst-plugin-fillinform catalyst-plugin-i18n
    catalyst-plugin-session catalyst-plugin-session-state-cookie catalyst-plugin-session-store-cache
    catalyst-plugin-session-store-file catalyst-plugin-smarturi catalyst-plugin-stacktrace
    catalyst-plugin-static-simple catalyst-plugin-subrequest catalyst-view-csv catalyst-view-email catalyst-view-gd
    catalyst-view-json catalyst-view-mason catalyst-view-tt cgi-ajax cgi-application cgi-application-dispatch
    cgi-compile cgi-emulate-psgi cgi-expand cgi-fast cgi-formbuilder cgi-psgi cgi-session cgi-simple cgi-ssi
    cgi-struct-xs cgi-test cgi-untaint html-element-extended html-element-library html-entities-numbered
    html-treebuilder-libxml html-treebuilder-xpath http-headers-actionpack http-headers-fast http-request-ascgi
    http-request-params http-response-encoding lwp-authen-negotiate lwp-authen-oauth lwp-authen-oauth2 lwp-authen-wsse
    lwp-mediatypes lwp-online lwp-protocol-http-socketunix lwp-protocol-https lwp-protocol-psgi lwp-protocol-socks
    lwp-useragent-chicaching lwp-useragent-determined lwp-useragent-progressbar mojo-ioloop-readwriteprocess mojo-jwt
    mojo-pg mojo-rabbitmq-client mojo-server-fastcgi mojo-sqlite moose-autobox plack-app-proxy
    plack-builder-conditionals plack-handler-anyevent-fcgi plack-handler-fcgi-ev plack-middleware-cache
    plack-middleware-crossorigin plack-middleware-csrfblock plack-middleware-debug plack-middleware-deflater
    plack-middleware-expires plack-middleware-file-sass plack-middleware-fixmissingbodyinredirect
    plack-middleware-header plack-middleware-logany plack-middleware-logerrors plack-middleware-logwarn
    plack-middleware-methodoverride plack-middleware-removeredundantbody plack-middleware-reverseproxy
    plack-middleware-session plack-middleware-status plack-middleware-test-stashwarnings plack-request-withencoding
    plack-test-agent plack-test-anyevent plack-test-externalserver template-alloy template-autofilter template-declare
    template-multilingual template-plugin-calendar-simple template-plugin-class template-plugin-comma
    template-plugin-cycle template-plugin-datetime template-plugin-datetime-format template-plugin-dbi
    template-plugin-digest-md5 template-plugin-gd template-plugin-gettext template-plugin-gravatar
    template-plugin-html-strip template-plugin-ipaddr template-plugin-javascript template-plugin-json-escape
    template-plugin-latex template-plugin-lingua-en-inflect template-plugin-number-format template-plugin-posix
    template-plugin-stash template-plugin-textile2 template-plugin-utf8decode template-plugin-xml template-plugin-yaml
    template-provider-encoding template-provider-fromdata template-stash-autoescaping template-timer template-tiny
    test2-harness test2-plugin-memusage test2-plugin-nowarnings test2-plugin-uuid test2-tools-command
    test2-tools-explain uri-cpan uri-db uri-encode uri-escape-xs uri-fetch uri-find uri-find-delimited uri-find-simple
    uri-fromhash uri-namespacemap uri-nested uri-normalize uri-query uri-smarturi uri-template uri-title uri-todisk
    uri-ws
    """.split()  # noqa: SIM905 -- one name a line would be two hundred lines
)
"""Packages of bookworm with names that begin like one of these distributions, and that are not part of it."""


def guess_package(module: str) -> str:
    """The Debian package that probably has a Perl module."""
    words = module.split("::")
    beginnings = ["::".join(words[:count]) for count in range(len(words), 0, -1)]
    plain = [_write_name(beginning) for beginning in beginnings]
    if other := next((_OTHER_NAMES[one] for one in beginnings if one in _OTHER_NAMES), ""):
        return other
    apart = next((name for name in plain if name in _APART), "")
    known = next((_DISTRIBUTIONS[one] for one in beginnings if one in _DISTRIBUTIONS), "")
    return f"lib{apart or known or plain[0]}-perl"


def _write_name(module: str) -> str:
    return module.replace("::", "-").lower().replace("_", "-")
