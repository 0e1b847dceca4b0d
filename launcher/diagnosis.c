/* Each rank waits for one other at most, so waits are a graph in which every walk ends at a rank or in a cycle.  One
 * colour a walk finds them all.  Cost: linear in the ranks. */
#include "launcher/diagnosis.h"

#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"

enum { SHOWN = 8 /* ranks of a chain */ };

/* A wait that lasts so long is worth a word. */
#define LONG_NS (5 * NS_PER_S)

const char *life_word(enum life life)
{
    static const char *const word[LIFE_COUNT] = {
        [LIFE_MISSING] = "no file", [LIFE_UNREADABLE] = "unreadable",
        [LIFE_RUNNING] = "running", [LIFE_SILENT] = "silent",
        [LIFE_GONE] = "gone",       [LIFE_CLOSED] = "ended",
        [LIFE_FAILED] = "failed",   [LIFE_KILLED] = "killed",
    };

    return life < LIFE_COUNT ? word[life] : "unknown";
}

const char *verdict_word(enum verdict verdict)
{
    static const char *const word[] = {"unknown", "ended well", "running", "waiting", "failed", "gone"};

    return word[verdict];
}

void diagnosis_destroy(struct diagnosis *diagnosis)
{
    if (!diagnosis)
        return;
    free(diagnosis->next);
    free(diagnosis->end);
    free(diagnosis->depth);
    free(diagnosis->waiters);
    free(diagnosis->cycle);
    free(diagnosis);
}

static struct diagnosis *allocate(int size)
{
    struct diagnosis *diagnosis = calloc(1, sizeof *diagnosis);

    if (!diagnosis)
        return NULL;
    diagnosis->size = size;
    diagnosis->suspect = -1;
    diagnosis->next = calloc((size_t)size + 1, sizeof *diagnosis->next);
    diagnosis->end = calloc((size_t)size + 1, sizeof *diagnosis->end);
    diagnosis->depth = calloc((size_t)size + 1, sizeof *diagnosis->depth);
    diagnosis->waiters = calloc((size_t)size + 1, sizeof *diagnosis->waiters);
    diagnosis->cycle = calloc((size_t)size + 1, sizeof *diagnosis->cycle);
    if (diagnosis->next && diagnosis->end && diagnosis->depth && diagnosis->waiters && diagnosis->cycle)
        return diagnosis;
    diagnosis_destroy(diagnosis);
    return NULL;
}

/* Ended by a signal that asks to stop, as a starter does to those that are left. */
static bool asked_to_stop(const struct patient *patient)
{
    int number = patient->end_signal;

    return patient->life == LIFE_KILLED && (number == SIGTERM || number == SIGINT || number == SIGHUP);
}

/* Has any rank come to an end of its own?  Else nothing tells the ones that were asked to stop from the culprit. */
static bool any_own_end(const struct patient *patients, int size)
{
    bool own = false;

    for (int i = 0; i < size; i++)
        own = own ||
              (patients[i].life != LIFE_CLOSED && patients[i].life != LIFE_RUNNING && !asked_to_stop(&patients[i]));
    return own;
}

/* Has any rank's end been seen? Then one that has gone unseen went by itself, and not with all the others. */
static bool any_end(const struct patient *patients, int size)
{
    bool end = false;

    for (int i = 0; i < size; i++)
        end = end || patients[i].life == LIFE_FAILED || patients[i].life == LIFE_KILLED;
    return end;
}

/* A silent rank was perhaps stopped inside a wait that is long over; what a dead one waited for explains nothing. */
static int waits_for(const struct patient *patient, int size, bool own_end, bool end)
{
    bool counts = patient->life == LIFE_RUNNING || patient->life == LIFE_FAILED ||
                  (patient->life == LIFE_GONE && !end) || (own_end && asked_to_stop(patient));

    if (!counts || !patient->wait.waiting || patient->wait.peer >= size || patient->wait.peer == patient->rank)
        return -1;
    return patient->wait.peer;
}

/* The cycle that contains rank. */
static void mark_cycle(struct diagnosis *diagnosis, int rank)
{
    for (int at = rank; diagnosis->cycle[at] < 0; at = diagnosis->next[at])
        diagnosis->cycle[at] = diagnosis->cycle_count;
    diagnosis->cycle_count++;
}

/* end holds this while its rank has not been met, and -3 - FIRST during the walk from FIRST: meeting that again is a
 * cycle. */
enum { UNMET = -2 };

static void follow(struct diagnosis *diagnosis, int first)
{
    int walk = -3 - first;
    int steps = 0;
    int at = first;
    int end;

    while (diagnosis->end[at] == UNMET && diagnosis->next[at] >= 0) {
        diagnosis->end[at] = walk;
        at = diagnosis->next[at];
        steps++;
    }
    if (diagnosis->end[at] == UNMET)
        diagnosis->end[at] = at;
    if (diagnosis->end[at] == walk) {
        mark_cycle(diagnosis, at);
        diagnosis->end[at] = -1;
    }
    end = diagnosis->end[at];
    steps += diagnosis->depth[at];
    for (at = first; diagnosis->end[at] == walk; at = diagnosis->next[at], steps--) {
        diagnosis->end[at] = end;
        diagnosis->depth[at] = steps;
    }
    if (end >= 0)
        return;
    for (at = diagnosis->next[at]; diagnosis->end[at] == walk; at = diagnosis->next[at])
        diagnosis->end[at] = -1; /* the rest of the cycle */
}

static void count_waiters(struct diagnosis *diagnosis)
{
    for (int rank = 0; rank < diagnosis->size; rank++) {
        int end = diagnosis->end[rank];

        if (end >= 0 && end != rank)
            diagnosis->waiters[end]++;
    }
    for (int rank = 0; rank < diagnosis->size; rank++) {
        if (diagnosis->waiters[rank] &&
            (diagnosis->suspect < 0 || diagnosis->waiters[rank] > diagnosis->waiters[diagnosis->suspect]))
            diagnosis->suspect = rank;
    }
}

static enum verdict judge(const struct diagnosis *diagnosis, const struct patient *patients, bool moving)
{
    const int *of = diagnosis->of_life;
    bool waiting = diagnosis->cycle_count > 0 || of[LIFE_SILENT] > 0;

    for (int rank = 0; rank < diagnosis->size; rank++)
        waiting = waiting || (diagnosis->next[rank] >= 0 && patients[rank].waited_ns >= LONG_NS);
    if (of[LIFE_FAILED] || of[LIFE_KILLED])
        return VERDICT_FAILED;
    if (of[LIFE_CLOSED] == diagnosis->size && diagnosis->size)
        return VERDICT_WELL;
    if (moving)
        return waiting ? VERDICT_WAITING : VERDICT_RUNNING;
    return of[LIFE_GONE] || of[LIFE_SILENT] ? VERDICT_GONE : VERDICT_UNKNOWN;
}

enum status diagnosis_create(const struct patient *patients, int size, int culprit, bool moving, struct diagnosis **ret,
                             struct error *err)
{
    struct diagnosis *diagnosis = allocate(size);
    bool own_end = any_own_end(patients, size);
    bool end = any_end(patients, size);

    if (!diagnosis)
        return error_set(err, STATUS_NOMEM, "the diagnosis of %d ranks", size);
    for (int rank = 0; rank < size; rank++) {
        diagnosis->of_life[patients[rank].life]++;
        diagnosis->next[rank] = rank == culprit ? -1 : waits_for(&patients[rank], size, own_end, end);
        diagnosis->end[rank] = UNMET;
        diagnosis->cycle[rank] = -1;
    }
    for (int rank = 0; rank < size; rank++)
        follow(diagnosis, rank);
    count_waiters(diagnosis);
    for (int rank = 0; rank < size && !own_end; rank++) {
        if (asked_to_stop(&patients[rank]))
            diagnosis->outside = patients[rank].end_signal;
    }
    diagnosis->verdict = judge(diagnosis, patients, moving);
    *ret = diagnosis;
    return STATUS_OK;
}

void diagnosis_add_cycle(const struct diagnosis *diagnosis, int cycle, struct text *out)
{
    int first = 0;
    int at;
    int shown = 0;

    while (first < diagnosis->size && diagnosis->cycle[first] != cycle)
        first++;
    if (first == diagnosis->size)
        return;
    at = first;
    do {
        if (shown++ < SHOWN)
            text_add(out, "%d -> ", at);
        at = diagnosis->next[at];
    } while (at != first);
    text_add(out, "%s%d", shown > SHOWN ? "... -> " : "", first);
}

void diagnosis_add_chain(const struct diagnosis *diagnosis, int rank, struct text *out)
{
    int first = rank;
    int longest;
    int step = 0;

    for (int other = 0; other < diagnosis->size; other++) {
        if (diagnosis->end[other] == rank && diagnosis->depth[other] > diagnosis->depth[first])
            first = other;
    }
    longest = diagnosis->depth[first];
    for (int at = first; at != rank; at = diagnosis->next[at], step++) {
        if (longest <= SHOWN || step < SHOWN / 2 || step >= longest - SHOWN / 2)
            text_add(out, "%d -> ", at);
        else if (step == SHOWN / 2)
            text_add(out, "... -> ");
    }
    text_add(out, "%d", rank);
}
