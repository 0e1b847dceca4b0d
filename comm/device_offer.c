/* What this process sees: the devices of a plugin, and where the process may run. */
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/device_meeting.h"

enum { MOST_CORES = 1 << 16 };

static bool in_list(const char *list, int core)
{
    while (*list) {
        char *end = NULL;
        long first = strtol(list, &end, 10);
        long last = first;

        if (end == list)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (core >= first && core <= last)
            return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

bool device_cores_within(const cpu_set_t *set, size_t bytes, const char *list)
{
    for (size_t core = 0; core < bytes * 8; core++) {
        if (CPU_ISSET_S(core, bytes, set) && !in_list(list, (int)core))
            return false;
    }
    return true;
}

static bool read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    bool ok = file && fgets(line, bytes, file);

    if (file)
        (void)fclose(file);
    return ok;
}

/* The node whose cores hold all of set; -1: none alone. */
static int node_of(const cpu_set_t *set, size_t bytes)
{
    DIR *nodes = opendir("/sys/devices/system/node");
    struct dirent *entry;
    int found = -1;

    while (nodes && found < 0 && (entry = readdir(nodes))) {
        char path[sizeof entry->d_name + 64];
        char list[4096];
        int node = -1;

        if (sscanf(entry->d_name, "node%d", &node) != 1) /* NOLINT(cert-err34-c): the kernel's own names */
            continue;
        (void)snprintf(path, sizeof path, "/sys/devices/system/node/%s/cpulist", entry->d_name);
        if (read_line(path, list, sizeof list) && device_cores_within(set, bytes, list))
            found = node;
    }
    if (nodes)
        (void)closedir(nodes);
    return found;
}

static int own_node(void)
{
    cpu_set_t *set = CPU_ALLOC(MOST_CORES);
    size_t bytes = CPU_ALLOC_SIZE(MOST_CORES);
    int node = -1;

    if (set) {
        CPU_ZERO_S(bytes, set);
        if (sched_getaffinity(0, bytes, set) == 0)
            node = node_of(set, bytes);
        CPU_FREE(set);
    }
    return node;
}

/* Containers of one machine have names of their own, but one kernel. */
static void name_machine(struct device_offer *offer)
{
    if (gethostname(offer->host, sizeof offer->host - 1) != 0 || !offer->host[0])
        (void)snprintf(offer->host, sizeof offer->host, "?");
    if (!read_line("/proc/sys/kernel/random/boot_id", offer->machine, sizeof offer->machine))
        (void)snprintf(offer->machine, sizeof offer->machine, "%.39s", offer->host);
    offer->machine[strcspn(offer->machine, "\n")] = '\0';
}

static enum status describe_all(const struct device_ops *ops, struct device_offer *offer, struct device_facts *facts,
                                struct error *err)
{
    int count = 0;
    enum status st = ops->count(&count, err);

    if (st != STATUS_OK)
        return st;
    if (count > DEVICE_OFFER_MOST)
        count = DEVICE_OFFER_MOST;
    for (int i = 0; i < count; i++) {
        st = ops->describe(i, &facts[i], err);
        if (st != STATUS_OK)
            return st;
        (void)snprintf(offer->device[i].pci, sizeof offer->device[i].pci, "%s", facts[i].pci);
        offer->device[i].numa_node = facts[i].numa_node;
    }
    offer->count = count;
    return STATUS_OK;
}

/* CUDA says only that it sees no device. */
void device_hint(const char *visible, const char *slurm_step, const char *slurm_gpus, char *text, size_t text_bytes)
{
    const char *bad = NULL;
    bool hidden = device_visible_count(visible, &bad) == 0;

    text[0] = '\0';
    if (hidden && bad)
        (void)snprintf(text, text_bytes, "; its entry \"%.*s\" is no index, UUID or MIG id", (int)strcspn(bad, ","),
                       bad);
    else if (slurm_step && !slurm_gpus)
        (void)snprintf(text, text_bytes,
                       "; Slurm gave this step no GPU (SLURM_STEP_GPUS is not set): ask for one a rank, "
                       "srun --gpus-per-task=1");
    else if (slurm_step)
        (void)snprintf(text, text_bytes, "; Slurm gave this step the GPUs %.100s", slurm_gpus);
}

static void explain(struct device_offer *offer, const char *problem)
{
    char hint[256];

    device_hint(getenv("CUDA_VISIBLE_DEVICES"), getenv("SLURM_STEP_ID"), getenv("SLURM_STEP_GPUS"), hint, sizeof hint);
    (void)snprintf(offer->why, sizeof offer->why, "%.700s%s", problem, hint);
}

enum status device_offer_read(const struct device_ops *ops, const char *why, enum device_wish wish, const char *word,
                              struct device_offer *ret, struct error *err)
{
    struct device_facts facts[DEVICE_OFFER_MOST];
    struct error problem = {0};

    *ret = (struct device_offer){.wish = wish, .wanted = -1};
    name_machine(ret);
    ret->numa_node = own_node();
    ret->native = ops && !why;
    (void)snprintf(ret->why, sizeof ret->why, "%s", why ? why : "");
    if (!ops)
        return STATUS_OK;
    if (describe_all(ops, ret, facts, &problem) != STATUS_OK) {
        explain(ret, problem.text);
        return STATUS_OK;
    }
    return word ? device_find(facts, ret->count, word, &ret->wanted, err) : STATUS_OK;
}
