# What a guest can do, one line per attempt: "item<TAB>name<TAB>ALLOWED|DENIED<TAB>why" or "fact<TAB>name<TAB>value".
# perl-base is part of every Debian image and has syscall(), so no compiler and no binary of ours is needed.
# Where a call could change the host, its arguments are invalid on purpose: a call that reaches the kernel's checks fails
# with an error that differs from a refusal, and has no effect. Files of the host's kernel are opened, never written.
# usage: perl -e THIS TCP_PORT UDP_PORT ABSTRACT_NAME WORKSPACE
use strict; use warnings; no warnings 'portable';
my ($tcp, $udp, $abstract, $workspace) = @ARGV;
$| = 1;
my $arm = `uname -m` =~ /aarch64/;
# name => [x86_64, aarch64]; numbers from 424 on are the same on all architectures (syscalls(2))
my %nr = (
  chroot => [161, 51], mknodat => [259, 33], setpriority => [141, 140], setuid => [105, 146], fchownat => [260, 54],
  unshare => [272, 97], setns => [308, 268], mount => [165, 40], umount2 => [166, 39], pivot_root => [155, 41],
  open_by_handle_at => [304, 265], process_vm_readv => [310, 270], init_module => [175, 105],
  finit_module => [313, 273], delete_module => [176, 106], kexec_load => [246, 104], bpf => [321, 280],
  perf_event_open => [298, 241], userfaultfd => [323, 282], add_key => [248, 217], request_key => [249, 218],
  keyctl => [250, 219], settimeofday => [164, 170], clock_settime => [227, 112], sethostname => [170, 161],
  reboot => [169, 142], swapon => [167, 224], acct => [163, 89], quotactl => [179, 60], syslog => [103, 116],
  socket => [41, 198], connect => [42, 203], sendto => [44, 206], 
  fanotify_init => [300, 262], io_uring_setup => [425, 425], io_setup => [206, 0], fsopen => [430, 430], mount_setattr => [442, 442],
  open_tree => [428, 428], move_mount => [429, 429],
);
sub nr { my $pair = $nr{$_[0]}; return $arm ? $pair->[1] : $pair->[0] }
my %refusals = map { $_ => 1 } (1, 2, 6, 13, 16, 19, 30, 38, 93, 94, 97, 101, 111, 113);
sub say_item { my ($name, $ok, $why) = @_; $why =~ s/[\t\n]/ /g; print "item\t$name\t", ($ok ? "ALLOWED" : "DENIED"), "\t$why\n" }
sub fact { my ($name, $value) = @_; $value =~ s/[\t\n]/ /g; print "fact\t$name\t$value\n" }
# Call in a child: a call that works changes only the child.
sub call {
  my ($label, $name, @args) = @_;
  my $number = nr($name);
  pipe(my $r, my $w) or return;
  my $pid = fork(); defined $pid or return say_item($label, 0, "no fork");
  if (!$pid) { $! = 0; my $got = syscall($number, @args); syswrite $w, ($got == -1 ? $!+0 : 0); exit 0 }
  close $w; my $errno = <$r>; waitpid $pid, 0;
  $errno = -1 unless defined $errno && length $errno;   # killed by the filter
  $! = $errno > 0 ? $errno : 0;
  say_item($label, $errno >= 0 && !$refusals{$errno}, $errno < 0 ? "killed" : $errno ? "$!" : "done");
}
sub opens { my ($label, $path) = @_; my $ok = sysopen(my $f, $path, 1); say_item($label, $ok, $ok ? "opened for writing" : "$!") }
sub reads { my ($label, $path) = @_;
  my ($ok, $got) = (0, ""); if (open(my $f, "<", $path)) { $ok = (sysread($f, $got, 64) || 0) > 0 }
  say_item($label, $ok, $ok ? "readable" : "empty or closed") }
sub creates { my ($dir) = @_; my $path = "$dir/.attack-probe"; my $ok = open(my $f, ">", $path);
  say_item("create $dir", $ok, $ok ? "created" : "$!"); if ($ok) { close $f; unlink $path } }
sub status { open(my $f, "<", "/proc/self/status") or return ""; my %s = map { /^(\w+):\s*(.*)$/ ? ($1, $2) : () } <$f>; return \%s }

my $status = status();
# K03, K05
for my $set (qw(CapInh CapPrm CapEff CapBnd CapAmb)) { next unless exists $status->{$set};
  my $bits = hex($status->{$set}); fact($set, $status->{$set}); say_item($set, $bits != 0, $status->{$set}) if $set =~ /Eff|Prm|Bnd/ }
my $file = "/tmp/.attack-own"; { open(my $f, ">", $file) }
call("chown", "fchownat", -100, $file, 1, 1, 0);
call("setuid 0", "setuid", 0);
call("chroot", "chroot", "/tmp");
call("mknod", "mknodat", -100, "/tmp/.attack-node$$", 0020600, 261);
unlink "/tmp/.attack-node$$", $file;
call("nice -5", "setpriority", 0, 0, -5);
call("raw socket", "socket", 2, 3, 1);
say_item("uid 0", $> == 0 || $< == 0, "uid $<, euid $>");
say_item("gid 0", scalar(grep { $_ == 0 } split / /, "$( $)"), "groups $)");
# K04
say_item("may gain privileges", $status->{NoNewPrivs} == 0, "NoNewPrivs $status->{NoNewPrivs}") if defined $status->{NoNewPrivs};
{
  my $helper = -u "$workspace/helper" ? "$workspace/helper" : "";
  if (!$helper && $> == 0) { system("cp /usr/bin/id /tmp/.helper; chmod 4755 /tmp/.helper"); $helper = "/tmp/.helper" }
  my $seen = "no helper";
  if ($helper) {
    pipe(my $r, my $w); my $pid = fork();
    if (!$pid) { if ($> == 0) { $) = "64000 64000"; $( = 64000; $< = 64000; $> = 64000 } open(STDOUT, ">&", $w); exec $helper, "-u" or exit 1 }
    close $w; $seen = join "", <$r>; waitpid $pid, 0; $seen =~ s/\s//g;
  }
  say_item("setuid helper", $seen eq "0", "euid $seen");
}
# K06
call("unshare user", "unshare", 0x10000000); call("unshare mount", "unshare", 0x00020000);
call("unshare net", "unshare", 0x40000000); call("unshare pid", "unshare", 0x20000000);
# K07
call("mount tmpfs", "mount", "none", "/tmp", "tmpfs", 0, 0);
call("remount /", "mount", "none", "/", "none", 32 | 4096, 0);
call("umount", "umount2", 1, 0); call("pivot_root", "pivot_root", 1, 1); call("fsopen", "fsopen", 1, 0);
call("open_tree", "open_tree", -1, 1, 0x7fffffff); call("move_mount", "move_mount", -1, 1, -1, 1, 0x7fffffff);
call("setns", "setns", -1, 0); call("open_by_handle_at", "open_by_handle_at", -1, 1, 0);
call("process_vm_readv", "process_vm_readv", 0, 0, 0, 0, 0, 1);
call("init_module", "init_module", 1, 1, 1); call("finit_module", "finit_module", -1, 1, 0x7fffffff);
call("delete_module", "delete_module", 1, 0); call("kexec_load", "kexec_load", 0, 0, 0, 0x7fffffff);
call("bpf", "bpf", 9999, 0, 0); call("perf_event_open", "perf_event_open", 1, 0, -1, -1, 0);
call("userfaultfd", "userfaultfd", 0x7fffffff); call("add_key", "add_key", 1, 1, 1, 1, 0);
call("request_key", "request_key", 1, 1, 1, 0); call("keyctl", "keyctl", 9999);
call("settimeofday", "settimeofday", 1, 0); call("clock_settime", "clock_settime", 0, 1);
call("sethostname", "sethostname", 1, -1); call("reboot", "reboot", 1, 2, 3, 0);
call("swapon", "swapon", 1, 0); call("acct", "acct", 1); call("quotactl", "quotactl", 0x7fffffff, 1, 0, 0);
call("syslog", "syslog", 9999, 0, 0); call("fanotify_init", "fanotify_init", 0x7fffffff, 0);
# K08, K09, S203
call("io_uring", "io_uring_setup", 0, 0); call("kernel AIO", "io_setup", 0, 1);
call("AF_ALG", "socket", 38, 5, 0); call("AF_VSOCK", "socket", 40, 1, 0); call("AF_PACKET", "socket", 17, 3, 0);
call("AF_KEY", "socket", 15, 3, 2); call("AF_XDP", "socket", 44, 3, 0); call("netfilter", "socket", 16, 3, 12);
call("xfrm", "socket", 16, 3, 6); call("SCTP", "socket", 2, 1, 132); call("AF_TIPC", "socket", 30, 5, 0);
# K10
opens("core_pattern", "/proc/sys/kernel/core_pattern"); opens("modprobe", "/proc/sys/kernel/modprobe");
opens("sysrq-trigger", "/proc/sysrq-trigger"); opens("uevent_helper", "/sys/kernel/uevent_helper");
opens("overcommit", "/proc/sys/vm/overcommit_memory"); opens("binfmt_misc", "/proc/sys/fs/binfmt_misc/register");
reads("kcore", "/proc/kcore"); reads("keys", "/proc/keys"); reads("timer_list", "/proc/timer_list");
reads("interrupts", "/proc/interrupts"); reads("kmsg", "/dev/kmsg"); reads("mem", "/dev/mem");
reads("sched_debug", "/proc/sched_debug");
# K11
{ my $dir = "/tmp/.attack-cgroup"; mkdir $dir; my $done = "refused";
  for my $kind (["cgroup2", 0], ["cgroup", "memory"], ["cgroup", "pids"]) {
    my ($none, $type, $options, $pid) = ("none", @$kind, fork());
    if (!$pid) { my $got = syscall(nr("mount"), $none, $dir, $type, 0, $options);
      exit 1 if $got == -1; my $made = mkdir "$dir/attack-probe"; rmdir "$dir/attack-probe"; syscall(nr("umount2"), $dir, 2); exit($made ? 0 : 1) }
    waitpid $pid, 0; $done = $kind->[0] if $? == 0 }
  rmdir $dir; say_item("mount cgroup", $done ne "refused", $done);
  my $made = ""; for my $d (glob("/sys/fs/cgroup /sys/fs/cgroup/*")) { next unless -d $d; if (mkdir "$d/attack-probe") { rmdir "$d/attack-probe"; $made = $d } }
  say_item("make a cgroup", $made ne "", $made || "refused") }
# K02
for my $path ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock") {
  say_item("socket $path", -e $path, -e $path ? "there" : "absent") }
# K12, K13, K14
{ my @interfaces = do { open(my $f, "<", "/proc/net/dev"); map { /^\s*(\S+):/ ? $1 : () } <$f> };
  fact("interfaces", join ",", @interfaces); say_item("interfaces", scalar(grep { $_ ne "lo" } @interfaces), "@interfaces");
  my @routes = do { open(my $f, "<", "/proc/net/route") ; <$f> }; say_item("routes", @routes > 1, scalar(@routes) - 1 . " routes") }
sub inet { my ($ip, $port) = @_; return pack("S n C4 x8", 2, $port, split /\./, $ip) }
sub reach { my ($label, $ip, $port) = @_;   # does not wait: a route is enough; on loopback the answer comes at once
  my $s = syscall(nr("socket"), 2, $ip =~ /^127/ ? 1 : 1 | 2048, 0); my $to = inet($ip, $port); my $got = syscall(nr("connect"), $s, $to, length $to);
  my $e = $!+0; say_item($label, $got == 0 || $e == 115, $got == 0 ? "connected" : "$!") }
reach("host 127.0.0.1", "127.0.0.1", $tcp) if $tcp;
reach("internet", "8.8.8.8", 53); reach("metadata", "169.254.169.254", 80); reach("bridge", "172.17.0.1", 2375);
{ my $s = syscall(nr("socket"), 2, 2, 0); my $to = inet("127.0.0.1", $udp || 9); my $m = "exfiltrated"; syscall(nr("sendto"), $s, $m, length $m, 0, $to, length $to); }
{ my $s = syscall(nr("socket"), 1, 1, 0); my $to = pack("S a*", 1, "\0$abstract"); my $got = syscall(nr("connect"), $s, $to, length $to);
  say_item("abstract socket", $got == 0, $got == 0 ? "connected" : "$!") }
# K16
creates($_) for qw(/ /etc /usr /usr/bin /var /root /home /lib /opt /srv /mnt /run /dev);
# K17
{ open(my $f, "<", "/proc/self/mountinfo"); while (<$f>) { my @w = split; fact("mount", "$w[3] $w[4] $w[5]") } }
# K18
for my $where (["mask", "$workspace/.git"], ["deeper", "$workspace/deeper/.git"]) {
  my ($label, $path) = @$where; next unless -e $path;
  my $ok = open(my $f, ">>", $path); say_item("$label write", $ok, $ok ? "opened" : "$!");
  $ok = rename $path, "$path.moved"; say_item("$label rename", $ok, $ok ? "renamed" : "$!"); rename "$path.moved", $path;
  $ok = unlink $path; say_item("$label remove", $ok, $ok ? "removed" : "$!");
  $ok = symlink "decoy", $path; say_item("$label replace", $ok, $ok ? "replaced" : "$!") }
# L14: PID 1 is our supervisor; the same attempts at a process of the guest's own are their control
{ my $own = fork(); if (!$own) { sleep 60; exit }
  for my $of (["pid 1", 1], ["own", $own]) { my ($label, $pid) = @$of;
    my $ok = sysopen(my $f, "/proc/$pid/mem", 2); say_item("$label memory", $ok, $ok ? "opened for writing" : "$!");
    $ok = opendir(my $d, "/proc/$pid/fd"); say_item("$label descriptors", $ok, $ok ? "listed" : "$!");
    $ok = open(my $e, "<", "/proc/$pid/environ"); say_item("$label environment", $ok, $ok ? "opened" : "$!");
    $ok = readlink "/proc/$pid/exe"; say_item("$label program", $ok, $ok || "$!") }
  kill 9, $own; waitpid $own, 0 }
# K22, K23, K24, K25
{ my $hard = `ulimit -Hc; true`; $hard =~ s/\s//g; say_item("core dumps", $hard ne "0", "hard limit $hard") }
say_item("terminal", -t STDIN || -t STDOUT || -t STDERR, "a terminal");
fact("env", join ",", sort map { "$_=$ENV{$_}" } keys %ENV);
say_item("no filter", ($status->{Seccomp} // 0) == 0, "Seccomp " . ($status->{Seccomp} // "unknown"));
print "fact\tend\t1\n";
