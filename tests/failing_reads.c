// Loaded by LD_PRELOAD: opening and reading fail as often as $FAILING_READS says, then work.
//     FAILING_READS="open:NAME:ERRNO:COUNT;read:NAME:ERRNO:COUNT;..."      NAME ends the file's path
// Opened files are counted in $FAILING_READS_LOG, a line "open NAME" each, for the names above.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16 };
static struct fault {
    char call[8], name[64];
    int error;
    atomic_int left;
} faults[MOST];
static int count;

__attribute__((constructor)) static void parse(void) {
    const char* at = getenv("FAILING_READS");
    int left;
    while (at != NULL && count < MOST &&
           sscanf(at, "%7[^:]:%63[^:]:%d:%d", faults[count].call, faults[count].name, &faults[count].error, &left) == 4) {
        atomic_store(&faults[count++].left, left);
        at = strchr(at, ';');
        if (at != NULL) ++at;
    }
}

static int ends_with(const char* text, const char* end) {
    const size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

// Whether this call is to fail; errno is set then.
static int fails(const char* call, const char* path) {
    for (int i = 0; i < count; ++i) {
        if (strcmp(faults[i].call, call) != 0 || !ends_with(path, faults[i].name)) continue;
        if (atomic_fetch_sub(&faults[i].left, 1) <= 0) continue;
        errno = faults[i].error;
        return 1;
    }
    return 0;
}

static void log_open(const char* path) {
    const char* log = getenv("FAILING_READS_LOG");
    if (log == NULL) return;
    for (int i = 0; i < count; ++i) {
        if (!ends_with(path, faults[i].name)) continue;
        FILE* file = fopen(log, "a");
        if (file != NULL) {
            fprintf(file, "open %s\n", faults[i].name);
            fclose(file);
        }
        return;
    }
}

int open(const char* path, int flags, ...) {
    static int (*real)(const char*, int, ...);
    if (real == NULL) real = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
    va_list rest;
    va_start(rest, flags);
    const int mode = va_arg(rest, int);
    va_end(rest);
    if (fails("open", path)) return -1;
    log_open(path);
    return real(path, flags, mode);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
    static ssize_t (*real)(int, void*, size_t, off_t);
    if (real == NULL) real = (ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = '\0';
    return fails("read", path) ? -1 : real(fd, to, bytes, offset);
}
