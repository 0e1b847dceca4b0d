/* What a person types to start a job, as messages and the plan show it: to be copied as it stands. */
#ifndef LAUNCHER_COMMAND_LINE_H
#define LAUNCHER_COMMAND_LINE_H

#include <stddef.h>

#include "base/text.h"

/* Append "mpirun -n 4 ferry run x.yaml --set a=b".  The program is called as this process was, by name or by path;
 * words are quoted where a shell needs it. */
void command_line_add(struct text *text, int world, const char *command, const char *topology, const char *const *set,
                      size_t set_count);

#endif
