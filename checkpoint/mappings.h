/* The table of mappings: which addresses are which file, for the one who must explain a SIGBUS.
 *
 * The only state of this library that is no object's: a signal handler is given nothing but an address. */
#ifndef CHECKPOINT_MAPPINGS_H
#define CHECKPOINT_MAPPINGS_H

#include <stddef.h>

#include "base/status.h"

enum { MAPPINGS_LIMIT = 4096 };

/* Enter [begin, begin + bytes) as the file path, which must stay alive (borrows) until mappings_remove(begin).
 * Safe from several threads.  STATUS_OVERFLOW when MAPPINGS_LIMIT files are mapped already. */
enum status mappings_add(const void *begin, size_t bytes, const char *path, struct error *err);
void mappings_remove(const void *begin);

/* checkpoint_catch_sigbus of checkpoint.h is implemented here. */

#endif
