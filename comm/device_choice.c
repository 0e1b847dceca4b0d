/* Each rank chooses among few devices and few ranks share a machine, so the loops are plain; the ranks of other
 * machines are skipped by comparing one string. */
#include "comm/device_choice.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool same_device(const struct device_offer *a, int i, const struct device_offer *b, int j)
{
    return strcmp(a->machine, b->machine) == 0 && strcmp(a->device[i].pci, b->device[j].pci) == 0;
}

static bool is_free(const struct device_offer *offers, const int *indices, int size, int rank, int index)
{
    for (int other = 0; other < size; other++) {
        if (indices[other] >= 0 && same_device(&offers[rank], index, &offers[other], indices[other]))
            return false;
    }
    return true;
}

/* The first free device, of its own NUMA node alone where near is set; -1: none. */
static int first_free(const struct device_offer *offers, const int *indices, int size, int rank, bool near)
{
    const struct device_offer *offer = &offers[rank];

    for (int i = 0; i < offer->count; i++) {
        bool here = offer->numa_node >= 0 && offer->device[i].numa_node == offer->numa_node;

        if ((here || !near) && is_free(offers, indices, size, rank, i))
            return i;
    }
    return -1;
}

static void take_wanted(const struct device_offer *offers, int size, int *indices)
{
    for (int rank = 0; rank < size; rank++) {
        bool there = offers[rank].wanted >= 0 && offers[rank].wanted < offers[rank].count;

        indices[rank] = there ? offers[rank].wanted : -1;
    }
}

static void take_free(const struct device_offer *offers, int size, int *indices, bool near)
{
    for (int count = 1; count <= DEVICE_OFFER_MOST; count++) {
        for (int rank = 0; rank < size; rank++) {
            if (offers[rank].count == count && indices[rank] < 0)
                indices[rank] = first_free(offers, indices, size, rank, near);
        }
    }
}

/* How many lower ranks of this machine are left without one, so that those who must share spread over all. */
static void take_shared(const struct device_offer *offers, int size, int *indices)
{
    bool *late = calloc((size_t)size, sizeof *late);

    for (int rank = 0; rank < size; rank++) {
        int before = 0;

        if (indices[rank] >= 0 || !offers[rank].count)
            continue;
        for (int other = 0; late && other < rank; other++)
            before += late[other] && strcmp(offers[other].machine, offers[rank].machine) == 0;
        indices[rank] = before % offers[rank].count;
        if (late)
            late[rank] = true;
    }
    free(late);
}

void device_choose(const struct device_offer *offers, int size, int *indices)
{
    take_wanted(offers, size, indices);
    take_free(offers, size, indices, true);
    take_free(offers, size, indices, false);
    take_shared(offers, size, indices);
}

/* Printf behind what stands there; what does not fit is cut. */
static void __attribute__((format(printf, 3, 4))) append(char *text, size_t text_bytes, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text + length, text_bytes - length, format, arguments);
    va_end(arguments);
}

/* One row when rank is the lowest of several on its device. */
static bool add_row(const struct device_offer *offers, const int *indices, int size, int rank, char *text,
                    size_t text_bytes)
{
    const struct device_offer *offer = &offers[rank];
    bool shared = false;

    for (int other = 0; other < size; other++) {
        if (other == rank || indices[other] < 0 || !same_device(offer, indices[rank], &offers[other], indices[other]))
            continue;
        if (other < rank)
            return false;
        if (!shared)
            append(text, text_bytes, "%sGPU %s on %s: ranks %d", *text ? "; " : "", offer->device[indices[rank]].pci,
                   offer->host, rank);
        append(text, text_bytes, ", %d", other);
        shared = true;
    }
    return shared;
}

int device_collisions(const struct device_offer *offers, const int *indices, int size, char *text, size_t text_bytes)
{
    int rows = 0;

    text[0] = '\0';
    for (int rank = 0; rank < size; rank++)
        rows += indices[rank] >= 0 && add_row(offers, indices, size, rank, text, text_bytes);
    return rows;
}

/* Does rank lack the same as like, on the same host? */
static bool lacks_the_same(const struct device_offer *offers, const int *indices, int rank, int like)
{
    return indices[rank] < 0 && strcmp(offers[rank].host, offers[like].host) == 0 &&
           strcmp(offers[rank].why, offers[like].why) == 0;
}

/* "ranks 0, 1, 4 and 9 more": those that lack what rank lacks.  Returns how many; 0: a lower one has told of it. */
static int add_alike(const struct device_offer *offers, const int *indices, int size, int rank, char *text,
                     size_t text_bytes)
{
    enum { NAMED = 8 };
    char list[NAMED * 16] = "";
    int count = 0;

    for (int other = 0; other < size; other++) {
        if (!lacks_the_same(offers, indices, other, rank))
            continue;
        if (other < rank)
            return 0;
        if (count++ < NAMED)
            append(list, sizeof list, "%s%d", *list ? ", " : "", other);
    }
    append(text, text_bytes, "%srank%s %s", *text ? "; " : "", count == 1 ? "" : "s", list);
    if (count > NAMED)
        append(text, text_bytes, " and %d more", count - NAMED);
    return count;
}

/* Ranks without a device; at most three different reasons, each once a host. */
static int add_lacking(const struct device_offer *offers, const int *indices, int size, char *text, size_t text_bytes)
{
    enum { TOLD = 3 };
    int lacking = 0;
    int told = 0;
    int reasons = 0;

    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        int alike;

        if (indices[rank] >= 0)
            continue;
        lacking++;
        alike = reasons < TOLD ? add_alike(offers, indices, size, rank, text, text_bytes) : 0;
        if (!alike)
            continue;
        append(text, text_bytes, " on %s: %.500s", offers[rank].host, offers[rank].why);
        told += alike;
        reasons++;
    }
    if (lacking > told)
        append(text, text_bytes, "; and %d more ranks", lacking - told);
    return lacking;
}

/* What all ranks wish; DEVICE_UNDECIDED when one could not tell, or they differ. */
static enum device_wish common_wish(const struct device_offer *offers, int size)
{
    for (int rank = 1; rank < size; rank++) {
        if (offers[rank].wish != offers[0].wish)
            return DEVICE_UNDECIDED;
    }
    return offers[0].wish;
}

/* Host memory and mpi, or the end of the run where the topology leaves no such choice. */
static void refuse(struct device_verdict *ret, enum device_wish wish, const char *reason)
{
    static const char *const wanted[] = {
        [DEVICE_WANTED] = "transport nccl",
        [DEVICE_MEMORY_WANTED] = "communication.memory: device",
        [DEVICE_STAGING_WANTED] = "communication.memory: device",
    };

    if (wish != DEVICE_WELCOME) {
        ret->status = STATUS_ENVIRONMENT;
        (void)snprintf(ret->text, sizeof ret->text, "%s: %.1900s", wanted[wish], reason);
    } else {
        (void)snprintf(ret->text, sizeof ret->text, "transport auto takes mpi: %.1900s", reason);
    }
}

/* Ranks that have devices, but not the library for messages between them.  *ret_text: "" when there are none. */
static void find_library_lacking(const struct device_offer *offers, int size, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        if (offers[rank].native)
            continue;
        append(text, text_bytes, "NCCL is missing on rank %d (%s): %.500s", rank, offers[rank].host, offers[rank].why);
        return;
    }
}

/* Why NCCL cannot be used by ranks that all have a device; "" when it can. */
static void find_obstacle(const struct device_offer *offers, const int *indices, int size, char *text,
                          size_t text_bytes)
{
    char table[1200];

    find_library_lacking(offers, size, text, text_bytes);
    if (!*text && device_collisions(offers, indices, size, table, sizeof table))
        append(text, text_bytes, "NCCL refuses two ranks on one GPU: %s", table);
}

/* Every rank has a device, though perhaps not one of its own. */
static void decide_way(const struct device_offer *offers, const int *indices, int size, enum device_wish wish,
                       struct device_verdict *ret)
{
    static const char staged[] = "tensors in device memory go through pinned memory of the host";
    char obstacle[1600];
    char reason[1900];

    find_obstacle(offers, indices, size, obstacle, sizeof obstacle);
    if (wish == DEVICE_STAGING_WANTED) {
        ret->decision = DEVICES_STAGED;
        (void)snprintf(ret->text, sizeof ret->text, "asked for: %s", staged);
    } else if (!*obstacle) {
        ret->decision = DEVICES_NATIVE;
        (void)snprintf(ret->text, sizeof ret->text, "every rank has a GPU of its own");
    } else if (wish == DEVICE_MEMORY_WANTED) {
        ret->decision = DEVICES_STAGED;
        (void)snprintf(ret->text, sizeof ret->text, "transport auto takes mpi, and %s: %s", staged, obstacle);
    } else {
        (void)snprintf(reason, sizeof reason,
                       "%s; start at most as many ranks on a host as it has GPUs, each with NCCL (mpirun --map-by "
                       "ppr:N:node, srun --gpus-per-task=1), or take transport mpi",
                       obstacle);
        refuse(ret, wish, reason);
    }
}

void device_decide(const struct device_offer *offers, int size, int *indices, struct device_verdict *ret)
{
    enum device_wish wish = common_wish(offers, size);
    char what[1600];
    char reason[1700];

    *ret = (struct device_verdict){.index = -1};
    for (int rank = 0; rank < size; rank++)
        indices[rank] = -1;
    if (wish == DEVICE_UNWANTED || wish == DEVICE_UNDECIDED)
        return;
    device_choose(offers, size, indices);
    if (add_lacking(offers, indices, size, what, sizeof what)) {
        (void)snprintf(reason, sizeof reason, "not every rank has a GPU: %s", what);
        refuse(ret, wish, reason);
    } else {
        decide_way(offers, indices, size, wish, ret);
    }
    for (int rank = 0; rank < size && ret->decision == DEVICES_UNUSED; rank++)
        indices[rank] = -1;
}

static enum status list_devices(const struct device_facts *facts, int count, const char *word, const char *problem,
                                struct error *err)
{
    char list[1200] = "";

    for (int i = 0; i < count; i++)
        append(list, sizeof list, "%s%d (%s, %s)", i ? ", " : "", i, facts[i].pci, facts[i].uuid);
    return error_set(err, STATUS_USAGE, "device %.80s: %s; there are %s: name one by index, PCI id or UUID", word,
                     problem, count ? list : "none");
}

/* An index alone, or a PCI id, or a UUID's beginning. */
static bool means(const struct device_facts *facts, int index, const char *word)
{
    char *end = NULL;
    long number = strtol(word, &end, 10);

    if (*word && !*end)
        return number == index;
    if (strchr(word, ':'))
        return strcasecmp(word, facts->pci) == 0 ||
               (strncmp(facts->pci, "0000:", 5) == 0 && strcasecmp(word, facts->pci + 5) == 0);
    return strlen(word) > 4 && strncasecmp(word, facts->uuid, strlen(word)) == 0;
}

enum status device_find(const struct device_facts *facts, int count, const char *word, int *ret, struct error *err)
{
    int found = -1;

    for (int i = 0; i < count; i++) {
        if (!means(&facts[i], i, word))
            continue;
        if (found >= 0)
            return list_devices(facts, count, word, "several have this name", err);
        found = i;
    }
    if (found < 0)
        return list_devices(facts, count, word, "there is none", err);
    *ret = found;
    return STATUS_OK;
}

/* Digits alone, or a UUID. */
static bool entry_is_valid(const char *entry, size_t length)
{
    if (length > 4 && (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0))
        return true;
    return length > 0 && strspn(entry, "0123456789") >= length;
}

int device_visible_count(const char *visible, const char **ret_bad)
{
    int count = 0;

    *ret_bad = NULL;
    if (!visible)
        return -1;
    if (strcmp(visible, "NoDevFiles") == 0 || strcmp(visible, "-1") == 0)
        return 0;
    while (*visible) {
        size_t length = strcspn(visible, ",");

        if (!entry_is_valid(visible, length)) {
            *ret_bad = visible;
            return count;
        }
        count++;
        visible += length + (visible[length] == ',');
    }
    return count;
}
