/* PID 1 of a guest: starts one check at a time, bounds it, reports how it ended, and leaves nothing running.
 *
 * While a check runs, up to BESIDE_MAX more commands may be started beside it, each with a deadline and a report of its
 * own: the probes of a launched application (docs/adr/0111). Their process groups are killed when they end; what left
 * its group is the check's, and ends with it. The end of the check is the end of all of them.
 *
 * It stands between two parties. The controller, on the other side of our stdin and stdout, is trusted and may be
 * slow, silent or gone. The check runs under our own uid and is hostile. docs/adr/0019-guest-supervisor.md has the
 * frames; here is why a check cannot get between us and the controller:
 *
 * - It cannot look into us. PR_SET_DUMPABLE 0 gives /proc/1/{fd,mem,environ,...} to root and refuses ptrace to our uid
 *   (ptrace(2), "access mode checking"). So the nonce that marks a report, and the pipe it goes through, stay ours.
 * - It cannot speak for us. Its stdout and stderr are pipes that we read; what it writes is payload, with a length.
 * - It cannot signal us. The kernel drops, for the first process of a namespace, every signal from inside that has no
 *   handler, SIGKILL and SIGSTOP too (pid_namespaces(7)). We have no handler and ignore the rest besides.
 * - It cannot outlive its report. kill(-1) reaches every process of the namespace in one pass under the kernel's lock
 *   of the process list, so that a fork bomb has no gap to slip through; orphans become our children, and we wait until
 *   there are none (kill(2), wait(2)).
 * - It cannot stay without the controller. One that pings while the check runs, with a token of zeros, has to go on:
 *   after SILENCE_S without a frame we end, and the check with us. Our exit status says why, because the report would
 *   have no reader. Other tokens are those of a controller that only asks whether a check runs.
 * - It cannot make us wait. Nothing here blocks but select(2), and that has a timeout. While the controller does not
 *   read, the check's pipes fill and its writes block; its deadline goes on.
 *
 * What the same uid may still do to us are limits and priorities (prlimit(2), sched_setaffinity(2), setpriority(2)):
 * they can end or slow the guest, never turn its report. We compare them with what they were and say so by leaving out
 * FLAG_QUIESCENT, on which the controller throws the guest away.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 5, /* type, length */
    NONCE_BYTES = 16,
    PAYLOAD_MAX = 1 << 20,
    RUN_FIXED_BYTES = NONCE_BYTES + 8 + 4 + 4,
    BESIDE_MAX = 4, /* commands beside the check, at once */
    CHILDREN = 1 + BESIDE_MAX,
    CHUNK_BYTES = PIPE_BUF - HEADER_BYTES - NONCE_BYTES,
    TEXT_MAX = 128 << 10,           /* of one file of a posture report */
    FOLDERS_MAX = 4,                /* that a check has to be able to write */
    FOLDER_LINE_MAX = 64 + 256,     /* what is said of one of them */
    REPLY_MAX = 4 * TEXT_MAX + FOLDERS_MAX * FOLDER_LINE_MAX + 64, /* the largest frame of ours but output */
    CONTROL_BYTES = 2 * REPLY_MAX,
    LEASE_MAX_S = 31536000,
    REAP_AT_ONCE = 1000, /* a guest can make orphans as fast as we bury them: look at the clock in between */
};

enum { FLAG_TIMED_OUT = 1, FLAG_KILLED = 2, FLAG_QUIESCENT = 4, FLAG_NOT_STARTED = 8 };
enum { LEAVE_ASKED = 0, LEAVE_USAGE = 64, LEAVE_MALFORMED = 70, LEAVE_NO_READER = 74, LEAVE_ABANDONED = 75 };
enum state { IDLE, RUNNING, SWEEPING, DRAINING };

static const uint64_t SECOND_US = 1000000;
static const uint64_t SWEEP_US = 10 * 1000000;
static const uint64_t SWEEP_STEP_US = 20 * 1000; /* also without SIGCHLD: what dies need not be our child yet */
static const uint64_t LAST_OUTPUT_US = 1000000; /* of a command beside: others may hold its pipes and write on */
static const uint64_t NEVER = UINT64_MAX;

/* Whole frames on their way to the controller. Each is one write(2), and up to PIPE_BUF bytes that is atomic (pipe(7)):
 * where a check can open /proc/1/fd/1 (gVisor) it must not get its bytes between a header of ours and the nonce. */
struct queue {
    uint8_t *data;
    size_t size, length, sent, frame_end;
};

/* The pipe a check writes to, and the one frame of its bytes that is on its way. */
struct stream {
    int fd; /* -1: no check, or everybody closed it */
    uint8_t type;
    struct queue queue;
};

/* A check or a command beside it: RUNNING, SWEEPING until what it may leave is gone, DRAINING its last output, IDLE. */
struct child {
    enum state state;
    uint8_t nonce[NONCE_BYTES];
    pid_t pid; /* 0: ended, or never started */
    pid_t group;
    int failure_fd;
    int status; /* wait(2); -1 while unknown */
    uint32_t flags, leftovers;
    int error;
    bool alone; /* the sweep found nobody left */
    bool attended; /* its controller said that it is there: the lease counts */
    uint64_t started_us, deadline_us, ended_us, give_up_us;
    uint64_t user_us, system_us, maxrss_kib;
    struct stream streams[2];
};

static struct child children[CHILDREN];
static struct child *const check = &children[0];

/* How we were before any check ran: a check of our uid may change all of it. */
static struct touchable {
    struct rlimit limits[RLIM_NLIMITS];
    int nice, policy;
    cpu_set_t cpus;
} as_started;

static uint8_t control_bytes[CONTROL_BYTES];
static uint8_t chunk_bytes[CHILDREN][2][HEADER_BYTES + NONCE_BYTES + CHUNK_BYTES];
static struct queue control = {.data = control_bytes, .size = CONTROL_BYTES};
static struct queue *sending; /* begun and not finished: no other frame may come between its bytes */

static uint8_t input[HEADER_BYTES + PAYLOAD_MAX];
static size_t input_length;
static bool input_open = true;
static char *words[PAYLOAD_MAX + 2]; /* argv, NULL, environment, NULL: a word takes a byte of the payload at least */

static char **folders; /* what a check has to be able to write; ends with NULL */
static int null_fd, signal_fd, oom_fd;
static char oom_score[16];
static uint64_t lease_us, silence_us, heard_us; /* without a check; while one is not over */

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_US + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t after(uint64_t start_us, uint64_t span_us)
{
    return span_us < NEVER - start_us ? start_us + span_us : NEVER;
}

/* The namespace dies with its first process; killing first only makes it quick. */
static _Noreturn void leave(int code)
{
    kill(-1, SIGKILL);
    _exit(code);
}

/* --- numbers of a frame, big-endian */

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static void put(struct queue *queue, uint64_t value, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        queue->data[queue->length++] = (uint8_t)(value >> shift);
}

static void put_bytes(struct queue *queue, const void *from, size_t length)
{
    memcpy(queue->data + queue->length, from, length);
    queue->length += length;
}

/* Header and nonce of a reply; the caller has made sure that REPLY_MAX bytes are free. */
static void put_reply(uint8_t type, const uint8_t *nonce, size_t more)
{
    put(&control, type, 1);
    put(&control, NONCE_BYTES + more, 4);
    put_bytes(&control, nonce, NONCE_BYTES);
}

static bool control_has_room(void)
{
    return control.size - control.length >= REPLY_MAX;
}

/* --- to the controller */

/* True when all is written. Without a reader nothing we do can be known to anybody: leave. */
static bool flushed(struct queue *queue)
{
    while (queue->sent < queue->length) {
        if (queue->sent == queue->frame_end)
            queue->frame_end += HEADER_BYTES + get(queue->data + queue->sent + 1, 4);
        ssize_t n = write(STDOUT_FILENO, queue->data + queue->sent, queue->frame_end - queue->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0)
            leave(LEAVE_NO_READER);
        queue->sent += (size_t)n;
    }
    queue->sent = queue->length = queue->frame_end = 0;
    return true;
}

static struct queue *next_to_send(void)
{
    if (control.length)
        return &control;
    for (int i = 0; i < 2 * CHILDREN; i++)
        if (children[i / 2].streams[i % 2].queue.length)
            return &children[i / 2].streams[i % 2].queue;
    return NULL;
}

static void send_waiting(void)
{
    while (sending || (sending = next_to_send())) {
        if (!flushed(sending))
            return;
        sending = NULL;
    }
}

/* --- from the check */

static void stop_reading(struct stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

/* One frame of what the check wrote, if the frame before it is gone. False when there is nothing to read now. */
static bool pump(struct child *child, struct stream *stream)
{
    struct queue *queue = &stream->queue;
    if (stream->fd < 0 || queue->length)
        return false;
    ssize_t n = read(stream->fd, queue->data + HEADER_BYTES + NONCE_BYTES, CHUNK_BYTES);
    if (n == 0) /* everybody closed it: select would say so without end */
        stop_reading(stream);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    put(queue, stream->type, 1);
    put(queue, NONCE_BYTES + (uint64_t)n, 4);
    put_bytes(queue, child->nonce, NONCE_BYTES);
    queue->length += (size_t)n;
    return true;
}

/* --- the check's own process, from fork to exec */

static const char *path_of(char **environment)
{
    for (; *environment; environment++)
        if (!strncmp(*environment, "PATH=", 5))
            return *environment + 5;
    return "/usr/bin:/bin";
}

/* execvp(3) on the check's PATH, but for its second try, through a shell, of a file that is no program: as engines. */
static int execute(char **argv, char **environment)
{
    static char file[8192];
    if (strchr(argv[0], '/') || !argv[0][0]) {
        execve(argv[0], argv, environment);
        return errno;
    }
    int denied = 0;
    for (const char *path = path_of(environment); path; path = strchr(path, ':') ? strchr(path, ':') + 1 : NULL) {
        int length = (int)strcspn(path, ":");
        int n = snprintf(file, sizeof file, "%.*s/%s", length ? length : 1, length ? path : ".", argv[0]);
        if (n < 0 || (size_t)n >= sizeof file)
            continue;
        execve(file, argv, environment);
        if (errno == EACCES)
            denied = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return errno;
    }
    return denied ? denied : ENOENT;
}

static int put_on(const char *cwd, int out, int err)
{
    /* An ignored signal stays ignored over exec (execve(2)). Not by signal(): glibc keeps its own two (32, 33) from it,
     * and its posix_spawn leaves one of them ignored in whoever was started so. */
    static const long to_default[4]; /* the kernel's sigaction: handler SIG_DFL, no flags, an empty mask */
    for (int number = 1; number < _NSIG; number++)
        syscall(SYS_rt_sigaction, number, to_default, NULL, _NSIG / 8);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (dup2(null_fd, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || chdir(cwd) < 0)
        return errno;
    return 0;
}

/* In the child, which is as closed to the others as we are until exec makes it a program of its own. */
static _Noreturn void become(const char *cwd, char **argv, char **environment, const int pipes[3][2])
{
    int error = put_on(cwd, pipes[0][1], pipes[1][1]);
    if (!error)
        error = execute(argv, environment);
    if (write(pipes[2][1], &error, sizeof error) < 0) /* a pipe that is empty and ours: it fits */
        _exit(126);
    _exit(127);
}

/* The kernel takes the check first when memory runs out. Its score is inherited from us at fork, and written through a
 * descriptor from before PR_SET_DUMPABLE: the child could not open its own file any more. Best effort. */
static pid_t fork_check(void)
{
    bool raised = oom_fd >= 0 && pwrite(oom_fd, "1000", 4, 0) == 4;
    pid_t pid = fork();
    int error = errno;
    if (pid != 0 && raised && pwrite(oom_fd, oom_score, strlen(oom_score), 0) < 0)
        close(oom_fd), oom_fd = -1;
    errno = error;
    return pid;
}

static void close_pipes(int pipes[3][2], int end)
{
    for (int i = 0; i < 3; i++)
        if (pipes[i][end] >= 0)
            close(pipes[i][end]);
}

/* 0, or why it could not be: then nothing is left open. */
static int start(struct child *child, const char *cwd, char **argv, char **environment)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    bool made = true;
    for (int i = 0; i < 3 && made; i++) /* only our ends: a check whose stdout does not block would be surprised */
        made = !pipe2(pipes[i], O_CLOEXEC) && !fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
    child->pid = made ? fork_check() : -1;
    if (child->pid == 0)
        become(cwd, argv, environment, pipes);
    int error = errno;
    close_pipes(pipes, 1);
    if (child->pid < 0) {
        close_pipes(pipes, 0);
        child->pid = 0;
        return error;
    }
    child->group = child->pid;
    child->streams[0].fd = pipes[0][0];
    child->streams[1].fd = pipes[1][0];
    child->failure_fd = pipes[2][0];
    return 0;
}

/* --- what becomes of a check and of the commands beside it */

static void touchables(struct touchable *seen)
{
    memset(seen, 0, sizeof *seen);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((__rlimit_resource_t)i, &seen->limits[i]);
    seen->nice = getpriority(PRIO_PROCESS, 0);
    seen->policy = sched_getscheduler(0);
    sched_getaffinity(0, sizeof seen->cpus, &seen->cpus);
}

static bool untouched(void)
{
    struct touchable seen;
    touchables(&seen);
    return !memcmp(&seen, &as_started, sizeof seen);
}

static void begin_sweep(struct child *child, uint64_t now)
{
    child->state = SWEEPING;
    child->give_up_us = after(now, SWEEP_US);
}

/* Without the check there is nothing to be beside of: the sweep that ends it kills the others. */
static void stop(struct child *child, uint32_t why, uint64_t now)
{
    child->flags |= why;
    begin_sweep(child, now);
    for (int i = 1; child == check && i < CHILDREN; i++)
        if (children[i].state == RUNNING)
            stop(&children[i], FLAG_KILLED, now);
}

/* The child's own process ended. Whoever is late is late, also when we were kept from noticing in time. */
static void ended(struct child *child, int status)
{
    uint64_t now = now_us();
    child->pid = 0;
    child->status = status;
    child->ended_us = now;
    if (child->state == RUNNING)
        stop(child, now >= child->deadline_us ? FLAG_TIMED_OUT : 0, now);
}

static void account(struct child *child, const struct rusage *used)
{
    child->user_us += (uint64_t)used->ru_utime.tv_sec * SECOND_US + (uint64_t)used->ru_utime.tv_usec;
    child->system_us += (uint64_t)used->ru_stime.tv_sec * SECOND_US + (uint64_t)used->ru_stime.tv_usec;
    if ((uint64_t)used->ru_maxrss > child->maxrss_kib)
        child->maxrss_kib = (uint64_t)used->ru_maxrss;
}

static struct child *child_of(pid_t pid)
{
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid == pid)
            return &children[i];
    return NULL;
}

/* A child that said PTRACE_TRACEME made us its tracer and stops at each signal. Let it go on as it would have. */
static void release(pid_t pid, int status)
{
    int number = WSTOPSIG(status);
    ptrace(PTRACE_DETACH, pid, NULL, (void *)(long)(number == SIGTRAP ? 0 : number));
}

enum remaining { MORE, SOME, NONE };

/* Bury what is dead. `by_us`: what died of SIGKILL was killed by our sweep. */
static enum remaining reap(bool by_us)
{
    for (int i = 0; i < REAP_AT_ONCE; i++) {
        struct rusage used;
        int status;
        pid_t pid = wait4(-1, &status, WNOHANG | __WALL, &used); /* __WALL: also children of clone(2) without SIGCHLD */
        if (pid <= 0)
            return pid < 0 && errno == ECHILD ? NONE : SOME;
        if (WIFSTOPPED(status)) {
            release(pid, status);
            continue;
        }
        struct child *child = child_of(pid);
        account(check, &used);
        if (child && child != check)
            account(child, &used);
        if (child)
            ended(child, status);
        else if (by_us && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            check->leftovers++;
    }
    return MORE;
}

/* Kill what is left, again and again: ESRCH from kill(-1) and ECHILD from wait are the proof that nothing is. */
static void sweep(uint64_t now)
{
    bool left_by_check = check->pid == 0 && !(check->flags & (FLAG_TIMED_OUT | FLAG_KILLED));
    bool nobody = kill(-1, SIGKILL) < 0 && errno == ESRCH;
    check->alone = reap(left_by_check) == NONE && nobody;
    if (!check->alone && now < check->give_up_us)
        return;
    check->flags |= check->alone && untouched() ? FLAG_QUIESCENT : 0;
    check->state = DRAINING;
    heard_us = now; /* the lease begins again: a controller that only listened is a controller */
}

/* Kill the group of a command beside the check. Who left the group is not found; the check's own sweep finds all. A
 * number that the kernel gave away anew is a process of the guest too, which killing may harm and nothing else. */
static void sweep_group(struct child *child, uint64_t now)
{
    if (child->group > 1)
        kill(-child->group, SIGKILL);
    if (child->pid && now < child->give_up_us)
        return;
    child->alone = !child->pid;
    child->flags |= child->alone ? FLAG_QUIESCENT : 0;
    child->state = DRAINING;
    child->give_up_us = after(now, LAST_OUTPUT_US);
}

static void report_failure(struct child *child)
{
    if (child->failure_fd < 0)
        return;
    if (read(child->failure_fd, &child->error, sizeof child->error) == sizeof child->error)
        child->flags |= FLAG_NOT_STARTED;
    close(child->failure_fd);
    child->failure_fd = -1;
}

static void put_done(const struct child *child)
{
    put_reply('D', child->nonce, 48);
    put(&control, (uint32_t)child->status, 4);
    put(&control, child->flags, 4);
    put(&control, (uint32_t)child->error, 4);
    put(&control, child->user_us, 8);
    put(&control, child->system_us, 8);
    put(&control, child->maxrss_kib, 8);
    put(&control, child->leftovers, 4);
    put(&control, child->ended_us - child->started_us, 8);
}

static bool nothing_beside(void)
{
    for (int i = 1; i < CHILDREN; i++)
        if (children[i].state != IDLE)
            return false;
    return true;
}

/* The last of the output, then the report. Nobody is left who could write, so an empty pipe is the end of it; its other
 * end may still be open in a message on its way between sockets of the dead (unix(7), SCM_RIGHTS). If somebody is left,
 * his output may have no end: what we have is all. */
static void drain(struct child *child, uint64_t now)
{
    bool may_pump = child == check ? child->alone : now < child->give_up_us;
    for (int i = 0; i < 2; i++)
        if (child->streams[i].queue.length || (may_pump && pump(child, &child->streams[i])))
            return;
    if (!control_has_room() || (child == check && !nothing_beside()))
        return;
    report_failure(child);
    for (int i = 0; i < 2; i++)
        stop_reading(&child->streams[i]);
    if (!child->ended_us)
        child->ended_us = now;
    put_done(child);
    child->pid = 0; /* of one that could not be killed */
    child->state = IDLE;
    heard_us = now;
}

static void advance(struct child *child, uint64_t now)
{
    if (child->state == RUNNING && now >= child->deadline_us)
        stop(child, FLAG_TIMED_OUT, now);
    if (child->state == SWEEPING && child == check)
        sweep(now);
    else if (child->state == SWEEPING)
        sweep_group(child, now);
    if (child->state == DRAINING)
        drain(child, now);
}

/* --- from the controller */

/* Cuts `count` words off the text between `*at` and `end`. False when there are not as many. */
static bool cut(char **into, uint64_t count, char **at, const char *end)
{
    for (uint64_t i = 0; i < count; i++) {
        size_t length = strnlen(*at, (size_t)(end - *at));
        if (*at + length == end)
            return false;
        into[i] = *at;
        *at += length + 1;
    }
    return true;
}

static bool names_and_values(char **environment)
{
    for (; *environment; environment++)
        if (**environment == '=' || !strchr(*environment, '='))
            return false;
    return true;
}

/* Reads `cwd`, argv and environment into `words`; they stay in the input buffer. False for a frame that is none. */
static bool read_words(uint8_t *payload, size_t length, char **cwd, char ***environment)
{
    char *at = (char *)payload + RUN_FIXED_BYTES, *end = (char *)payload + length;
    uint64_t argc = get(payload + NONCE_BYTES + 8, 4), envc = get(payload + NONCE_BYTES + 12, 4);
    if (argc < 1 || argc + envc > length - RUN_FIXED_BYTES)
        return false;
    *environment = words + argc + 1;
    if (!cut(cwd, 1, &at, end) || !cut(words, argc, &at, end) || !cut(*environment, envc, &at, end) || at != end)
        return false;
    words[argc] = (*environment)[envc] = NULL;
    return **cwd == '/' && names_and_values(*environment);
}

static void reset(struct child *child)
{
    static const uint8_t types[2] = {'O', 'E'};
    memset(child, 0, sizeof *child);
    child->failure_fd = child->status = -1;
    for (int i = 0; i < 2; i++)
        child->streams[i] = (struct stream){.fd = -1, .type = types[i]};
    for (int i = 0; i < 2; i++) {
        child->streams[i].queue.data = chunk_bytes[child - children][i];
        child->streams[i].queue.size = sizeof chunk_bytes[0][0];
    }
}

/* Where a command beside the check has room: none without a check that runs. */
static struct child *free_beside(void)
{
    for (int i = 1; i < CHILDREN && check->state == RUNNING; i++)
        if (children[i].state == IDLE)
            return &children[i];
    return NULL;
}

/* `R`: a check; `S`: a command beside it. */
static void on_run(uint8_t type, uint8_t *payload, size_t length, uint64_t now)
{
    char *cwd, **environment;
    if (!read_words(payload, length, &cwd, &environment))
        leave(LEAVE_MALFORMED);
    struct child *child = type == 'R' ? check : free_beside();
    if (!child || child->state != IDLE) {
        put_reply('B', payload, 0);
        return;
    }
    reset(child);
    memcpy(child->nonce, payload, NONCE_BYTES);
    child->state = RUNNING;
    child->started_us = now;
    uint64_t deadline_ms = get(payload + NONCE_BYTES, 8);
    child->deadline_us = deadline_ms < NEVER / 1000 ? after(now, deadline_ms * 1000) : NEVER;
    child->error = start(child, cwd, words, environment);
    if (child->error)
        stop(child, FLAG_NOT_STARTED, now); /* sweeps too: the reason may be what an earlier check left */
}

static struct child *running_child(const uint8_t *nonce)
{
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].state == RUNNING && !memcmp(nonce, children[i].nonce, NONCE_BYTES))
            return &children[i];
    return NULL;
}

static void on_kill(const uint8_t *nonce, uint64_t now)
{
    struct child *child = running_child(nonce);
    if (child)
        stop(child, FLAG_KILLED, now);
}

/* To its own process alone: what it started hears of it from it. */
static void on_signal(const uint8_t *payload)
{
    struct child *child = running_child(payload);
    if (child && child->pid)
        kill(child->pid, (int)get(payload + NONCE_BYTES, 4));
}

/* Whether something in the guest listens on 127.0.0.1: 0 or an errno. On loopback the answer is there when the first
 * connect(2) returns, but only the second says it: the socket was locked meanwhile. A listener whose queue is full does
 * not answer (EALREADY). */
static int try_port(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : EINPROGRESS;
    for (int i = 0; i < 2 && error == EINPROGRESS; i++)
        error = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error == EISCONN ? 0 : error;
}

static void put_place(const uint8_t *token, int error)
{
    put_reply('N', token, 4);
    put(&control, (uint32_t)error, 4);
}

static void on_port(const uint8_t *payload)
{
    put_place(payload, try_port((uint16_t)get(payload + NONCE_BYTES, 2)));
}

/* Whether there is a regular file of this name; a link is none. */
static void on_file(const uint8_t *payload, size_t length)
{
    struct stat seen;
    if (payload[length - 1])
        leave(LEAVE_MALFORMED);
    int error = lstat((const char *)payload + NONCE_BYTES, &seen) < 0 ? errno : 0;
    put_place(payload, error || S_ISREG(seen.st_mode) ? error : EISDIR);
}

/* A whole text and its NUL; of a text that is too long nothing, lest a part be taken for all of it. */
static void put_text(const char *path)
{
    size_t begin = control.length;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (n = read(fd, control.data + control.length, TEXT_MAX - (control.length - begin))) > 0)
        control.length += (size_t)n;
    if (n < 0 || control.length - begin == TEXT_MAX)
        control.length = begin;
    if (fd >= 0)
        close(fd);
    put(&control, 0, 1);
}

/* A byte into a new file, which has no name or loses it at once: 0, or why that failed. */
static int write_into(int fd)
{
    int error = fd < 0 ? errno : 0;
    if (!error && write(fd, "", 1) != 1)
        error = errno ? errno : EIO;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Whether a check, which has our uid, can make a file there: 0 or an errno. A file without a name leaves no trace, not
 * even in the folder's times; not every file system has them (overlayfs before Linux 6.1, gVisor), so any refusal is
 * asked again by name, a name that cannot be there already. */
static int try_writing(const char *folder)
{
    static char path[FOLDER_LINE_MAX + 64];
    uint64_t random[2];
    if (!write_into(open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)))
        return 0;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return EIO;
    snprintf(path, sizeof path, "%s/.sandbox-%016llx%016llx", folder, (unsigned long long)random[0],
             (unsigned long long)random[1]);
    int fd = open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int gone = unlink(path) < 0 ? errno : 0, error = write_into(fd);
    return error ? error : gone;
}

/* A line a folder: errno, its owner and its mode as they are here, its path. Nothing while a check runs: it would see
 * the file. An engine that maps users shows another owner than the one we have, and refuses us. */
static void put_folders(void)
{
    char line[FOLDER_LINE_MAX];
    for (char **folder = folders; check->state == IDLE && *folder; folder++) {
        int error = try_writing(*folder);
        struct stat seen = {0};
        if (stat(*folder, &seen) < 0 && !error)
            error = errno;
        int length = snprintf(line, sizeof line, "%d %u %o %s\n", error, seen.st_uid, seen.st_mode & 07777, *folder);
        put_bytes(&control, line, (size_t)length);
    }
    put(&control, 0, 1);
}

static void on_query(const uint8_t *token)
{
    size_t begin = control.length;
    put_reply('I', token, 0);
    put_text("/proc/self/status");
    put_text("/proc/self/mountinfo");
    put_text("/proc/net/dev");
    put_text("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    put_folders();
    size_t end = control.length;
    control.length = begin + 1;
    put(&control, end - begin - HEADER_BYTES, 4);
    control.length = end;
}

static void on_ping(const uint8_t *token)
{
    static const uint8_t attending[NONCE_BYTES];
    if (!memcmp(token, attending, NONCE_BYTES))
        check->attended = check->state == RUNNING;
    put_reply('A', token, 1);
    put(&control, check->state != IDLE, 1);
}

static bool well_formed(uint8_t type, size_t length)
{
    switch (type) {
    case 'R':
    case 'S':
        return length > RUN_FIXED_BYTES && length <= PAYLOAD_MAX;
    case 'T':
        return length == NONCE_BYTES + 4;
    case 'C':
        return length == NONCE_BYTES + 2;
    case 'F':
        return length > NONCE_BYTES && length <= NONCE_BYTES + PATH_MAX;
    case 'K':
    case 'P':
    case 'Q':
        return length == NONCE_BYTES;
    default:
        return type == 'X' && length == 0;
    }
}

static void on_frame(uint8_t type, uint8_t *payload, size_t length, uint64_t now)
{
    heard_us = now;
    switch (type) {
    case 'R':
    case 'S':
        on_run(type, payload, length, now);
        break;
    case 'T':
        on_signal(payload);
        break;
    case 'C':
        on_port(payload);
        break;
    case 'F':
        on_file(payload, length);
        break;
    case 'K':
        on_kill(payload, now);
        break;
    case 'P':
        on_ping(payload);
        break;
    case 'Q':
        on_query(payload);
        break;
    default:
        leave(LEAVE_ASKED);
    }
}

/* Every whole frame there is room to answer; true when room was lacking. A bad frame is told by its header: there is no
 * way back into the stream. */
static bool take_frames(uint64_t now)
{
    size_t at = 0;
    while (input_length - at >= HEADER_BYTES && control_has_room()) {
        uint8_t *frame = input + at;
        size_t length = get(frame + 1, 4);
        if (!well_formed(frame[0], length))
            leave(LEAVE_MALFORMED);
        if (input_length - at < HEADER_BYTES + length)
            break;
        on_frame(frame[0], frame + HEADER_BYTES, length, now);
        at += HEADER_BYTES + length;
    }
    if (at)
        memmove(input, input + at, input_length -= at);
    return !control_has_room();
}

/* The end of stdin is not the end of a check: who is gone may have left it to its deadline, or to the lease. */
static void take_input(void)
{
    ssize_t n = read(STDIN_FILENO, input + input_length, sizeof input - input_length);
    if (n > 0)
        input_length += (size_t)n;
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        input_open = false;
}

/* --- waiting */

static uint64_t lease_end(void)
{
    return after(heard_us, check->state == IDLE ? lease_us : silence_us);
}

static uint64_t wake_at(const struct child *child, uint64_t now)
{
    switch (child->state) {
    case RUNNING:
        return child->attended && lease_end() < child->deadline_us ? lease_end() : child->deadline_us;
    case SWEEPING:
        return after(now, SWEEP_STEP_US);
    default:
        return child == check ? lease_end() : NEVER;
    }
}

static uint64_t timeout_us(uint64_t now)
{
    uint64_t until = NEVER, hour_us = 3600 * SECOND_US;
    for (int i = 0; i < CHILDREN; i++)
        until = wake_at(&children[i], now) < until ? wake_at(&children[i], now) : until;
    uint64_t left_us = until > now ? until - now : 0;
    return left_us < hour_us ? left_us : hour_us;
}

static void watch(int fd, fd_set *set, int *most)
{
    FD_SET(fd, set); /* below FD_SETSIZE: ours are the lowest numbers there are */
    *most = fd > *most ? fd : *most;
}

/* A direction that has nothing to do, or is closed, is not asked about: it would say so without end. select(2), because
 * poll(2) fails with EINVAL for more descriptors than RLIMIT_NOFILE, which a check may set to 0 for us: seen. */
static void wait_for_anything(uint64_t timeout_us)
{
    bool want_input = input_open && control_has_room() && input_length < sizeof input;
    struct timeval timeout = {(time_t)(timeout_us / SECOND_US), (suseconds_t)(timeout_us % SECOND_US)};
    fd_set readable, writable;
    int most = -1;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    watch(signal_fd, &readable, &most);
    if (want_input)
        watch(STDIN_FILENO, &readable, &most);
    if (sending)
        watch(STDOUT_FILENO, &writable, &most);
    for (int i = 0; i < 2 * CHILDREN; i++) {
        struct stream *stream = &children[i / 2].streams[i % 2];
        if (stream->fd >= 0 && !stream->queue.length)
            watch(stream->fd, &readable, &most);
    }
    if (select(most + 1, &readable, &writable, NULL, &timeout) < 0)
        return;
    struct signalfd_siginfo info; /* one SIGCHLD may stand for many: we ask wait(2), not this */
    if (FD_ISSET(signal_fd, &readable) && read(signal_fd, &info, sizeof info) < 0 && errno != EAGAIN)
        leave(LEAVE_NO_READER);
    if (want_input && FD_ISSET(STDIN_FILENO, &readable))
        take_input();
}

/* At the end of a lease: whether a frame waits. We may have been frozen ourselves, and the controller was not. */
static bool hears_now(uint64_t now)
{
    if (input_open && input_length < sizeof input)
        take_input();
    take_frames(now);
    return now < lease_end();
}

static bool is_draining(void)
{
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].state == DRAINING)
            return true;
    return false;
}

static _Noreturn void serve(void)
{
    for (int i = 0; i < CHILDREN; i++)
        reset(&children[i]);
    heard_us = now_us();
    for (;;) {
        enum remaining remaining = check->state == SWEEPING ? SOME : reap(false);
        uint64_t now = now_us();
        bool held_up = take_frames(now);
        for (int i = CHILDREN - 1; i >= 0; i--) /* the check last: it waits for the reports of the others */
            advance(&children[i], now);
        for (int i = 0; i < 2 * CHILDREN; i++)
            pump(&children[i / 2], &children[i / 2].streams[i % 2]);
        send_waiting();
        bool idle = check->state == IDLE || check->state == DRAINING; /* draining without a reader has no end */
        bool attended = check->state == RUNNING && check->attended;
        if ((idle || attended) && now >= lease_end() && !hears_now(now))
            leave(idle ? LEAVE_ASKED : LEAVE_ABANDONED);
        /* What only waited for what has just been sent goes on at once: nothing would wake us for it. */
        bool go_on = remaining == MORE || (held_up && control_has_room()) || (is_draining() && !sending);
        wait_for_anything(go_on ? 0 : timeout_us(now));
    }
}

/* --- the beginning */

/* Nothing of what started us may reach a check; and 0, 1, 2 must be taken, lest a pipe get their number. */
static void own_descriptors(void)
{
    while ((null_fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && null_fd <= 2)
        ;
    if (null_fd < 0)
        _exit(LEAVE_USAGE);
    if (close_range((unsigned)null_fd + 1, ~0U, 0) < 0) /* ENOSYS before Linux 5.9 */
        for (int fd = null_fd + 1; fd < 65536; fd++)
            close(fd);
    for (int fd = 3; fd < null_fd; fd++)
        close(fd);
    for (int fd = 0; fd <= 2; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    for (int fd = 0; fd <= 1; fd++) /* stdin too: what select promised may be gone, stolen where /proc/1/fd is open */
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* SIGCHLD is blocked and read, not handled: a guest that sends it without end cannot interrupt anything. */
static void own_signals(void)
{
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    for (int number = 1; number < _NSIG; number++)
        if (number != SIGCHLD)
            signal(number, SIG_IGN);
    sigprocmask(SIG_SETMASK, &chld, NULL);
    signal_fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        _exit(LEAVE_USAGE);
}

static void close_ourselves(void)
{
    oom_fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    ssize_t n = oom_fd >= 0 ? read(oom_fd, oom_score, sizeof oom_score - 1) : -1;
    if (n <= 0 && oom_fd >= 0)
        close(oom_fd), oom_fd = -1;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        _exit(LEAVE_USAGE);
}

/* This very program to stdout: how it gets from its image to the host, without a shell or cat in that image. */
static int hand_out(void)
{
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    while (self >= 0 && (n = read(self, input, sizeof input)) > 0)
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = write(STDOUT_FILENO, input + done, (size_t)(n - done))) < 0)
                return LEAVE_NO_READER;
    return n == 0 ? LEAVE_ASKED : LEAVE_NO_READER;
}

static bool are_folders(char **paths)
{
    int count = 0;
    for (; *paths; paths++)
        if (**paths != '/' || strlen(*paths) > FOLDER_LINE_MAX - 64 || ++count > FOLDERS_MAX)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--hand-out"))
        return hand_out();
    char *end = NULL;
    unsigned long lease_s = argc >= 2 ? strtoul(argv[1], &end, 10) : 0, silence_s = lease_s;
    if (lease_s >= 1 && *end == ',')
        silence_s = strtoul(end + 1, &end, 10);
    if (lease_s < 1 || lease_s > LEASE_MAX_S || silence_s < 1 || silence_s > LEASE_MAX_S || *end)
        return LEAVE_USAGE;
    if (!are_folders(argv + 2))
        return LEAVE_USAGE;
    folders = argv + 2;
    if (getpid() != 1) /* kill(-1) would reach everything its user has */
        return LEAVE_USAGE;
    lease_us = lease_s * SECOND_US;
    silence_us = silence_s * SECOND_US;
    own_descriptors();
    own_signals();
    close_ourselves();
    touchables(&as_started);
    serve();
}
