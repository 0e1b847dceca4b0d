/* Interrupted and short reads are continued; an end of file is an error, because every size was known before. */
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"

enum status file_open(const char *path, int *ret_descriptor, uint64_t *ret_bytes, struct error *err)
{
    struct stat facts;
    /* Non-blocking, so that a FIFO in the place of a file cannot hang the start. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (descriptor < 0)
        return error_set(err, STATUS_STORAGE, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(descriptor, &facts)) {
        error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(facts.st_mode)) {
        error_set(err, STATUS_STORAGE, "%s: not a regular file", path);
        goto fail;
    }
    *ret_descriptor = descriptor;
    *ret_bytes = (uint64_t)facts.st_size;
    return STATUS_OK;
fail:
    close(descriptor);
    return STATUS_STORAGE;
}

enum status file_read(int descriptor, const char *path, uint64_t offset, size_t bytes, void *memory, struct error *err)
{
    unsigned char *next = memory;

    while (bytes) {
        size_t piece = bytes < FILE_PIECE_BYTES ? bytes : FILE_PIECE_BYTES;
        ssize_t got = pread(descriptor, next, piece, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_STORAGE, "%s: cannot read at offset %" PRIu64 ": %s", path, offset,
                             strerror(errno));
        if (!got)
            return error_set(err, STATUS_STORAGE, "%s: the file ends at offset %" PRIu64 ", %zu bytes too early", path,
                             offset, bytes);
        next += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return STATUS_OK;
}

enum status file_read_all(const char *path, size_t limit, char **ret, size_t *ret_bytes, struct error *err)
{
    uint64_t bytes = 0;
    int descriptor = -1;
    char *memory = NULL;
    enum status st = file_open(path, &descriptor, &bytes, err);

    if (st != STATUS_OK)
        return st;
    if (bytes > limit)
        st = error_set(err, STATUS_MODEL, "%s: %" PRIu64 " bytes, at most %zu are read", path, bytes, limit);
    else if (!(memory = malloc((size_t)bytes + 1)))
        st = error_set(err, STATUS_NOMEM, "%s: %" PRIu64 " bytes", path, bytes);
    else
        st = file_read(descriptor, path, 0, (size_t)bytes, memory, err);
    close(descriptor);
    if (st != STATUS_OK) {
        free(memory);
        return st;
    }
    memory[bytes] = '\0';
    *ret = memory;
    *ret_bytes = (size_t)bytes;
    return STATUS_OK;
}

char *file_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    size_t name_length = strlen(name);
    char *path = malloc(length + name_length + 2);

    if (!path)
        return NULL;
    memcpy(path, folder, length);
    if (length && path[length - 1] != '/')
        path[length++] = '/';
    memcpy(path + length, name, name_length + 1);
    return path;
}

const char *file_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
