/* Which rank works on which device of its host, decided once for all from what every rank sees.
 *
 * Everything here is a pure function of what it is given.  A rank counts devices as its process sees them (CUDA numbers
 * the visible ones from 0, whatever Slurm, a container or CUDA_VISIBLE_DEVICES has hidden); two ranks mean the same
 * device when machine and PCI id are equal. */
#ifndef COMM_DEVICE_CHOICE_H
#define COMM_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/device.h"

enum { DEVICE_OFFER_MOST = 16, DEVICE_OFFER_BYTES = 1536, DEVICE_VERDICT_BYTES = 2304 };

/* What a rank's topology says of devices. */
enum device_wish {
    DEVICE_UNWANTED,       /* transport: mpi, or memory: host */
    DEVICE_WELCOME,        /* transport: auto */
    DEVICE_WANTED,         /* transport: nccl */
    DEVICE_MEMORY_WANTED,  /* transport: auto, memory: device */
    DEVICE_STAGING_WANTED, /* transport: mpi, memory: device */
    DEVICE_UNDECIDED       /* this rank could not read it: the consensus will say so */
};

/* What one rank sees. */
struct device_offer {
    enum device_wish wish;
    char host[64];    /* its name, for people */
    char machine[40]; /* equal on ranks of one machine alone */
    int numa_node;    /* that its process is bound to; -1: to none, or to several */
    int wanted;       /* index that the user names; -1: any */
    int count;        /* of devices, those beyond DEVICE_OFFER_MOST left out; 0: why says what is missing */
    bool native;      /* it has the library for messages between devices; else why says what is missing */
    struct {
        char pci[20];
        int numa_node; /* -1: unknown */
    } device[DEVICE_OFFER_MOST];
    char why[1016];
};

/* What becomes of it. */
enum device_decision {
    DEVICES_UNUSED, /* the host's memory and mpi */
    DEVICES_STAGED, /* devices, but messages go over mpi through the host's memory */
    DEVICES_NATIVE  /* devices, and messages between them */
};

struct device_verdict {
    enum status status; /* STATUS_ENVIRONMENT: the run ends with text */
    enum device_decision decision;
    int index;       /* this rank's device; -1: none */
    char text[2048]; /* why; "" when nobody asked for devices */
};

/* indices [size]: each rank's device among those it sees; -1: it sees none.  Who sees fewest chooses first, then the
 * lower rank; each takes a free device on its own NUMA node, else any free one, else one that another has, too. */
void device_choose(const struct device_offer *offers, int size, int *indices);

/* Rows "GPU 0000:3b:00.0 on n1: ranks 2, 3" of all devices that several ranks have, cut at text_bytes.  Returns how
 * many devices. */
int device_collisions(const struct device_offer *offers, const int *indices, int size, char *text, size_t text_bytes);

/* The decision for all ranks: verdict's index is not filled in.  indices [size] as device_choose, all -1 where devices
 * stay unused. */
void device_decide(const struct device_offer *offers, int size, int *indices, struct device_verdict *ret);

/* The device that a word means: an index, a PCI id ("3b:00.0" with domain 0 left out, too), or a UUID or its beginning
 * ("GPU-8f3a").  STATUS_USAGE: none, or several; the sentence lists what there is. */
enum status device_find(const struct device_facts *facts, int count, const char *word, int *ret, struct error *err);

/* How many devices CUDA_VISIBLE_DEVICES names: -1 for all (NULL), 0 for none ("", "-1", "NoDevFiles").  An entry that
 * is no index, UUID or MIG id ends the list, as it does for CUDA.  *ret_bad: that entry, lent of visible, NULL: none.
 */
int device_visible_count(const char *visible, const char **ret_bad);

/* DEVICE_OFFER_BYTES and DEVICE_VERDICT_BYTES little-endian bytes.  Decoding: STATUS_MISMATCH: of another version. */
void device_offer_encode(const struct device_offer *offer, unsigned char *bytes);
enum status device_offer_decode(const unsigned char *bytes, struct device_offer *ret, struct error *err);
void device_verdict_encode(const struct device_verdict *verdict, unsigned char *bytes);
enum status device_verdict_decode(const unsigned char *bytes, struct device_verdict *ret, struct error *err);

#endif
