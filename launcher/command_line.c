/* A program that was called by its path is mostly in no folder that a starter searches, so the path stays. */
#include "launcher/command_line.h"

#include <errno.h>

#include "launcher/output.h"

void command_line_add(struct text *text, int world, const char *command, const char *topology, const char *const *set,
                      size_t set_count)
{
    text_add(text, "mpirun -n %d ", world);
    output_add_word(text, program_invocation_name);
    text_add(text, " %s ", command);
    output_add_word(text, topology);
    for (size_t i = 0; i < set_count; i++) {
        text_add(text, " --set ");
        output_add_word(text, set[i]);
    }
}
