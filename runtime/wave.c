/* The description's four fields a slot, checked against the plan's ranges before anything is derived from them. */
#include "runtime/wave.h"

#include <string.h>

void wave_write(const struct wave *wave, struct tensor *description)
{
    uint32_t *out = (uint32_t *)(void *)description->data;

    for (uint32_t s = 0; s < wave->slot_count; s++) {
        const struct wave_slot *slot = &wave->slot[s];
        const uint32_t fields[WAVE_FIELDS] = {slot->request, slot->position, slot->rows, slot->flags};

        memcpy(out + (size_t)s * WAVE_FIELDS, fields, sizeof fields);
    }
}

static enum status slot_check(const struct wave_slot *slot, uint32_t s, const struct wave_limits *limits,
                              struct error *err)
{
    if (!slot->rows && (slot->request | slot->position | slot->flags))
        return error_set(err, STATUS_MISMATCH, "wave slot %u: idle, but request %u, position %u, flags %u", s,
                         slot->request, slot->position, slot->flags);
    if (!slot->rows)
        return STATUS_OK;
    if (s >= limits->used)
        return error_set(err, STATUS_MISMATCH, "wave slot %u: %u rows, but only %u slots are in use", s, slot->rows,
                         limits->used);
    if (slot->request >= limits->requests)
        return error_set(err, STATUS_MISMATCH, "wave slot %u: request %u of %u", s, slot->request, limits->requests);
    if (slot->rows > limits->rows || slot->position >= limits->context ||
        slot->rows > limits->context - slot->position)
        return error_set(err, STATUS_MISMATCH,
                         "wave slot %u: %u rows at position %u, expected at most %u rows in %u positions", s,
                         slot->rows, slot->position, limits->rows, limits->context);
    if (slot->flags & ~(WAVE_SAMPLE | WAVE_FINAL))
        return error_set(err, STATUS_MISMATCH, "wave slot %u: unknown flags %u", s, slot->flags);
    return STATUS_OK;
}

enum status wave_read(const struct tensor *description, const struct wave_limits *limits, struct wave *ret,
                      struct error *err)
{
    const uint32_t *in = (const uint32_t *)(const void *)description->data;

    if (limits->slots > WAVE_MAX_SLOTS ||
        description->bytes != (size_t)limits->slots * WAVE_FIELDS * sizeof(uint32_t))
        return error_set(err, STATUS_INVALID, "wave description of %zu bytes for %u slots", description->bytes,
                         limits->slots);
    *ret = (struct wave){.slot_count = limits->slots};
    for (uint32_t s = 0; s < limits->slots; s++) {
        const uint32_t *fields = in + (size_t)s * WAVE_FIELDS;
        enum status st;

        ret->slot[s] = (struct wave_slot){fields[0], fields[1], fields[2], fields[3]};
        st = slot_check(&ret->slot[s], s, limits, err);
        if (st != STATUS_OK)
            return st;
        ret->rows += ret->slot[s].rows;
        if (ret->rows > limits->rows)
            return error_set(err, STATUS_MISMATCH, "wave of more than %u rows", limits->rows);
    }
    return STATUS_OK;
}

uint32_t wave_samples(const struct wave *wave)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < wave->slot_count; s++)
        count += wave->slot[s].flags & WAVE_SAMPLE;
    return count;
}
