/* A dump of memory would fill every page of every file that it writes: maps are left out of it. */
#include "base/shared_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that would exceed the limit on files kills its writer. */
static bool may_grow(uint64_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

static bool fill(const struct shared_file *file)
{
    return ftruncate(file->fd, (off_t)file->bytes) == 0 &&
           pwrite(file->fd, &file->nonce, sizeof file->nonce, 0) == (ssize_t)sizeof file->nonce &&
           fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

bool shared_file_create(const char *name, uint64_t bytes, struct shared_file *ret)
{
    *ret = (struct shared_file){.fd = -1, .bytes = bytes};
    if (bytes > INT64_MAX || !may_grow(bytes) || getrandom(&ret->nonce, sizeof ret->nonce, 0) != sizeof ret->nonce)
        return false;
    ret->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ret->fd >= 0 && fill(ret))
        return true;
    shared_file_close(ret);
    return false;
}

void shared_file_close(struct shared_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

/* Is this a file of that length, which cannot become shorter? */
static bool is_whole(int fd, uint64_t bytes)
{
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && bytes >= SHARED_FILE_NONCE_BYTES && !fstat(fd, &about) &&
           about.st_size >= 0 && (uint64_t)about.st_size == bytes;
}

void *shared_file_map(int fd, const struct shared_file *file, bool written)
{
    uint64_t nonce = 0;
    void *at = NULL;

    if (!is_whole(fd, file->bytes))
        return NULL;
    at = mmap(NULL, file->bytes, written ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, file->bytes, MADV_DONTDUMP);
    memcpy(&nonce, at, sizeof nonce);
    if (nonce == file->nonce)
        return at;
    shared_file_unmap(at, file);
    return NULL;
}

void shared_file_unmap(void *at, const struct shared_file *file)
{
    if (at)
        (void)munmap(at, file->bytes);
}
