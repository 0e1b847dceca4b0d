/* An unnamed file in memory that other processes of the host map: nothing of it is left behind, however its owner ends.
 *
 * A number drawn at random lies at its beginning and tells a peer that what it has opened is that file.  Its length
 * never changes, so whoever has mapped it meets no end in it, whatever its owner does. */
#ifndef BASE_SHARED_FILE_H
#define BASE_SHARED_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHARED_FILE_NONCE_BYTES = 8 }; /* at the beginning */

/* What a peer needs to find it. */
struct shared_file {
    int fd; /* in its owner; -1: there is none */
    uint64_t bytes;
    uint64_t nonce;
};

/* One of so many bytes, zeros behind the number (returns); name is what the system calls its maps.  False: this process
 * cannot have one (its system, or a limit on files), and ret->fd is -1. */
bool shared_file_create(const char *name, uint64_t bytes, struct shared_file *ret);
/* The maps stay; twice is allowed. */
void shared_file_close(struct shared_file *file);

/* Map it (returns); no dump of memory after a crash has its pages.  fd is the file as it was opened here (borrowed),
 * file what its owner says of it.  written: for writing, too.  NULL: it is not that file, or it could become shorter,
 * so that a look at it would end this process. */
void *shared_file_map(int fd, const struct shared_file *file, bool written);
void shared_file_unmap(void *at, const struct shared_file *file); /* NULL is allowed */

#endif
