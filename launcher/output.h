/* Results of a command that works offline: written to standard output at once, or not at all. */
#ifndef LAUNCHER_OUTPUT_H
#define LAUNCHER_OUTPUT_H

#include "base/status.h"
#include "base/text.h"

/* Write the text and flush.  STATUS_STORAGE (a full disk, a closed pipe), STATUS_NOMEM (the text has failed). */
enum status output_write(const struct text *text, struct error *err);

/* Append a word as a shell reads it back: quoted where it must be. */
void output_add_word(struct text *text, const char *word);

#endif
