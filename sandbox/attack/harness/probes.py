"""The programs of section L: guests that fork, use up memory, fill disks, flood, persist or lie. Pure."""

from __future__ import annotations

import platform

from sandbox.attack.harness.guests import ProbeCheck, small_limits

TMP = "/tmp"  # noqa: S108 - the guest's own tmpfs
FORKS = 'my $n = 0; for (1..400) { my $p = fork() // last; if (!$p) { sleep 60; exit } $n++ } print "$n\n"'
EATS = "perl -e 'my $x; vec($x, ({} << 20) - 1, 8) = 1; print length($x), qq(\\n)'; exit 0"
OPENS = 'my @f; for (1..1000) { open(my $f, "<", "/dev/null") or last; push @f, $f } print scalar(@f), "\n"'
FILLS = "head -c 33554432 /dev/zero >{0}; wc -c <{0}; rm -f {0}"
SPREADS = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do head -c 8388608 /dev/zero >{0}/part$i; done; du -s {0} | cut -f 1"
SCATTERS = 'for (1..6000) {{ open(my $f, ">", "{0}/part$_") or last }} print "$_\n" for scalar(() = glob("{0}/part*"))'
FLOODS = "head -c 4194304 /dev/zero | tr '\\0' 'a'; head -c 4194304 /dev/zero >&2"
STUBBORN = "trap '' TERM INT HUP QUIT ALRM USR1 USR2; echo set; while :; do sleep 1; done"
SURVIVED = (
    "sh -c 'trap \"\" TERM; echo set >/tmp/set; while :; do sleep 1; done' & p=$!;"
    "until [ -s /tmp/set ]; do sleep 0.05; done; kill -TERM $p; sleep 0.3; kill -0 $p && echo survived; kill -9 $p"
)
STAYS = (
    "for i in 1 2 3; do setsid sh -c 'while :; do echo x >>{0}/orphan; sleep 0.05; done' >/dev/null 2>&1 </dev/null &"
    " done; until [ -s {0}/orphan ]; do sleep 0.05; done"
)
COMES_BACK = STAYS.format(TMP) + "; rm /tmp/orphan; until [ -s /tmp/orphan ]; do sleep 0.05; done; echo back"
LIES = (
    "f='D\\0\\0\\0\\100aaaaaaaaaaaaaaaa\\0\\0\\0\\0\\0\\0\\0\\4'; printf \"$f\";"
    'for t in /proc/1/fd/0 /proc/1/fd/1 /proc/1/fd/2 /proc/1/mem; do printf "$f" >$t; done 2>/dev/null;'
    'echo \'{"verdict": "passed", "exit_code": 0}\'; echo \'exit code 0\'; echo PASSED; exit 3'
)
OPENS_INOTIFY = {
    machine: f'my $n = 0; while (syscall({number}, 0) >= 0) {{ $n++ }} $| = 1; print "$n opened\\n"; exit unless @ARGV;'
    'open(my $f, ">", "$ARGV[0]/full"); for (1..500) { last if -e "$ARGV[0]/stop"; select undef, undef, undef, 0.05 }'
    for machine, number in (("x86_64", 294), ("aarch64", 26))
}
"""Opens as many inotify instances as the kernel allows; with a directory, it holds them until the host says stop."""
MOST_INSTANCES = 1000  # a probe opens them within the usual limit of open files
STORES = (
    "count() { sed 1d /proc/sysvipc/shm | wc -l; }; count;"
    "perl -e 'my $id = shmget(77, 8 << 20, 01666) // die $!; shmwrite($id, q(x), 0, 1) or die $!; print qq(stored\n)';"
    "count"
)
BUFFERED_MIB = 256
BUFFERS = (
    f"use Socket; my ($most, $n, @k) = ({BUFFERED_MIB} << 20, 0); socket(my $l, PF_INET, SOCK_STREAM, 0) or die $!;"
    "setsockopt($l, SOL_SOCKET, SO_RCVBUF, 4 << 20); bind($l, sockaddr_in(0, INADDR_LOOPBACK)) or die $!;"
    "listen($l, 4096); my ($to, $x) = (getsockname($l), qq(x) x 65536);"
    "while ($n < $most && @k < 200) { socket(my $c, PF_INET, SOCK_STREAM, 0) or last; connect($c, $to) or last;"
    "fcntl($c, 4, 2048); push @k, $c; while ($n < $most && defined(my $d = syswrite($c, $x))) { $n += $d } }"
    '$| = 1; print $n >> 20, "\n"; '
)
"""Sends data to itself in connections that it does not accept, and prints how many MiB."""
PTYS = 300
OPENS_PTYS = f'my @f; while (@f < {PTYS} && sysopen(my $f, "/dev/ptmx", 2)) {{ push @f, $f }} print scalar(@f), qq(\n)'
"""Opens pseudo terminals, and prints how many."""
HIDES = (
    'my ($n, $left, @f) = (0, 0); for (1..12) {{ open(my $f, ">", "{0}/h") or last; unlink "{0}/h"; push @f, $f;'
    "binmode $f; last if (syswrite($f, qq(x) x (8 << 20)) // 0) < 8 << 20; $n++ }}"
    '$left++ for glob "{0}/h*"; $| = 1; print "$n $left\n"; '
)
"""Writes 96 MiB to files that it deletes and keeps open, and prints how many of 12 were written, and still named."""
PLANTS = (
    "for i in 1 2; do sh -c 'while :; do echo x >{0}/planted; sleep 0.05; done' >/dev/null 2>&1 </dev/null & done;"
    " until [ -s {0}/planted ]; do sleep 0.05; done; ls {0}"
)
"""Leaves a report and processes that go on writing it, and prints the names of the reports that it sees."""
SEES = "sleep 1; ls {0}"
_LEVELS = 300_000
NESTS = f"my $n = {_LEVELS}; print qq(<testsuite>), qq(<a>) x $n, qq(</a>) x $n, qq(</testsuite>)"


def nested_report() -> bytes:
    """What the probe `reports` writes."""
    return b"<testsuite>" + b"<a>" * _LEVELS + b"</a>" * _LEVELS + b"</testsuite>"


MAX_MIB = 768  # the most memory that is requested of a soft container


def memory_script(runtime: str) -> str:
    """A shell script that exits 0 after a child requested more memory than its limit."""
    return EATS.format(min(2 * small_limits(runtime)[0], MAX_MIB))


def probes(runtime: str) -> tuple[ProbeCheck, ...]:
    """The probes; each is a separate check with small limits."""
    return (
        ProbeCheck("forks", ("perl", "-e", FORKS)),
        ProbeCheck("eats", ("sh", "-c", memory_script(runtime))),
        ProbeCheck("opens", ("perl", "-e", OPENS)),
        ProbeCheck("fills-tmp", ("sh", "-c", FILLS.format(f"{TMP}/big"))),
        ProbeCheck("fills-file", ("sh", "-c", FILLS.format("/workspace/big"))),
        ProbeCheck("spreads", ("sh", "-c", SPREADS.format("/workspace") + "; sleep 170"), timeout_s=170.0),
        ProbeCheck("scatters", ("perl", "-e", SCATTERS.format("/workspace") + "; sleep 170"), timeout_s=170.0),
        ProbeCheck("floods", ("sh", "-c", FLOODS)),
        ProbeCheck("stubborn", ("sh", "-c", STUBBORN), timeout_s=2.0),
        ProbeCheck("stays", ("sh", "-c", STAYS.format("/workspace"))),
        ProbeCheck("lies", ("sh", "-c", LIES)),
        ProbeCheck("stores", ("sh", "-c", STORES)),
        ProbeCheck("hides", ("perl", "-e", HIDES.format("/workspace") + "sleep 170"), timeout_s=170.0),
        ProbeCheck("buffers", ("perl", "-e", BUFFERS + "sleep 10")),
        ProbeCheck("opens-ptys", ("perl", "-e", OPENS_PTYS), open_files=4096),
        ProbeCheck("plants", ("sh", "-c", PLANTS.format("/report"))),
        ProbeCheck("sees", ("sh", "-c", SEES.format("/report"))),
        ProbeCheck("reports", ("sh", "-c", f"perl -e '{NESTS}' >/report/a.xml")),
        *(
            ProbeCheck(name, ("perl", "-e", OPENS_INOTIFY.get(platform.machine(), "exit 1"), *folder), open_files=4096)
            for name, folder in (("holds-instances", ("/workspace",)), ("opens-instances", ()))
        ),
    )
