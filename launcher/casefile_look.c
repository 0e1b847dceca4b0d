/* What no file can tell: a stopped process writes nothing, and a stopped keeper does not see that its rank has ended
 * well. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launcher/casefile.h"
#include "launcher/process.h"

/* A rank opens its file within its life; a process that began later has only got its number. */
#define LATER_NS (1 * NS_PER_S)

static const char *halt(char state)
{
    return state == 'T' ? "is stopped" : state == 't' ? "is held by a debugger" : NULL;
}

static void look(const struct patient *patient, struct text *out)
{
    struct process worker;
    struct process keeper;

    if (!process_read(patient->pid, &worker) || worker.started_unix_ns > patient->started_unix_ns + LATER_NS)
        return;
    if (halt(worker.state))
        text_add(out, "rank %d: process %d %s: kill -CONT %d continues a stopped one\n", patient->rank, patient->pid,
                 halt(worker.state), patient->pid);
    if (!process_read(worker.parent, &keeper) || strcmp(keeper.name, worker.name) != 0)
        return;
    if (halt(keeper.state))
        text_add(out, "rank %d%s: its keeper, process %d, %s: kill -CONT %d continues a stopped one\n", patient->rank,
                 worker.state == 'Z' ? " has ended, unseen" : "", worker.parent, halt(keeper.state), worker.parent);
}

void casefile_look(struct casefile *casefile, const char *host)
{
    for (int i = 0; i < casefile->size && !casefile->starting; i++) {
        const struct patient *patient = &casefile->patients[i];

        if (patient->pid > 0 && host[0] && strncmp(patient->host, host, sizeof patient->host - 1) == 0)
            look(patient, &casefile->processes);
    }
}
