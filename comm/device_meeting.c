/* Offers go to rank 0, one message each, and verdicts come back: two messages a rank, 1.5 and 2.3 KiB, once in a run.
 * They use the tag of the consensus, which comes later: no group or route has it, and messages of one pair and tag come
 * in order. */
#include "comm/device_meeting.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"

/* Rank 0 sees who is missing and must be the first to say so; the others came at other times than it did. */
#define ATTEND_NS (3 * NS_PER_S)

enum { MEETING_TAG = 0, FIRST_REST_US = 5, LAST_REST_US = 2000, SCRATCH_BYTES = 65536 };

struct meeting {
    const struct transport_ops *ops;
    struct transport *transport;
    int rank;
    int size;
    uint64_t begun_ns;
    uint64_t deadline_ns;
    unsigned char *bytes; /* [size][DEVICE_OFFER_BYTES] at rank 0; [1] of the larger message elsewhere */
    bool stuck;           /* a send or receive has not ended: its memory stays to the end of the process */
};

static bool rest(const struct meeting *meeting, uint64_t *rest_ns)
{
    if (clock_ns() >= meeting->deadline_ns)
        return false;
    clock_sleep_ns(*rest_ns);
    if (*rest_ns < LAST_REST_US * NS_PER_US)
        *rest_ns *= 2;
    return true;
}

/* Until posted work has ended. */
static enum status finish(struct meeting *meeting, struct work *work, struct error *err)
{
    uint64_t rest_ns = FIRST_REST_US * NS_PER_US;
    bool over = false;

    for (;;) {
        enum status st = meeting->ops->test(meeting->transport, work, &over, err);

        if (over)
            return st;
        meeting->stuck = st != STATUS_OK || !rest(meeting, &rest_ns);
        if (st != STATUS_OK)
            return st;
        if (meeting->stuck)
            return error_set(err, STATUS_TIMEOUT, "the choice of devices is not over within startup_timeout");
    }
}

static enum status send(struct meeting *meeting, int peer, const void *bytes, size_t count, struct error *err)
{
    struct work *work = NULL;
    enum status st = meeting->ops->send(meeting->transport, peer, MEETING_TAG, bytes, count, &work, err);

    return st == STATUS_OK ? finish(meeting, work, err) : st;
}

/* A matched message must be received; what a stranger sent goes nowhere. */
static void drop(struct meeting *meeting, struct message *message, size_t bytes)
{
    void *scratch = bytes <= SCRATCH_BYTES ? malloc(bytes ? bytes : 1) : NULL;
    struct work *work = NULL;
    bool before = meeting->stuck;

    if (!scratch)
        return;
    if (meeting->ops->receive(meeting->transport, message, scratch, bytes, &work, NULL) == STATUS_OK)
        (void)finish(meeting, work, NULL);
    if (meeting->stuck == before)
        free(scratch);
}

/* One message of peer, if it has come. */
static enum status receive(struct meeting *meeting, int peer, void *bytes, size_t count, bool *ret_came,
                           struct error *err)
{
    struct message *message = NULL;
    struct work *work = NULL;
    size_t came = 0;
    enum status st = meeting->ops->probe(meeting->transport, peer, MEETING_TAG, &message, &came, err);

    *ret_came = st == STATUS_OK && message;
    if (!*ret_came)
        return st;
    if (came != count) {
        drop(meeting, message, came);
        return error_set(err, STATUS_MISMATCH,
                         "rank %d sent %zu bytes where devices are chosen, expected %zu: every rank must run the same "
                         "Ferry",
                         peer, came, count);
    }
    st = meeting->ops->receive(meeting->transport, message, bytes, count, &work, err);
    return st == STATUS_OK ? finish(meeting, work, err) : st;
}

/* " on node3", where hosts are known. */
static void add_host(const struct meeting *meeting, int rank, char *words, size_t bytes)
{
    const char *host = meeting->ops->host ? meeting->ops->host(meeting->transport, rank) : NULL;
    size_t length = strlen(words);

    if (host && length < bytes)
        (void)snprintf(words + length, bytes - length, " on %s", host);
}

static double waited_s(const struct meeting *meeting)
{
    return (double)(clock_ns() - meeting->begun_ns) / (double)NS_PER_S;
}

static enum status missing(const struct meeting *meeting, const bool *here, struct error *err)
{
    enum { TOLD = 8, HOST = 80 };
    char list[TOLD * (16 + HOST)] = "";
    int count = 0;

    for (int rank = 1; rank < meeting->size; rank++) {
        size_t length = strlen(list);

        if (here[rank] || count++ >= TOLD)
            continue;
        (void)snprintf(list + length, sizeof list - length, "%s%d", length ? ", " : "", rank);
        add_host(meeting, rank, list, sizeof list);
    }
    return error_set(err, STATUS_TIMEOUT,
                     "devices are chosen: %d of %d ranks have not come within startup_timeout: %s%s (after %.1f s): on "
                     "their hosts, ps -o pid,stat,args -C ferry shows a stopped process as T",
                     count, meeting->size, list, count > TOLD ? " and others" : "", waited_s(meeting));
}

/* Everybody's offer, as it comes. */
static enum status collect(struct meeting *meeting, bool *here, struct error *err)
{
    uint64_t rest_ns = FIRST_REST_US * NS_PER_US;
    int left = meeting->size - 1;

    while (left) {
        int before = left;

        for (int rank = 1; rank < meeting->size; rank++) {
            enum status st = STATUS_OK;

            if (here[rank])
                continue;
            st = receive(meeting, rank, meeting->bytes + (size_t)rank * DEVICE_OFFER_BYTES, DEVICE_OFFER_BYTES,
                         &here[rank], err);
            if (st != STATUS_OK)
                return st;
            left -= here[rank];
        }
        if (left == before && !rest(meeting, &rest_ns))
            return missing(meeting, here, err);
    }
    return STATUS_OK;
}

static enum status decode_all(const struct meeting *meeting, struct device_offer *offers, struct error *err)
{
    for (int rank = 1; rank < meeting->size; rank++) {
        enum status st = device_offer_decode(meeting->bytes + (size_t)rank * DEVICE_OFFER_BYTES, &offers[rank], err);

        if (st != STATUS_OK)
            return error_wrap(err, st, "rank %d", rank);
    }
    return STATUS_OK;
}

/* To each rank the decision with its own device. */
static enum status answer(struct meeting *meeting, struct device_verdict *verdict, const int *indices,
                          struct error *err)
{
    unsigned char bytes[DEVICE_VERDICT_BYTES];

    for (int rank = 1; rank < meeting->size; rank++) {
        enum status st;

        verdict->index = indices[rank];
        device_verdict_encode(verdict, bytes);
        st = send(meeting, rank, bytes, sizeof bytes, err);
        if (st != STATUS_OK)
            return error_wrap(err, st, "rank %d", rank);
    }
    verdict->index = indices[0];
    return STATUS_OK;
}

static enum status preside(struct meeting *meeting, const struct device_offer *offer, struct device_verdict *ret,
                           struct error *err)
{
    size_t size = (size_t)meeting->size;
    struct device_offer *offers = calloc(size, sizeof *offers);
    int *indices = calloc(size, sizeof *indices);
    bool *here = calloc(size, sizeof *here);
    enum status st = STATUS_OK;

    if (!offers || !indices || !here)
        st = error_set(err, STATUS_NOMEM, "devices of %d ranks", meeting->size);
    if (st == STATUS_OK)
        st = collect(meeting, here, err);
    if (st == STATUS_OK)
        st = decode_all(meeting, offers, err);
    if (st == STATUS_OK) {
        offers[0] = *offer;
        device_decide(offers, meeting->size, indices, ret);
        st = answer(meeting, ret, indices, err);
    }
    free(offers);
    free(indices);
    free(here);
    return st;
}

static enum status attend(struct meeting *meeting, const struct device_offer *offer, struct device_verdict *ret,
                          struct error *err)
{
    uint64_t rest_ns = FIRST_REST_US * NS_PER_US;
    char host[80] = "";
    bool came = false;
    enum status st;

    meeting->deadline_ns += ATTEND_NS;
    add_host(meeting, 0, host, sizeof host);
    device_offer_encode(offer, meeting->bytes);
    st = send(meeting, 0, meeting->bytes, DEVICE_OFFER_BYTES, err);
    while (st == STATUS_OK && !came) {
        st = receive(meeting, 0, meeting->bytes, DEVICE_VERDICT_BYTES, &came, err);
        if (st == STATUS_OK && !came && !rest(meeting, &rest_ns))
            st = error_set(err, STATUS_TIMEOUT,
                           "devices are chosen: rank 0 has not answered within startup_timeout (after %.1f s)%s: its "
                           "process there may be stopped or kept busy",
                           waited_s(meeting), host);
    }
    return st == STATUS_OK ? device_verdict_decode(meeting->bytes, ret, err) : st;
}

enum status device_meet(const struct transport_ops *ops, struct transport *transport, const struct device_offer *offer,
                        uint64_t deadline_ns, struct device_verdict *ret, struct error *err)
{
    struct meeting meeting = {.ops = ops,
                              .transport = transport,
                              .rank = ops->rank(transport),
                              .size = ops->size(transport),
                              .begun_ns = clock_ns(),
                              .deadline_ns = deadline_ns};
    size_t bytes = DEVICE_VERDICT_BYTES;
    enum status st = STATUS_OK;

    if (!meeting.rank && size_mul((size_t)meeting.size, DEVICE_OFFER_BYTES, &bytes) != STATUS_OK)
        return error_set(err, STATUS_OVERFLOW, "devices of %d ranks", meeting.size);
    meeting.bytes = malloc(bytes);
    if (!meeting.bytes)
        return error_set(err, STATUS_NOMEM, "devices of %d ranks", meeting.size);
    st = meeting.rank ? attend(&meeting, offer, ret, err) : preside(&meeting, offer, ret, err);
    if (!meeting.stuck)
        free(meeting.bytes);
    return st;
}
