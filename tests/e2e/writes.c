/* Says who wrote what: preloaded (LD_PRELOAD) into every process of a job, so that files written by Python, by
 * native code (safetensors, torch) and by shell commands are all seen. For each file below $WRITES_BELOW that is
 * opened for writing, renamed to, linked, made or removed, a line "RANK PID KIND INODE PATH" is appended to
 * $WRITES_LOG. RANK is the environment variable of that name, "-" where there is none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `real`: the function of this name that the next library offers. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void record(const char *kind, const char *path) {
    static int (*open_log)(const char *, int, ...);
    const char *below = getenv("WRITES_BELOW"), *log = getenv("WRITES_LOG"), *rank = getenv("RANK");
    struct stat about = {0};
    char line[PATH_MAX + 64];
    if (!below || !log || strncmp(path, below, strlen(below)) || path[strlen(below)] != '/') return;
    lstat(path, &about);
    int size = snprintf(line, sizeof line, "%s %d %s %lu %s\n", rank ? rank : "-", (int)getpid(), kind,
                        (unsigned long)about.st_ino, path);
    if (!open_log) open_log = (__typeof__(open_log))dlsym(RTLD_NEXT, "open");
    int fd = open_log(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line, size) != size) perror(log);
    close(fd);
}

/* A file that is now open: its descriptor knows its path, with links and folders resolved. */
static int opened(int fd, int flags) {
    if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY) {
        char link[32], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, path, sizeof path - 1);
        if (size > 0) {
            path[size] = 0;
            record("write", path);
        }
    }
    return fd;
}

static FILE *streamed(FILE *file) {
    if (file) opened(fileno(file), fcntl(fileno(file), F_GETFL));
    return file;
}

/* A name that was made or removed in the folder `dir`: its folder is resolved, its last part kept. */
static int changed(int result, const char *kind, int dir, const char *name) {
    char path[PATH_MAX], full[PATH_MAX + NAME_MAX];
    if (result) return result;
    if (name[0] == '/') snprintf(path, sizeof path, "%s", name);
    else if (dir == AT_FDCWD) snprintf(path, sizeof path, "./%s", name);
    else snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    for (size_t last = strlen(path) - 1; last && path[last] == '/'; last--) path[last] = 0;
    char *slash = strrchr(path, '/');
    *slash = 0;
    if (!realpath(*path ? path : "/", full)) return result;
    size_t used = strlen(full);
    snprintf(full + used, sizeof full - used, "/%s", slash + 1);
    record(kind, full);
    return result;
}

/* open(2) has its third argument only where a file may be made. */
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) REAL(name); \
        return opened(real(path, flags, mode), flags); \
    }
#define OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) { \
        MODE(flags) REAL(name); \
        return opened(real(dir, path, flags, mode), flags); \
    }
#define CREAT(name) \
    int name(const char *path, mode_t mode) { \
        REAL(name); \
        return opened(real(path, mode), O_WRONLY); \
    }
#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        return streamed(real(path, mode)); \
    }
#define CHANGE(name, kind, dir, path, values, ...) \
    int name(__VA_ARGS__) { \
        REAL(name); \
        return changed(real values, kind, dir, path); \
    }

OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) CREAT(creat) CREAT(creat64) FOPEN(fopen) FOPEN(fopen64)
CHANGE(truncate, "write", AT_FDCWD, path, (path, size), const char *path, off_t size)
CHANGE(mkdir, "mkdir", AT_FDCWD, path, (path, mode), const char *path, mode_t mode)
CHANGE(mkdirat, "mkdir", dir, path, (dir, path, mode), int dir, const char *path, mode_t mode)
CHANGE(rename, "rename", AT_FDCWD, to, (from, to), const char *from, const char *to)
CHANGE(renameat, "rename", b, to, (a, from, b, to), int a, const char *from, int b, const char *to)
CHANGE(renameat2, "rename", b, to, (a, from, b, to, flags),
       int a, const char *from, int b, const char *to, unsigned flags)
CHANGE(link, "link", AT_FDCWD, to, (from, to), const char *from, const char *to)
CHANGE(linkat, "link", b, to, (a, from, b, to, flags), int a, const char *from, int b, const char *to, int flags)
CHANGE(symlink, "link", AT_FDCWD, to, (from, to), const char *from, const char *to)
CHANGE(symlinkat, "link", b, to, (from, b, to), const char *from, int b, const char *to)
CHANGE(unlink, "remove", AT_FDCWD, path, (path), const char *path)
CHANGE(unlinkat, "remove", dir, path, (dir, path, flags), int dir, const char *path, int flags)
CHANGE(rmdir, "remove", AT_FDCWD, path, (path), const char *path)
CHANGE(remove, "remove", AT_FDCWD, path, (path), const char *path)
