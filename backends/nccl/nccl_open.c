/* Start and end.
 *
 * All ranks come to rank 0, which makes NCCL's id when everybody has come, and sends it; each builds the world's
 * communicator without blocking and says so to rank 0, which lets all go when all have.  So a rank that does not come,
 * or whose communicator is not built, is named when the deadline passes, and one that fails ends all at once.  Cost: 4
 * notes a rank. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda_stream.h"
#include "backends/nccl/nccl_errors.h"
#include "backends/nccl/nccl_private.h"
#include "base/clock.h"
#include "base/text.h"

#define VERDICT_SLACK_NS (2 * NS_PER_S) /* rank 0 knows more: others let it speak first */
/* A rank that came to the end too early leaves after those that miss it have had their say. */
#define CLOSE_SLACK_NS (8 * NS_PER_S)
#define FAILED_CLOSE_NS (5 * NS_PER_S) /* for what ends without anybody's help */

enum { NAMED_RANKS = 16 };

/* "ranks 1, 5 (node3) and 7": those of which have is false. */
static void name_missing(const struct transport *transport, const bool *have, struct text *out)
{
    int named = 0;
    int missing = 0;

    for (int rank = 0; rank < transport->size; rank++)
        missing += !have[rank];
    text_add(out, "rank%s ", missing == 1 ? "" : "s");
    for (int rank = 0; rank < transport->size && named < NAMED_RANKS; rank++) {
        const char *host = NULL;

        if (have[rank])
            continue;
        if (named)
            text_add(out, "%s", named + 1 == missing ? " and " : ", ");
        text_add(out, "%d", rank);
        if (transport->carrier_ops->host && (host = transport->carrier_ops->host(transport->carrier, rank)))
            text_add(out, " (%s)", host);
        named++;
    }
    if (missing > named)
        text_add(out, " and %d more", missing - named);
}

static void boot_fail(struct boot *boot, enum status st, const char *text)
{
    if (boot->failed != STATUS_OK)
        return;
    boot->failed = st;
    (void)snprintf(boot->text, sizeof boot->text, "%.*s", (int)sizeof boot->text - 1, text);
}

/* Say it to those who must know: rank 0, or at rank 0 all others. */
static void spread(struct transport *transport)
{
    struct note note = {.kind = NOTE_FAILED, .status = transport->boot->failed};

    note.data_bytes = (uint32_t)strlen(transport->boot->text);
    if (note.data_bytes > sizeof note.data)
        note.data_bytes = sizeof note.data;
    memcpy(note.data, transport->boot->text, note.data_bytes);
    if (transport->rank != 0)
        (void)nccl_tell(transport, 0, &note, NULL);
    for (int rank = 1; transport->rank == 0 && rank < transport->size; rank++)
        (void)nccl_tell(transport, rank, &note, NULL);
}

static enum status tell_all(struct transport *transport, const struct note *note, struct error *err)
{
    enum status st = STATUS_OK;

    for (int rank = 0; rank < transport->size && st == STATUS_OK; rank++)
        st = nccl_tell(transport, rank, note, err);
    return st;
}

static enum status send_id(struct transport *transport, struct error *err)
{
    struct note note = {.kind = NOTE_ID, .data_bytes = NCCL_UNIQUE_ID_BYTES};
    ncclUniqueId id;
    enum status st = nccl_status(ncclGetUniqueId(&id), "ncclGetUniqueId", NULL, err);

    if (st != STATUS_OK)
        return st;
    memcpy(note.data, id.internal, NCCL_UNIQUE_ID_BYTES);
    return tell_all(transport, &note, err);
}

/* At rank 0. */
static enum status take_hello(struct transport *transport, int peer, const struct note *note, struct error *err)
{
    struct boot *boot = transport->boot;
    int version = 0;

    (void)ncclGetVersion(&version);
    if (note->number != (uint64_t)version)
        return error_set(err, STATUS_ENVIRONMENT,
                         "rank %d runs NCCL %" PRIu64 ", rank 0 NCCL %d: use the same libnccl on all ranks", peer,
                         note->number, version);
    if (boot->came[peer])
        return STATUS_OK;
    boot->came[peer] = true;
    return ++boot->came_count == transport->size ? send_id(transport, err) : STATUS_OK;
}

static enum status take_built(struct transport *transport, int peer, struct error *err)
{
    struct boot *boot = transport->boot;
    struct note note = {.kind = NOTE_START};

    if (boot->built[peer])
        return STATUS_OK;
    boot->built[peer] = true;
    return ++boot->built_count == transport->size ? tell_all(transport, &note, err) : STATUS_OK;
}

void nccl_boot_note(struct transport *transport, int peer, const struct note *note)
{
    struct boot *boot = transport->boot;
    struct error err;
    enum status st = STATUS_OK;

    error_init(&err);
    if (note->kind == NOTE_HELLO && transport->rank == 0) {
        st = take_hello(transport, peer, note, &err);
    } else if (note->kind == NOTE_BUILT && transport->rank == 0) {
        st = take_built(transport, peer, &err);
    } else if (note->kind == NOTE_ID && peer == 0 && note->data_bytes == NCCL_UNIQUE_ID_BYTES) {
        memcpy(boot->id.internal, note->data, NCCL_UNIQUE_ID_BYTES);
        boot->identified = true;
    } else if (note->kind == NOTE_START && peer == 0) {
        boot->started = true;
    } else if (note->kind == NOTE_FAILED) {
        (void)error_set(&err, STATUS_OK, "%.*s", (int)note->data_bytes, (const char *)note->data);
        st = note->status ? note->status : STATUS_CORRUPT;
    }
    if (st != STATUS_OK)
        boot_fail(boot, st, err.text);
}

static enum status begin_comm(struct transport *transport, struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    return nccl_status(
        ncclCommInitRankConfig(&transport->comm, transport->size, transport->boot->id, transport->rank, &config),
        "ncclCommInitRankConfig", NULL, err);
}

/* One look at the own communicator. */
static enum status build(struct transport *transport, struct error *err)
{
    struct boot *boot = transport->boot;
    struct note note = {.kind = NOTE_BUILT};
    ncclResult_t state = ncclSuccess;
    enum status st = STATUS_OK;

    if (!boot->identified || boot->told)
        return STATUS_OK;
    if (!transport->comm)
        st = begin_comm(transport, err);
    if (st == STATUS_OK)
        st = nccl_status(ncclCommGetAsyncError(transport->comm, &state), "ncclCommGetAsyncError", transport->comm, err);
    if (st == STATUS_OK)
        st = nccl_status(state, "ncclCommInitRankConfig", transport->comm, err);
    if (st != STATUS_OK || state == ncclInProgress)
        return st;
    boot->told = true;
    return nccl_tell(transport, 0, &note, err);
}

static enum status too_late(struct transport *transport, uint64_t timeout_ns, struct error *err)
{
    const struct boot *boot = transport->boot;
    struct text text = {0};
    enum status st;

    text_add(&text, "NCCL was not started after %" PRIu64 " ms (startup_timeout): ", timeout_ns / NS_PER_MS);
    if (transport->rank != 0) {
        text_add(&text, "rank 0 has not said that all ranks have %s", boot->identified ? "built it" : "come");
    } else if (boot->came_count < transport->size) {
        name_missing(transport, boot->came, &text);
        text_add(&text, " did not come to it");
    } else {
        name_missing(transport, boot->built, &text);
        text_add(&text, " did not build the communicator of %d ranks; NCCL_DEBUG=INFO there says where it stands",
                 transport->size);
    }
    st = error_set(err, STATUS_TIMEOUT, "%s", text_string(&text));
    text_done(&text);
    return st;
}

static enum status meet_step(struct transport *transport, struct error *err)
{
    const struct boot *boot = transport->boot;
    enum status st = STATUS_OK;

    nccl_progress(transport);
    if (transport->failed)
        st = nccl_failed(transport, err);
    else if (boot->failed != STATUS_OK)
        st = error_set(err, boot->failed, "%s", boot->text);
    return st == STATUS_OK ? build(transport, err) : st;
}

/* Until all have built, or somebody failed, or it is too late. */
static enum status meet(struct transport *transport, uint64_t timeout_ns, struct error *err)
{
    uint64_t deadline_ns = clock_ns() + timeout_ns + (transport->rank ? VERDICT_SLACK_NS : 0);
    uint64_t pause_ns = 10 * NS_PER_US;
    struct note hello = {.kind = NOTE_HELLO};
    int version = 0;
    enum status st = nccl_status(ncclGetVersion(&version), "ncclGetVersion", NULL, err);

    hello.number = (uint64_t)version;
    if (st == STATUS_OK)
        st = nccl_tell(transport, 0, &hello, err);
    while (st == STATUS_OK && !transport->boot->started) {
        st = meet_step(transport, err);
        if (st == STATUS_OK && clock_ns() > deadline_ns)
            st = too_late(transport, timeout_ns, err);
        clock_sleep_ns(pause_ns);
        pause_ns = pause_ns < NS_PER_MS ? 2 * pause_ns : NS_PER_MS;
    }
    return st;
}

/* The own failure goes to all with this rank in front; rank 0 passes on what it heard as it is. */
static enum status boot_up(struct transport *transport, uint64_t timeout_ns, struct error *err)
{
    struct boot *boot = calloc(1, sizeof *boot);
    enum status st = STATUS_OK;

    if (!boot || !(boot->came = calloc((size_t)transport->size, sizeof *boot->came)) ||
        !(boot->built = calloc((size_t)transport->size, sizeof *boot->built)))
        st = error_set(err, STATUS_NOMEM, "the start of %d ranks", transport->size);
    if (st == STATUS_OK) {
        transport->boot = boot;
        st = meet(transport, timeout_ns, err);
        if (st != STATUS_OK && boot->failed == STATUS_OK) {
            (void)error_wrap(err, st, "rank %d", transport->rank);
            boot_fail(boot, st, err->text);
            spread(transport);
        } else if (st != STATUS_OK && transport->rank == 0) {
            spread(transport);
        }
    }
    transport->boot = NULL;
    if (boot) {
        free(boot->came);
        free(boot->built);
    }
    free(boot);
    return st;
}

static enum status make_stream(struct transport *transport, struct error *err)
{
    int least = 0;
    int greatest = 0;
    enum status st = nccl_use_device(transport, err);

    if (st == STATUS_OK)
        st = cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", err);
    if (st == STATUS_OK)
        st = cuda_status(cudaStreamCreateWithPriority(&transport->stream, cudaStreamNonBlocking, greatest),
                         "cudaStreamCreateWithPriority", err);
    return st;
}

/* A line that NCCL still divides is its to write to. */
static void free_natives(struct transport *transport, bool quiet)
{
    while (transport->natives) {
        struct native *native = transport->natives;

        transport->natives = native->next;
        if (quiet || !native->dividing)
            nccl_native_free(native);
    }
}

static void free_lists(struct transport *transport)
{
    while (transport->letters) {
        struct letter *letter = transport->letters;

        transport->letters = letter->next;
        free(letter);
    }
    while (transport->early) {
        struct early *early = transport->early;

        transport->early = early->next;
        free(early);
    }
    while (transport->launches) {
        struct launch *launch = transport->launches;

        transport->launches = launch->next;
        if (launch->after)
            (void)cudaEventDestroy(launch->after);
        free(launch);
    }
}

/* What the device or the carrier may still use is left as it is. */
static void dispose(struct transport *transport, bool quiet, bool carrier_open)
{
    free_lists(transport);
    free_natives(transport, quiet);
    nccl_works_done(transport, quiet, carrier_open);
    for (int rank = 0; transport->peers && rank < transport->size; rank++) {
        while (transport->peers[rank].arrivals) {
            struct arrival *arrival = transport->peers[rank].arrivals;

            transport->peers[rank].arrivals = arrival->next;
            if (!arrival->carried || !carrier_open)
                free(arrival);
        }
    }
    if (quiet && transport->stream)
        (void)cudaStreamDestroy(transport->stream);
    free(transport->peers);
    free(transport);
}

static void name_device(struct transport *transport)
{
    char pci[32] = "";

    if (transport->device < 0 || cudaDeviceGetPCIBusId(pci, sizeof pci, transport->device) != cudaSuccess)
        pci[0] = '\0';
    for (char *at = pci; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    (void)snprintf(transport->device_name, sizeof transport->device_name, "cuda:%d%s%s", transport->device,
                   pci[0] ? " at " : "", pci);
}

static void describe(struct transport *transport)
{
    int version = 0;

    (void)ncclGetVersion(&version);
    (void)snprintf(transport->about, sizeof transport->about, "NCCL %d.%d.%d on %.64s, %.200s", version / 10000,
                   version % 10000 / 100, version % 100, transport->memory->ops->name(transport->memory),
                   transport->carrier_ops->describe(transport->carrier));
}

enum status nccl_open(const struct transport_options *options, struct transport **ret, struct error *err)
{
    struct transport *transport = calloc(1, sizeof *transport);
    enum status st = STATUS_OK;

    CHECK(options->carrier && options->carrier_ops && options->memory);
    if (!transport)
        return error_set(err, STATUS_NOMEM, "NCCL transport");
    transport->carrier_ops = options->carrier_ops;
    transport->carrier = options->carrier;
    transport->memory = options->memory;
    transport->device = cuda_memory_device(options->memory);
    name_device(transport);
    transport->rank = options->carrier_ops->rank(options->carrier);
    transport->size = options->carrier_ops->size(options->carrier);
    transport->close_ns = (options->timeout_ns ? options->timeout_ns : options->startup_timeout_ns) + CLOSE_SLACK_NS;
    transport->letters_end = &transport->letters;
    transport->peers = calloc((size_t)transport->size, sizeof *transport->peers);
    if (!transport->peers)
        st = error_set(err, STATUS_NOMEM, "NCCL transport of %d ranks", transport->size);
    if (st == STATUS_OK && transport->device < 0)
        st = error_set(err, STATUS_INVALID, "memory %s belongs to no CUDA device",
                       options->memory->ops->name(options->memory));
    if (st == STATUS_OK)
        st = make_stream(transport, err);
    if (st == STATUS_OK)
        st = nccl_works_reserve(transport, err);
    if (st == STATUS_OK)
        st = boot_up(transport, options->startup_timeout_ns, err);
    if (st != STATUS_OK) {
        bool quiet = !transport->stream || nccl_teardown_close(transport, false, clock_ns() + FAILED_CLOSE_NS);

        dispose(transport, quiet, true);
        return st;
    }
    describe(transport);
    *ret = transport;
    return STATUS_OK;
}

/* One limit for both ends: what NCCL's has taken the carrier's does not get again. */
static void limit_carrier(const struct transport *transport, uint64_t deadline_ns)
{
    uint64_t now_ns = clock_ns();

    if (transport->carrier_ops->limit_close)
        transport->carrier_ops->limit_close(transport->carrier, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
}

enum status nccl_close(struct transport *transport, bool clean, struct error *err)
{
    uint64_t deadline_ns;
    enum status st;
    bool quiet;

    if (!transport)
        return STATUS_OK;
    deadline_ns = clock_ns() + (clean ? transport->close_ns : FAILED_CLOSE_NS);
    quiet = nccl_teardown_close(transport, clean, deadline_ns);
    limit_carrier(transport, deadline_ns);
    st = transport->carrier_ops->close(transport->carrier, clean && quiet, err);
    if (clean && !quiet)
        st = error_set(err, STATUS_TIMEOUT, "NCCL's communicators have not ended within %.1f s",
                       (double)transport->close_ns / (double)NS_PER_S);
    dispose(transport, quiet, !clean);
    return st;
}
