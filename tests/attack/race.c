/* The hostile side of a race.
 *   race swap A B       exchange two names for ever (renameat2 RENAME_EXCHANGE)
 *   race flip FILE N    overwrite FILE in place, N bytes of 'A', then of 'B', for ever
 * It ends when its parent does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **v) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4) return 2;
    if (!strcmp(v[1], "swap"))
        for (;;) syscall(SYS_renameat2, AT_FDCWD, v[2], AT_FDCWD, v[3], 2);
    size_t n = strtoul(v[3], 0, 10);
    char *a = malloc(n), *b = malloc(n);
    memset(a, 'A', n);
    memset(b, 'B', n);
    for (;;) {
        int fd = open(v[2], O_WRONLY | O_NOFOLLOW);
        if (fd < 0) continue;
        if (pwrite(fd, a, n, 0) < 0 || pwrite(fd, b, n, 0) < 0) return 1;
        close(fd);
    }
}
