/* What was meant by a word that is not one of ours. */
#ifndef TOPOLOGY_SUGGESTION_H
#define TOPOLOGY_SUGGESTION_H

#include "base/text.h"
#include "topology/keys.h"

/* Appends what an unknown key of this section may have been: "; did you mean `tensor`?", "; it belongs in
 * `launch.slurm`", or nothing. */
void suggestion_for_key(const struct key_section *section, const char *name, size_t length, struct text *text);

#endif
