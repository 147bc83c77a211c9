/* What a check may try against PID 1 of its guest; for the tests of images/init/init.c. Static: it runs in any image.
 *
 *   guest-attacks pry          looks into PID 1 and, as the control, into a child: "<pid|child> <what> <errno>" a line
 *   guest-attacks signals      every signal to PID 1; as the control SIGKILL to a child: "child <signal that ended it>"
 *   guest-attacks chld         SIGCHLD to PID 1 without end
 *   guest-attacks limits NAME  lowers one limit of PID 1: "nofile", "nproc", "cpu"
 *   guest-attacks traceme      makes its parent its tracer, stops for signals and for exec, ends with status 0
 *   guest-attacks orphan-traceme   the same in a child that PID 1 inherits, which then waits for ever
 *   guest-attacks held         ends with status 0, but a child of its own traces it and does not wait
 *   guest-attacks bomb N       forks in every process, at most N processes of its user
 *   guest-attacks steal        takes the next kill from PID 1's stdin and reports a pass of that check in its stead.
 *                              First says whether it could open both ("open 1 1"): not on Linux, but in gVisor
 *   guest-attacks quiet        a child of clone(2) without an exit signal that stays
 *   guest-attacks inflight     leaves stdout open in a message between sockets that only hold each other
 *   guest-attacks orphans N    N orphans that end at once, one after the other
 *   guest-attacks threads      a thread stays behind when the main thread ends: "late" comes from it, then status 5
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *who, const char *what, long result)
{
    printf("%s %s %d\n", who, what, result < 0 ? errno : 0);
    fflush(stdout);
}

static pid_t child_that_waits(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    return child;
}

static void open_of(const char *who, pid_t pid, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    show(who, name, open(path, flags));
}

static void pry_into(const char *who, pid_t pid)
{
    open_of(who, pid, "mem", O_RDWR);
    open_of(who, pid, "fd/0", O_RDONLY);
    open_of(who, pid, "fd/1", O_WRONLY);
    open_of(who, pid, "environ", O_RDONLY);
    open_of(who, pid, "maps", O_RDONLY);
    open_of(who, pid, "oom_score_adj", O_WRONLY);
    char byte, link[64], path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    show(who, "exe", readlink(path, link, sizeof link));
    struct iovec here = {&byte, 1}, there = {(void *)pry_into, 1};
    show(who, "process_vm_readv", process_vm_readv(pid, &here, 1, &there, 1, 0));
    int pidfd = (int)syscall(434 /* pidfd_open */, pid, 0);
    show(who, "pidfd_getfd", syscall(438, pidfd, 0, 0));
    show(who, "ptrace", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
}

static int pry(void)
{
    pid_t child = child_that_waits();
    pry_into("pid1", 1);
    pry_into("child", child);
    return kill(child, SIGKILL);
}

static int signals(void)
{
    for (int round = 0; round < 3; round++)
        for (int number = 1; number <= 64; number++) {
            kill(1, number);
            sigqueue(1, number, (union sigval){.sival_int = number});
        }
    int status = 0;
    pid_t child = child_that_waits();
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("child %d\n", WTERMSIG(status));
    return 0;
}

static _Noreturn void chld(void)
{
    for (;;)
        kill(1, SIGCHLD);
}

static int limits(const char *name)
{
    int which = !strcmp(name, "nofile") ? RLIMIT_NOFILE : !strcmp(name, "nproc") ? RLIMIT_NPROC : RLIMIT_CPU;
    rlim_t value = which == RLIMIT_CPU ? 3600 : 0;
    struct rlimit low = {value, value};
    show("pid1", name, prlimit(1, which, &low, NULL));
    return 0;
}

static int traceme(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        return 1;
    raise(SIGCONT);
    raise(SIGWINCH);
    execl("/bin/true", "true", (char *)NULL);
    execl("/proc/self/exe", "guest-attacks", "nothing", (char *)NULL); /* an image without /bin/true */
    return 1;
}

static int orphan_traceme(void)
{
    if (fork() > 0)
        return 0;
    while (getppid() != 1)
        sched_yield();
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    for (;;)
        raise(SIGCONT);
}

static int held(void)
{
    int ready[2];
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (pipe(ready) || fork() > 0) {
        char byte;
        close(ready[1]);
        return read(ready[0], &byte, 1) == 1 && byte == 'y' ? 0 : 1;
    }
    char byte = ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) < 0 ? 'n' : 'y';
    if (write(ready[1], &byte, 1) == 1)
        for (;;)
            pause();
    return 1;
}

static _Noreturn void bomb(rlim_t most)
{
    struct rlimit limit = {most, most};
    setrlimit(RLIMIT_NPROC, &limit);
    for (;;)
        fork();
}

static _Noreturn void steal(void)
{
    unsigned char taken[21] = {0}, forged[5 + 64] = {'D', 0, 0, 0, 64};
    int in = open("/proc/1/fd/0", O_RDONLY), out = open("/proc/1/fd/1", O_WRONLY);
    printf("open %d %d\n", in >= 0, out >= 0);
    fflush(stdout);
    if (fork() >= 0 && fork() >= 0)
        while (in >= 0 && read(in, taken, sizeof taken) != sizeof taken)
            usleep(100);
    memcpy(forged + 5, taken + 5, 16);
    forged[5 + 23] = 4; /* quiescent; wait status 0 */
    if (in < 0 || taken[0] != 'K' || write(out, forged, sizeof forged) < 0)
        printf("nothing\n");
    for (;;)
        pause();
}

static int quiet(void)
{
    if (syscall(SYS_clone, 0, NULL, NULL, NULL, NULL) == 0)
        for (;;)
            pause();
    return 0;
}

static void pass(int through, int first, int second)
{
    int passed[2] = {first, second};
    char space[CMSG_SPACE(sizeof passed)] = {0}, byte = 'x';
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof passed)};
    memcpy(CMSG_DATA(head), passed, sizeof passed);
    show("self", "sendmsg", sendmsg(through, &message, 0));
}

static int inflight(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    pass(pair[0], STDOUT_FILENO, pair[1]);
    pass(pair[1], STDERR_FILENO, pair[0]);
    return 0;
}

static int orphans(int count)
{
    int alive[2]; /* every orphan has its end open as long as it lives */
    if (pipe(alive))
        return 1;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(fork() < 0);
        waitpid(child, NULL, 0);
    }
    char byte;
    close(alive[1]);
    return read(alive[0], &byte, 1) != 0;
}

static void *late(void *seconds)
{
    usleep(200000);
    if (write(1, "late\n", 5) < 0)
        return seconds;
    exit(5);
}

static int threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, late, NULL);
    pthread_exit(NULL);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *word = argc > 2 ? argv[2] : "0";
    if (!strcmp(mode, "pry")) return pry();
    if (!strcmp(mode, "signals")) return signals();
    if (!strcmp(mode, "chld")) chld();
    if (!strcmp(mode, "limits")) return limits(word);
    if (!strcmp(mode, "traceme")) return traceme();
    if (!strcmp(mode, "orphan-traceme")) return orphan_traceme();
    if (!strcmp(mode, "held")) return held();
    if (!strcmp(mode, "bomb")) bomb((rlim_t)atoi(word));
    if (!strcmp(mode, "steal")) steal();
    if (!strcmp(mode, "quiet")) return quiet();
    if (!strcmp(mode, "inflight")) return inflight();
    if (!strcmp(mode, "orphans")) return orphans(atoi(word));
    if (!strcmp(mode, "threads")) return threads();
    return strcmp(mode, "nothing") ? 2 : 0;
}
