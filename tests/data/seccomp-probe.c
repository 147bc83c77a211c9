/* Static probe for tests/docker/test_hardening.py.
 *
 *   probe calls       one line "<name> <errno>" a system call; 0 is success
 *   probe forks N     tries N children that stay; prints how many there were
 *   probe int80       a 32-bit call in a child; prints "exit", "signal <n>", or "none" without such calls
 *
 * Arguments are invalid on purpose: a call that reaches the kernel fails with anything but EPERM and changes nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BAD ((void *)1)
#define NONE ((void *)0)

static void show(const char *name, long result) {
    printf("%s %d\n", name, result == -1 ? errno : 0);
    fflush(stdout);
}

#define CALL(name, number, ...) (errno = 0, show(name, syscall(number, ##__VA_ARGS__)))
#define SOCKET(name, family, type, protocol) (errno = 0, show(name, socket(family, type, protocol)))

static void denied(void) {
    static int zero[1]; /* struct sched_param */
    CALL("io_uring_setup", 425, 0, NONE);
    CALL("io_uring_enter", 426, -1, 0, 0, 0, NONE, 0);
    CALL("io_uring_register", 427, -1, 0, NONE, 0);
    CALL("keyctl", SYS_keyctl, 9999);
    CALL("add_key", SYS_add_key, BAD, BAD, BAD, 1, 0);
    CALL("request_key", SYS_request_key, BAD, BAD, BAD, 0);
    CALL("bpf", SYS_bpf, 9999, NONE, 0);
    CALL("perf_event_open", SYS_perf_event_open, BAD, 0, -1, -1, 0);
    CALL("userfaultfd", SYS_userfaultfd, 0x7fffffff);
    CALL("mount", SYS_mount, BAD, BAD, BAD, 0, NONE);
    CALL("umount2", SYS_umount2, BAD, 0);
    CALL("open_tree", 428, -1, BAD, 0x7fffffff);
    CALL("move_mount", 429, -1, BAD, -1, BAD, 0x7fffffff);
    CALL("fsopen", 430, BAD, 0);
    CALL("fsconfig", 431, -1, 9999, BAD, BAD, 0);
    CALL("fsmount", 432, -1, 0, 0);
    CALL("fspick", 433, -1, BAD, 0);
    CALL("mount_setattr", 442, -1, BAD, 0x7fffffff, NONE, 0);
    CALL("pivot_root", SYS_pivot_root, BAD, BAD);
    CALL("chroot", SYS_chroot, BAD);
    CALL("setns", SYS_setns, -1, 0);
    CALL("unshare", SYS_unshare, 0x1);
    CALL("clone(CLONE_NEWNS)", SYS_clone, 0x20000 | 0x200, NONE, NONE, NONE, NONE);
    CALL("clone(CLONE_NEWUSER)", SYS_clone, 0x10000000 | 0x200, NONE, NONE, NONE, NONE);
    CALL("open_by_handle_at", SYS_open_by_handle_at, -1, BAD, 0);
    CALL("kexec_load", SYS_kexec_load, 0, 0, NONE, 0x7fffffff);
    CALL("init_module", SYS_init_module, BAD, 1, BAD);
    CALL("finit_module", SYS_finit_module, -1, BAD, 0x7fffffff);
    CALL("delete_module", SYS_delete_module, BAD, 0);
    CALL("reboot", SYS_reboot, 1, 2, 3, NONE);
    CALL("swapon", SYS_swapon, BAD, 0);
    CALL("swapoff", SYS_swapoff, BAD);
    CALL("settimeofday", SYS_settimeofday, BAD, NONE);
    CALL("clock_settime", SYS_clock_settime, 0, BAD);
    CALL("clock_adjtime", SYS_clock_adjtime, 0, BAD);
    CALL("adjtimex", SYS_adjtimex, BAD);
    CALL("sethostname", SYS_sethostname, BAD, -1);
    CALL("setdomainname", SYS_setdomainname, BAD, -1);
    CALL("process_vm_readv", SYS_process_vm_readv, 0, NONE, 0, NONE, 0, 1);
    CALL("process_vm_writev", SYS_process_vm_writev, 0, NONE, 0, NONE, 0, 1);
    CALL("kcmp", SYS_kcmp, getpid(), getpid(), 9999, 0, 0);
    CALL("pidfd_getfd", 438, -1, -1, 0);
    CALL("quotactl", SYS_quotactl, 0x7fffffff, BAD, 0, NONE);
    CALL("acct", SYS_acct, BAD);
    CALL("fanotify_init", SYS_fanotify_init, 0x7fffffff, 0);
    CALL("mbind", SYS_mbind, 1, 1, 9999, NONE, 0, 0);
    CALL("migrate_pages", SYS_migrate_pages, 0, 1, BAD, BAD);
    CALL("move_pages", SYS_move_pages, 0, 1, BAD, BAD, BAD, 0);
    CALL("vmsplice", SYS_vmsplice, -1, NONE, 0, 0);
    CALL("syslog", SYS_syslog, 9999, NONE, 0);
    CALL("personality(ADDR_NO_RANDOMIZE)", SYS_personality, 0x0040000);
    CALL("personality(READ_IMPLIES_EXEC)", SYS_personality, 0x0400000);
    /* Of somebody else; who is not there: ESRCH from the kernel. The upper half of an argument is not the kernel's. */
    CALL("sched_setscheduler(SCHED_IDLE)", SYS_sched_setscheduler, 0x7ffffff0, 5, zero);
    CALL("sched_setscheduler(SCHED_BATCH)", SYS_sched_setscheduler, 0x7ffffff0, 3, zero);
    CALL("sched_setscheduler(SCHED_FIFO)", SYS_sched_setscheduler, 0x7ffffff0, 1, zero);
    CALL("sched_setscheduler(high SCHED_IDLE)", SYS_sched_setscheduler, 0x7ffffff0, 0x100000005, zero);
    CALL("sched_setattr", SYS_sched_setattr, 0x7ffffff0, BAD, 0);
    CALL("setpriority(other)", SYS_setpriority, 0, 0x7ffffff0, 19);
    CALL("setpriority(high other)", SYS_setpriority, 0, 0x17ffffff0, 19);
    CALL("setpriority(other group)", SYS_setpriority, 1, 0x7ffffff0, 19);
    CALL("setpriority(user)", SYS_setpriority, 2, 0x7ffffff0, 19);
    CALL("ioprio_set(other)", SYS_ioprio_set, 1, 0x7ffffff0, 3 << 13);
    CALL("ioprio_set(user)", SYS_ioprio_set, 3, 0x7ffffff0, 3 << 13);
    CALL("setsockopt(SO_ATTACH_FILTER)", SYS_setsockopt, -1, 1, 26, NONE, 0);
    CALL("setsockopt(high SO_ATTACH_FILTER)", SYS_setsockopt, -1, 0x100000001, 0x10000001a, NONE, 0);
    CALL("setsockopt(SO_ATTACH_REUSEPORT_CBPF)", SYS_setsockopt, -1, 1, 51, NONE, 0);
    CALL("setsockopt(TCP_MD5SIG)", SYS_setsockopt, -1, 6, 14, NONE, 0);
    CALL("setsockopt(TCP_MD5SIG_EXT)", SYS_setsockopt, -1, 6, 32, NONE, 0);
    CALL("fcntl(F_OFD_SETLK)", SYS_fcntl, -1, 37, NONE);
    CALL("fcntl(high F_OFD_SETLKW)", SYS_fcntl, -1, 0x100000026, NONE);
    CALL("fcntl(F_SETLK)", SYS_fcntl, -1, 6, NONE);
    CALL("fcntl(F_DUPFD_CLOEXEC)", SYS_fcntl, -1, 1030, 0);
    CALL("ioctl(FS_IOC_RESVSP)", SYS_ioctl, -1, 0x40305828, NONE);
    CALL("ioctl(FS_IOC_RESVSP64)", SYS_ioctl, -1, 0x4030582a, NONE);
    CALL("ioctl(FS_IOC_FSSETXATTR)", SYS_ioctl, -1, 0x401c5820, NONE);
    CALL("ioctl(FS_IOC_ZERO_RANGE)", SYS_ioctl, -1, 0x40305839, NONE);
    CALL("ioctl(high FS_IOC_RESVSP64)", SYS_ioctl, -1, 0x14030582aUL, NONE);
    SOCKET("socket(AF_ALG)", 38, SOCK_SEQPACKET, 0);
    SOCKET("socket(AF_VSOCK)", 40, SOCK_STREAM, 0);
    SOCKET("socket(AF_PACKET)", 17, SOCK_RAW, 0);
    SOCKET("socket(AF_KEY)", 15, SOCK_RAW, 2);
    SOCKET("socket(AF_RDS)", 21, SOCK_SEQPACKET, 0);
    SOCKET("socket(AF_TIPC)", 30, SOCK_SEQPACKET, 0);
    SOCKET("socket(AF_BLUETOOTH)", 31, SOCK_RAW, 1);
    SOCKET("socket(AF_XDP)", 44, SOCK_RAW, 0);
    SOCKET("socket(AF_INET, SOCK_RAW)", 2, SOCK_RAW, 1);
    SOCKET("socket(AF_INET, SCTP)", 2, SOCK_STREAM, 132);
    SOCKET("socket(AF_INET, MPTCP)", 2, SOCK_STREAM, 262);
    SOCKET("socket(AF_NETLINK, NETFILTER)", 16, SOCK_RAW, 12);
    SOCKET("socket(AF_NETLINK, XFRM)", 16, SOCK_RAW, 6);
    SOCKET("socket(AF_NETLINK, GENERIC)", 16, SOCK_RAW, 16);
}

static void allowed(void) {
    static int zero[1];
    int pair[2];
    SOCKET("socket(AF_UNIX)", 1, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SOCKET("socket(TCP)", 2, SOCK_STREAM | SOCK_NONBLOCK, 6);
    SOCKET("socket(UDP)", 2, SOCK_DGRAM, 17);
    SOCKET("socket(TCP6)", 10, SOCK_STREAM, 0);
    SOCKET("socket(AF_NETLINK, ROUTE)", 16, SOCK_RAW | SOCK_CLOEXEC, 0);
    errno = 0, show("socketpair(AF_UNIX)", socketpair(1, SOCK_STREAM, 0, pair));
    CALL("memfd_create", SYS_memfd_create, "x", 0);
    CALL("openat2", 437, -100, BAD, NONE, 0);
    CALL("statx", SYS_statx, -1, BAD, 0, 0, NONE);
    CALL("faccessat2", 439, -1, BAD, 0, 0);
    CALL("close_range", 436, 1000, 1001, 0);
    CALL("fallocate(hole)", SYS_fallocate, -1, 3, 0, 1);
    CALL("ioctl(FIONREAD)", SYS_ioctl, -1, 0x541b, NONE);
    CALL("copy_file_range", SYS_copy_file_range, -1, NONE, -1, NONE, 1, 0);
    CALL("epoll_create1", SYS_epoll_create1, 0);
    CALL("inotify_init1", SYS_inotify_init1, 0);
    CALL("eventfd2", SYS_eventfd2, 0, 0);
    CALL("timerfd_create", SYS_timerfd_create, 1, 0);
    CALL("pidfd_open", 434, getpid(), 0);
    CALL("landlock_create_ruleset", 444, NONE, 0, 9999);
    CALL("seccomp", SYS_seccomp, 9999, 0, NONE);
    CALL("prctl", SYS_prctl, 9999, 0, 0, 0, 0);
    CALL("ptrace", SYS_ptrace, 16, 0, NONE, NONE);
    CALL("personality(query)", SYS_personality, 0xffffffffUL);
    CALL("rseq", SYS_rseq, BAD, 1, 9999, 0);
    CALL("sched_setscheduler(SCHED_OTHER)", SYS_sched_setscheduler, 0, 0, zero);
    CALL("sched_setaffinity", SYS_sched_setaffinity, 0, 0, NONE);
    CALL("setpriority(self)", SYS_setpriority, 0, 0, 0);
    CALL("setpriority(own group)", SYS_setpriority, 1, 0, 0);
    CALL("setsockopt(SO_RCVBUF)", SYS_setsockopt, -1, 1, 8, NONE, 0);
    CALL("setsockopt(TCP_NODELAY)", SYS_setsockopt, -1, 6, 1, NONE, 0);
    CALL("setsockopt(IPV6_V6ONLY)", SYS_setsockopt, -1, 41, 26, NONE, 0);
    CALL("ioprio_set(self)", SYS_ioprio_set, 1, 0, 2 << 13 | 4);
    CALL("clone3", 435, NONE, 0);
    CALL("io_setup", SYS_io_setup, 0, BAD);
    CALL("io_destroy", SYS_io_destroy, 0UL);
    CALL("io_submit", SYS_io_submit, 0UL, 1L, BAD);
    CALL("io_cancel", SYS_io_cancel, 0UL, BAD, BAD);
    CALL("io_getevents", SYS_io_getevents, 0UL, 1L, 1L, BAD, NONE);
    CALL("io_pgetevents", SYS_io_pgetevents, 0UL, 1L, 1L, BAD, NONE, NONE);
    CALL("fallocate(disk)", SYS_fallocate, -1, 0, 0, 1);
    CALL("fallocate(beyond the end)", SYS_fallocate, -1, 1, 0, 1);
}

static void forks(int wanted) {
    int count = 0;
    for (; count < wanted; count++) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) {
            pause();
            _exit(0);
        }
    }
    printf("%d %d\n", count, count < wanted ? errno : 0);
    fflush(stdout);
    kill(0, SIGKILL);
}

#define NO_32_BIT 99

#ifdef __aarch64__
/* An ELF file of 32-bit Arm: mov r7, #20 (getpid); svc 0; mov r0, #42; mov r7, #1 (exit); svc 0. */
static const unsigned char program[] = {
    127, 69, 76, 70, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 40, 0,
    1, 0, 0, 0, 84, 0, 1, 0, 52, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 5,
    52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 1, 0, 0, 0, 1, 0, 104, 0, 0, 0, 104, 0, 0, 0, 5, 0, 0, 0,
    0, 16, 0, 0, 20, 112, 160, 227, 0, 0, 0, 239, 42, 0, 160, 227, 1, 112, 160, 227,
    0, 0, 0, 239,
};
#endif

static void call_32_bit(void) {
#if defined(__x86_64__)
    long result = 20; /* getpid */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    _exit(0);
#elif defined(__aarch64__)
    char *none[] = {NONE};
    int file = memfd_create("program", MFD_CLOEXEC);
    if (write(file, program, sizeof program) == sizeof program) fexecve(file, none, none);
    _exit(NO_32_BIT); /* a processor, or a kernel, without 32-bit programs */
#else
    _exit(NO_32_BIT);
#endif
}

static void int80(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) call_32_bit();
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
    else printf(WEXITSTATUS(status) == NO_32_BIT ? "none\n" : "exit\n");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "calls")) denied(), allowed();
    else if (!strcmp(mode, "forks") && argc > 2) forks(atoi(argv[2]));
    else if (!strcmp(mode, "int80")) int80();
    else return 2;
    return 0;
}
