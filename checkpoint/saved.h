/* A model that is only described: the saved output of `ferry inspect --json`.  Enough to plan. */
#ifndef CHECKPOINT_SAVED_H
#define CHECKPOINT_SAVED_H

#include <stdbool.h>

#include "checkpoint/checkpoint_private.h"

/* Does the file look like one? */
bool saved_begins(const char *path);

/* Fill in a fresh checkpoint from checkpoint->path.  STATUS_MODEL names the line, STATUS_UNSUPPORTED, STATUS_STORAGE,
 * STATUS_NOMEM. */
enum status saved_open(struct checkpoint *checkpoint, struct error *err);

#endif
