// Counts a process' operations on files below one folder, native ones included, and at
// the n-th kills the process or lets the operation fail. Loaded with LD_PRELOAD.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static atomic_long count, at;   // operations so far; the one that is hit, 0: none
static int error_number;        // 0: kill
static int reads;               // whether operations that change nothing count
static int stays;               // whether what needs room fails from there on

void faults_arm(const char *path, long n, int error, int also_reads, int for_good) {
  strncpy(folder, path, sizeof(folder) - 1);
  error_number = error;
  reads = also_reads;
  stays = for_good;
  count = 0;
  at = n;
}
long faults_count(void) { return count; }
void faults_disarm(void) { folder[0] = 0; }

enum { CHANGES, NEEDS_ROOM, READS };

static int hit(int kind) {  // 1: fail now
  if (kind == READS && !reads) return 0;
  long now = ++count;
  if (now != at && !(stays && at && now > at && kind == NEEDS_ROOM)) return 0;
  if (!error_number) {
    kill(getpid(), SIGKILL);
    pause();
  }
  errno = error_number;
  return 1;
}
static int below(const char *path) {
  return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0;
}
static int below_fd(int fd) {
  if (!folder[0] || fd < 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return below(path);
}
static int below_at(int fd, const char *path) {
  return path && path[0] == '/' ? below(path)
         : fd == AT_FDCWD       ? 0
                                : below_fd(fd);
}
static int flags_kind(int flags) { return flags & O_CREAT ? NEEDS_ROOM : READS; }
static int mode_kind(const char *mode) {
  return strchr(mode, 'r') && !strchr(mode, '+') ? READS : NEEDS_ROOM;
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(result, name, takes, passes, where, kind, failed) \
  result name takes {                                          \
    if ((where) && hit(kind)) return failed;                   \
    return NEXT(name) passes;                                  \
  }
#define INT(name, takes, passes, where, kind) \
  WRAP(int, name, takes, passes, where, kind, -1)
#define SIZE(name, takes, passes, where, kind) \
  WRAP(ssize_t, name, takes, passes, where, kind, -1)

// What changes names and modes.
INT(unlink, (const char *a), (a), below(a), CHANGES)
INT(rmdir, (const char *a), (a), below(a), CHANGES)
INT(unlinkat, (int f, const char *a, int g), (f, a, g), below_at(f, a), CHANGES)
INT(rename, (const char *a, const char *b), (a, b), below(b), CHANGES)
INT(renameat, (int f, const char *a, int g, const char *b), (f, a, g, b),
    below_at(g, b), CHANGES)
INT(renameat2, (int f, const char *a, int g, const char *b, unsigned u),
    (f, a, g, b, u), below_at(g, b), CHANGES)
INT(mkdir, (const char *a, mode_t m), (a, m), below(a), NEEDS_ROOM)
INT(mkdirat, (int f, const char *a, mode_t m), (f, a, m), below_at(f, a), NEEDS_ROOM)
INT(link, (const char *a, const char *b), (a, b), below(b), NEEDS_ROOM)
INT(linkat, (int f, const char *a, int g, const char *b, int h), (f, a, g, b, h),
    below_at(g, b), NEEDS_ROOM)
INT(symlink, (const char *a, const char *b), (a, b), below(b), NEEDS_ROOM)
INT(chmod, (const char *a, mode_t m), (a, m), below(a), CHANGES)
INT(fchmod, (int f, mode_t m), (f, m), below_fd(f), CHANGES)
INT(fchmodat, (int f, const char *a, mode_t m, int g), (f, a, m, g), below_at(f, a),
    CHANGES)

// What changes content.
SIZE(write, (int f, const void *d, size_t n), (f, d, n), f > 2 && below_fd(f),
     NEEDS_ROOM)
SIZE(pwrite, (int f, const void *d, size_t n, off_t o), (f, d, n, o), below_fd(f),
     NEEDS_ROOM)
SIZE(pwrite64, (int f, const void *d, size_t n, off64_t o), (f, d, n, o),
     below_fd(f), NEEDS_ROOM)
SIZE(writev, (int f, const struct iovec *v, int n), (f, v, n), below_fd(f),
     NEEDS_ROOM)
SIZE(pwritev, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o),
     below_fd(f), NEEDS_ROOM)
INT(fsync, (int f), (f), below_fd(f), NEEDS_ROOM)
INT(fdatasync, (int f), (f), below_fd(f), NEEDS_ROOM)
INT(ftruncate, (int f, off_t n), (f, n), below_fd(f), NEEDS_ROOM)
INT(ftruncate64, (int f, off64_t n), (f, n), below_fd(f), NEEDS_ROOM)
int close(int f) {  // the system closes it all the same
  int failed = below_fd(f) && hit(CHANGES);
  int error = errno, result = NEXT(close)(f);
  if (!failed) return result;
  errno = error;
  return -1;
}

// What opens.
#define OPEN(name)                                    \
  int name(const char *a, int flags, ...) {           \
    va_list list;                                     \
    va_start(list, flags);                            \
    mode_t mode = va_arg(list, mode_t);               \
    va_end(list);                                     \
    if (below(a) && hit(flags_kind(flags))) return -1; \
    return NEXT(name)(a, flags, mode);                \
  }
OPEN(open) OPEN(open64)
#define OPENAT(name)                                          \
  int name(int f, const char *a, int flags, ...) {            \
    va_list list;                                             \
    va_start(list, flags);                                    \
    mode_t mode = va_arg(list, mode_t);                       \
    va_end(list);                                             \
    if (below_at(f, a) && hit(flags_kind(flags))) return -1;  \
    return NEXT(name)(f, a, flags, mode);                     \
  }
OPENAT(openat) OPENAT(openat64)
WRAP(FILE *, fopen, (const char *a, const char *m), (a, m), below(a), mode_kind(m),
     NULL)
WRAP(FILE *, fopen64, (const char *a, const char *m), (a, m), below(a), mode_kind(m),
     NULL)
WRAP(DIR *, opendir, (const char *a), (a), below(a), READS, NULL)
WRAP(DIR *, fdopendir, (int f), (f), below_fd(f), READS, NULL)

// What reads.
SIZE(read, (int f, void *d, size_t n), (f, d, n), f > 2 && below_fd(f), READS)
SIZE(pread, (int f, void *d, size_t n, off_t o), (f, d, n, o), below_fd(f), READS)
SIZE(pread64, (int f, void *d, size_t n, off64_t o), (f, d, n, o), below_fd(f), READS)
SIZE(preadv, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o),
     below_fd(f), READS)
SIZE(preadv64, (int f, const struct iovec *v, int n, off64_t o), (f, v, n, o),
     below_fd(f), READS)
SIZE(preadv64v2, (int f, const struct iovec *v, int n, off64_t o, int g),
     (f, v, n, o, g), below_fd(f), READS)
#define STAT(name, type) \
  INT(name, (const char *a, struct type *s), (a, s), below(a), READS)
STAT(stat, stat) STAT(lstat, stat) STAT(stat64, stat64) STAT(lstat64, stat64)
INT(fstat, (int f, struct stat *s), (f, s), below_fd(f), READS)
INT(fstat64, (int f, struct stat64 *s), (f, s), below_fd(f), READS)
INT(fstatat, (int f, const char *a, struct stat *s, int g), (f, a, s, g),
    below_at(f, a), READS)
INT(fstatat64, (int f, const char *a, struct stat64 *s, int g), (f, a, s, g),
    below_at(f, a), READS)
