/* Lets every sync of a file take longer, by SLOW_DISK_US microseconds: what scripts/slow-disk and tests put in front of a program. It is
   for programs that call the C library, as ours and SQLite do. Reads and writes take as long as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void wait_longer(void) {
    const char *text = getenv("SLOW_DISK_US");
    long micros = text ? atol(text) : 0;
    struct timespec left = {micros / 1000000, micros % 1000000 * 1000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}

static int slowly(const char *name, int file) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!sync) {
        errno = ENOSYS;
        return -1;
    }
    wait_longer();
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }

int fdatasync(int file) { return slowly("fdatasync", file); }
