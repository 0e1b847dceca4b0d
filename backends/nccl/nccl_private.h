/* The inside of the nccl transport, for the files of this folder alone.  All under the session's lock.
 *
 * Everything that NCCL does lies on one stream, in the order of nccl_queue.h.  One group of calls at a time may be in
 * progress (its communicator says ncclInProgress): until it is not, nothing is put on the stream. */
#ifndef BACKENDS_NCCL_PRIVATE_H
#define BACKENDS_NCCL_PRIVATE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backends/nccl/nccl_queue.h"
#include "backends/nccl/nccl_rendezvous.h"
#include "comm/native.h"
#include "comm/transport.h"

enum { MAX_EARLY_NOTES = 65536, MAX_LETTERS = 65536 };

enum work_kind { WORK_HOST, WORK_SEND, WORK_RECEIVE, WORK_SUM };

enum work_state {
    WORK_POSTED,   /* a send: announced.  A sum: its communicator is not built yet, or others have not come */
    WORK_QUEUED,   /* in the queue, with a proposal or a ticket */
    WORK_STARTED,  /* NCCL has it */
    WORK_OVER,     /* its memory is back */
    WORK_CANCELLED /* nobody asks for it any more; its memory is back */
};

struct work {
    enum work_kind kind;
    enum work_state state;
    struct work *next; /* of transport->works, or of the free ones */
    struct work
        *carried[2]; /* the carrier's, until they are over: a message, or an announcement and a message behind it */
    struct entry entry;
    cudaEvent_t before; /* on the memory's stream: everything queued before has happened; NULL: needed no more */

    /* A transfer. */
    int peer;
    uint64_t number;
    unsigned char *payload;
    size_t bytes;
    size_t header_bytes;
    bool headroom;       /* of the payload's memory */
    bool joined;         /* header and payload are one native message */
    unsigned char *slot; /* pinned: the header */
    void *in_band;
    unsigned char announcement[ANNOUNCE_BYTES];

    /* A sum. */
    struct native *native;
    enum dtype dtype;
    const void *send;
    void *recv;
    size_t count;
    bool reached; /* the first member has been told */
    uint64_t started_ns;
};

struct message {
    int peer;
    struct message *carried; /* the carrier's; NULL: an announcement */
    struct announcement announcement;
};

/* Announcements of one peer and tag on their way out of the carrier. */
struct arrival {
    struct arrival *next;
    uint32_t tag;
    bool literal; /* the next message is the caller's */
    struct work *carried;
    unsigned char bytes[ANNOUNCE_BYTES];
};

struct peer {
    uint64_t sent;        /* transfers announced to it */
    bool sends_connected; /* a transfer has been started this way */
    bool receives_connected;
    struct arrival *arrivals;
};

/* A control message of comm's that came while notes were looked for. */
struct letter {
    struct letter *next;
    int peer;
    unsigned char bytes[CONTROL_BYTES];
};

/* A note about a group that is not open here yet. */
struct early {
    struct early *next;
    int peer;
    struct note note;
};

/* What was started together: one group of NCCL's. */
struct launch {
    struct launch *next;
    ncclComm_t comm;
    bool in_progress; /* the calls themselves; then the event is behind them */
    cudaEvent_t after;
    size_t count;
    struct work *works[QUEUE_GROUP];
};

/* At a group's first member: who has come to a sum. */
struct meeting {
    struct meeting *next;
    uint64_t number;
    int reached;
    int proposed;
    uint64_t largest;
};

struct native {
    struct native *next;
    struct transport *transport;
    uint32_t id;
    int size;
    int index; /* this rank's, in members */
    int *members;
    bool *came; /* [size], at the first member */
    int came_count;
    bool *built_by; /* [size], who has said that it is built there: at the first member of all, elsewhere of that one */
    bool building;  /* comm is being built */
    bool built;
    uint32_t first_line; /* not 0: comm is divided from the one of all ranks, see comm/spec.h */
    bool dividing;       /* just now; then comm is in child */
    ncclComm_t child;
    ncclComm_t comm;
    uint64_t number; /* sums posted */
    struct meeting *meetings;
};

/* The start: who has come, who has built. */
struct boot {
    bool *came;
    bool *built;
    int came_count;
    int built_count;
    bool identified;
    bool told; /* rank 0 that the own communicator is built */
    ncclUniqueId id;
    bool started;
    enum status failed;
    char text[NOTE_DATA_BYTES + 1];
};

/* The calls that NCCL may block in, in a thread of their own. */
struct helper {
    pthread_t thread;
    atomic_bool over;
    int device;
    int aborts; /* the first of them are aborted, the others destroyed */
    int count;
    ncclComm_t comms[];
};

enum teardown_state { TEARDOWN_NONE, TEARDOWN_REVOKING, TEARDOWN_ABORTING, TEARDOWN_QUIET };

struct transport {
    const struct transport_ops *carrier_ops;
    struct transport *carrier;
    struct memory *memory;
    int device;
    char device_name[64]; /* "cuda:0 at 0000:1b:00.0": a failed one cannot be asked */
    int rank;
    int size;
    uint64_t close_ns;
    char about[320];

    ncclComm_t comm; /* of all ranks; NULL before it is built, and after it was destroyed */
    cudaStream_t stream;
    struct queue queue;
    struct peer *peers; /* [size] */
    struct work *works; /* device works that are not over, or were cancelled */
    struct work *free_work;
    struct launch *launches; /* in order; only the last may be in progress */
    struct native *natives;
    struct early *early;
    size_t early_count;
    struct letter *letters;
    struct letter **letters_end;
    size_t letter_count;
    struct boot *boot; /* while opening */

    void **slot_blocks; /* pinned memory for headers */
    size_t slot_block_count;
    unsigned char *free_slot; /* the first bytes of a free one point to the next */
    cudaEvent_t *free_events;
    size_t free_event_count;
    size_t free_event_capacity;

    bool failed;
    struct error failure;
    enum teardown_state teardown;
    struct helper *helper;
};

/* nccl_open.c: start and end. */
enum status nccl_open(const struct transport_options *options, struct transport **ret, struct error *err);
enum status nccl_close(struct transport *transport, bool clean, struct error *err);
void nccl_boot_note(struct transport *transport, int peer, const struct note *note);

/* nccl_progress.c: notes, and whatever can go on.  Cheap when nothing can. */
enum status nccl_tell(struct transport *transport, int peer, const struct note *note, struct error *err);
/* Take the next control message; a note is acted on, *ret_letter: it is one of comm's and lies in bytes. */
enum status nccl_hear(struct transport *transport, int *ret_peer, void *bytes, bool *ret_any, bool *ret_letter,
                      struct error *err);
void nccl_progress(struct transport *transport);
/* The first failure is kept; then the communicators are torn down. */
void nccl_fail(struct transport *transport, enum status st, const char *text);
enum status nccl_failed(const struct transport *transport, struct error *err);

/* nccl_transfer.c: messages in device memory. */
extern const struct device_message_ops nccl_device_ops;
enum status nccl_transfer_note(struct transport *transport, int peer, const struct note *note, struct error *err);

/* nccl_launch.c: start what may be started; end what has ended. */
ncclDataType_t nccl_sum_type(enum dtype dtype); /* ncclNumTypes: it adds none such, or not as we do */
void nccl_launch_step(struct transport *transport);

/* nccl_native.c. */
extern const struct native_ops nccl_native_ops;
enum status nccl_native_note(struct transport *transport, int peer, const struct note *note, struct error *err);
enum status nccl_native_step(struct transport *transport, struct error *err);
/* Its communicator is built here. */
enum status nccl_native_built(struct native *native, struct error *err);
void nccl_native_free(struct native *native);
bool nccl_native_member(const struct native *native, int rank);
/* The member behind this rank, in a ring: whom it asks when a sum does not end. */
int nccl_native_next(const struct native *native);
/* One that is open, of just these members; NULL: none. */
const struct native *nccl_native_find(const struct transport *transport, uint32_t id, const int *members, int size);

/* nccl_lines.c: native sums of an axis' lines. */
enum status nccl_lines_step(struct transport *transport, struct error *err);
/* Is the communicator of all ranks being divided? */
bool nccl_lines_busy(const struct transport *transport);

/* nccl_raw.c. */
extern const struct raw_ops nccl_raw_ops;

/* nccl_teardown.c: end whatever runs, without waiting.  begin may be called again. */
void nccl_teardown_begin(struct transport *transport);
void nccl_teardown_step(struct transport *transport);
/* Nothing of NCCL's touches any memory any more. */
bool nccl_quiet(struct transport *transport);
/* End everything at a good end, or after a failure; waits until deadline_ns at most.  False: something was left. */
bool nccl_teardown_close(struct transport *transport, bool clean, uint64_t deadline_ns);

/* nccl_work.c: works, events and headers' slots, reused. */
struct work *nccl_work_take(struct transport *transport, enum work_kind kind);
void nccl_work_give(struct transport *transport, struct work *work);
/* A device work joins or leaves transport->works. */
void nccl_work_link(struct transport *transport, struct work *work);
void nccl_work_unlink(struct transport *transport, struct work *work);
/* What the first transfers take, at the start: later CUDA may wait for the device. */
enum status nccl_works_reserve(struct transport *transport, struct error *err);
enum status nccl_slot_take(struct transport *transport, unsigned char **ret, struct error *err);
void nccl_slot_give(struct transport *transport, unsigned char *slot);
enum status nccl_event_take(struct transport *transport, cudaEvent_t *ret, struct error *err);
void nccl_event_give(struct transport *transport, cudaEvent_t event);
/* An event behind everything queued on the memory so far. */
enum status nccl_event_behind(struct transport *transport, struct memory *memory, cudaEvent_t *ret, struct error *err);
/* Give back what a work holds beside its memory. */
void nccl_work_release(struct transport *transport, struct work *work);
/* All of it, at the end; carrier_open: the carrier may still read what works hold. */
void nccl_works_done(struct transport *transport, bool quiet, bool carrier_open);

/* cuda_status; of a device that failed it says which. */
enum status nccl_cuda_status(const struct transport *transport, cudaError_t code, const char *call, struct error *err);
/* Make the device current for this thread. */
enum status nccl_use_device(const struct transport *transport, struct error *err);

#endif
