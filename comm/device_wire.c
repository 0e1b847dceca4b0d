/* Offers and verdicts as bytes.
 *
 * Offer: magic 0, version 4, wish 8, NUMA node 12, wanted 16, count 20, host 24 [64], machine 88 [40], devices 128 [16]
 * of PCI id [20] and NUMA node, why 512 [1016], native
 * 1528, zeros.  Verdict: magic 0, version 4, status 8, decision 12, index 16, zeros,
 * text 256 [2048].  Texts end with NUL. */
#include <string.h>

#include "base/bytes.h"
#include "comm/device_choice.h"

enum {
    OFFER_MAGIC = 0x6665646f,
    VERDICT_MAGIC = 0x76656466,
    WIRE_VERSION = 2,
    HOST_AT = 24,
    MACHINE_AT = 88,
    DEVICES_AT = 128,
    DEVICE_BYTES = 24,
    PCI_BYTES = 20,
    WHY_AT = 512,
    NATIVE_AT = 1528,
    TEXT_AT = 256
};

static void put_text(unsigned char *at, const char *text, size_t bytes)
{
    (void)memccpy(at, text, '\0', bytes - 1);
}

/* Whatever came, it ends. */
static void get_text(char *text, const unsigned char *at, size_t bytes)
{
    memcpy(text, at, bytes);
    text[bytes - 1] = '\0';
}

static int get_int(const unsigned char *at)
{
    return (int)(int32_t)get_u32(at);
}

static void put_head(unsigned char *bytes, size_t count, uint32_t magic)
{
    memset(bytes, 0, count);
    put_u32(bytes, magic);
    put_u32(bytes + 4, WIRE_VERSION);
}

static enum status check_head(const unsigned char *bytes, uint32_t magic, const char *what, struct error *err)
{
    if (get_u32(bytes) == magic && get_u32(bytes + 4) == WIRE_VERSION)
        return STATUS_OK;
    return error_set(err, STATUS_MISMATCH, "%s: not of this version of Ferry: every rank must run the same one", what);
}

void device_offer_encode(const struct device_offer *offer, unsigned char *bytes)
{
    put_head(bytes, DEVICE_OFFER_BYTES, OFFER_MAGIC);
    put_u32(bytes + 8, (uint32_t)offer->wish);
    put_u32(bytes + 12, (uint32_t)offer->numa_node);
    put_u32(bytes + 16, (uint32_t)offer->wanted);
    put_u32(bytes + 20, (uint32_t)offer->count);
    put_text(bytes + HOST_AT, offer->host, sizeof offer->host);
    put_text(bytes + MACHINE_AT, offer->machine, sizeof offer->machine);
    for (int i = 0; i < offer->count; i++) {
        unsigned char *at = bytes + DEVICES_AT + i * DEVICE_BYTES;

        put_text(at, offer->device[i].pci, PCI_BYTES);
        put_u32(at + PCI_BYTES, (uint32_t)offer->device[i].numa_node);
    }
    put_text(bytes + WHY_AT, offer->why, sizeof offer->why);
    put_u32(bytes + NATIVE_AT, offer->native);
}

enum status device_offer_decode(const unsigned char *bytes, struct device_offer *ret, struct error *err)
{
    enum status st = check_head(bytes, OFFER_MAGIC, "an offer of devices", err);
    uint32_t wish = get_u32(bytes + 8);
    uint32_t count = get_u32(bytes + 20);

    if (st == STATUS_OK && (wish > DEVICE_UNDECIDED || count > DEVICE_OFFER_MOST))
        st = error_set(err, STATUS_MISMATCH, "an offer of devices: wish %u, %u devices", wish, count);
    if (st != STATUS_OK)
        return st;
    *ret = (struct device_offer){.wish = (enum device_wish)wish, .count = (int)count};
    ret->numa_node = get_int(bytes + 12);
    ret->wanted = get_int(bytes + 16);
    get_text(ret->host, bytes + HOST_AT, sizeof ret->host);
    get_text(ret->machine, bytes + MACHINE_AT, sizeof ret->machine);
    for (int i = 0; i < ret->count; i++) {
        const unsigned char *at = bytes + DEVICES_AT + i * DEVICE_BYTES;

        get_text(ret->device[i].pci, at, PCI_BYTES);
        ret->device[i].numa_node = get_int(at + PCI_BYTES);
    }
    get_text(ret->why, bytes + WHY_AT, sizeof ret->why);
    ret->native = get_u32(bytes + NATIVE_AT) != 0;
    return STATUS_OK;
}

void device_verdict_encode(const struct device_verdict *verdict, unsigned char *bytes)
{
    put_head(bytes, DEVICE_VERDICT_BYTES, VERDICT_MAGIC);
    put_u32(bytes + 8, (uint32_t)verdict->status);
    put_u32(bytes + 12, (uint32_t)verdict->decision);
    put_u32(bytes + 16, (uint32_t)verdict->index);
    put_text(bytes + TEXT_AT, verdict->text, sizeof verdict->text);
}

enum status device_verdict_decode(const unsigned char *bytes, struct device_verdict *ret, struct error *err)
{
    enum status st = check_head(bytes, VERDICT_MAGIC, "the decision on devices", err);
    uint32_t status = get_u32(bytes + 8);
    uint32_t decision = get_u32(bytes + 12);

    if (st == STATUS_OK && (status >= STATUS_COUNT || decision > DEVICES_NATIVE))
        st = error_set(err, STATUS_MISMATCH, "the decision on devices: status %u, decision %u", status, decision);
    if (st != STATUS_OK)
        return st;
    *ret = (struct device_verdict){.status = (enum status)status, .decision = (enum device_decision)decision};
    ret->index = get_int(bytes + 16);
    get_text(ret->text, bytes + TEXT_AT, sizeof ret->text);
    return STATUS_OK;
}
