/* Faults on demand: FERRY_STANDIN_FAULT="rank=1,op=3,kind=flip:17;rank=2,kind=init".  A process knows its rank by the
 * variables of its launcher, or by FERRY_STANDIN_RANK. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/standin.h"

struct entry {
    struct standin_fault fault;
    long rank; /* -1: every process */
};

static const struct {
    const char *word;
    enum standin_fault_kind kind;
} kinds[] = {{"delay", FAULT_DELAY},     {"kill", FAULT_KILL},   {"short", FAULT_SHORT}, {"flip", FAULT_FLIP},
             {"init", FAULT_INIT},       {"error", FAULT_ERROR}, {"split", FAULT_SPLIT}, {"lost", FAULT_LOST},
             {"unready", FAULT_UNREADY}, {"pin", FAULT_PIN}};

static long own_rank(void)
{
    static const char *const names[] = {"FERRY_STANDIN_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value && *value)
            return strtol(value, NULL, 10);
    }
    return -1;
}

static void refuse(const char *text)
{
    fprintf(stderr, "stand-in: FERRY_STANDIN_FAULT: \"%s\" is not rank=, op= or kind= with a known word\n", text);
    _Exit(2);
}

static void read_kind(struct entry *entry, const char *value, const char *field)
{
    size_t word = strcspn(value, ":");

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].word) == word && strncmp(kinds[i].word, value, word) == 0) {
            entry->fault.kind = kinds[i].kind;
            entry->fault.value = value[word] ? strtol(value + word + 1, NULL, 10) : 0;
            return;
        }
    }
    refuse(field);
}

static struct entry read_entry(char *text)
{
    struct entry entry = {.fault = {.op = -1}, .rank = -1};
    char *rest = NULL;

    for (char *field = strtok_r(text, ",", &rest); field; field = strtok_r(NULL, ",", &rest)) {
        if (strncmp(field, "rank=", 5) == 0)
            entry.rank = strtol(field + 5, NULL, 10);
        else if (strncmp(field, "op=", 3) == 0)
            entry.fault.op = strtol(field + 3, NULL, 10);
        else if (strncmp(field, "kind=", 5) == 0)
            read_kind(&entry, field + 5, field);
        else
            refuse(field);
    }
    return entry;
}

struct standin_fault standin_fault_at(enum standin_fault_kind kind, long op)
{
    struct standin_fault found = {.kind = FAULT_NONE};
    const char *variable = getenv("FERRY_STANDIN_FAULT");
    char text[1024];
    char *rest = NULL;

    if (!variable || !*variable)
        return found;
    snprintf(text, sizeof text, "%s", variable);
    for (char *part = strtok_r(text, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) {
        struct entry entry = read_entry(part);

        if ((entry.rank == -1 || entry.rank == own_rank()) &&
            (kind == FAULT_NONE ? entry.fault.op == op && entry.fault.kind != FAULT_LOST
                                : entry.fault.kind == kind && (entry.fault.op == -1 || entry.fault.op == op)))
            found = entry.fault;
    }
    return found;
}
