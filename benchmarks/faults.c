// Counts a process' operations on files below one folder, native ones included, and at
// the n-th kills the process or lets the operation fail. Loaded with LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static atomic_long count, at;   // operations so far; the one that is hit, 0: none
static int error_number;        // 0: kill

void faults_arm(const char *path, long n, int error) {
  strncpy(folder, path, sizeof(folder) - 1);
  error_number = error;
  count = 0;
  at = n;
}
long faults_count(void) { return count; }
void faults_disarm(void) { folder[0] = 0; }

static int hit(void) {  // 1: fail now
  long now = ++count;
  if (now != at) return 0;
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
         : fd == AT_FDCWD      ? 0
                               : below_fd(fd);
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define PATH1(name)                                  \
  int name(const char *a) {                          \
    if (below(a) && hit()) return -1;                \
    return NEXT(name)(a);                            \
  }
PATH1(unlink) PATH1(rmdir)

int mkdir(const char *a, mode_t m) {
  if (below(a) && hit()) return -1;
  return NEXT(mkdir)(a, m);
}
int mkdirat(int f, const char *a, mode_t m) {
  if (below_at(f, a) && hit()) return -1;
  return NEXT(mkdirat)(f, a, m);
}
int rename(const char *a, const char *b) {
  if (below(b) && hit()) return -1;
  return NEXT(rename)(a, b);
}
int renameat(int f, const char *a, int g, const char *b) {
  if (below_at(g, b) && hit()) return -1;
  return NEXT(renameat)(f, a, g, b);
}
int link(const char *a, const char *b) {
  if (below(b) && hit()) return -1;
  return NEXT(link)(a, b);
}
int unlinkat(int f, const char *a, int flags) {
  if (below_at(f, a) && hit()) return -1;
  return NEXT(unlinkat)(f, a, flags);
}
#define OPEN(name)                                             \
  int name(const char *a, int flags, ...) {                    \
    va_list list;                                              \
    va_start(list, flags);                                     \
    mode_t mode = va_arg(list, mode_t);                        \
    va_end(list);                                              \
    if (below(a) && hit()) return -1;                          \
    return NEXT(name)(a, flags, mode);                         \
  }
OPEN(open) OPEN(open64)
#define OPENAT(name)                                           \
  int name(int f, const char *a, int flags, ...) {             \
    va_list list;                                              \
    va_start(list, flags);                                     \
    mode_t mode = va_arg(list, mode_t);                        \
    va_end(list);                                              \
    if (below_at(f, a) && hit()) return -1;                    \
    return NEXT(name)(f, a, flags, mode);                      \
  }
OPENAT(openat) OPENAT(openat64)
ssize_t write(int f, const void *data, size_t size) {
  if (f > 2 && below_fd(f) && hit()) return -1;
  return NEXT(write)(f, data, size);
}
ssize_t pwrite(int f, const void *data, size_t size, off_t o) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(pwrite)(f, data, size, o);
}
ssize_t pwrite64(int f, const void *data, size_t size, off64_t o) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(pwrite64)(f, data, size, o);
}
ssize_t writev(int f, const struct iovec *v, int n) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(writev)(f, v, n);
}
ssize_t pwritev(int f, const struct iovec *v, int n, off_t o) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(pwritev)(f, v, n, o);
}
#define FD(name)                                               \
  int name(int f) {                                            \
    if (below_fd(f) && hit()) return -1;                       \
    return NEXT(name)(f);                                      \
  }
FD(fsync) FD(fdatasync)
int ftruncate(int f, off_t size) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(ftruncate)(f, size);
}
int ftruncate64(int f, off64_t size) {
  if (below_fd(f) && hit()) return -1;
  return NEXT(ftruncate64)(f, size);
}
FILE *fopen(const char *a, const char *mode) {
  if (below(a) && hit()) return NULL;
  return NEXT(fopen)(a, mode);
}
FILE *fopen64(const char *a, const char *mode) {
  if (below(a) && hit()) return NULL;
  return NEXT(fopen64)(a, mode);
}
