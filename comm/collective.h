/* One collective under way: rounds of framed messages, driven by an algorithm's table.
 *
 * A round begins when the algorithm has named its messages; it ends when each has come (and was compared) and each has
 * gone.  Small payloads lie in staging memory, and reach the caller's tensors only in end, after every header of the
 * round was the expected one.  Large ones, behind a vote ahead or without one, and those in a device's memory go
 * straight where they belong, each after its own header, and the own part, if it is large, before any: where a later
 * header of the same operation is damaged, the operation fails with parts of the caller's tensor written.  With full
 * checks disagreeing calls are found by the vote, before that. */
#ifndef COMM_COLLECTIVE_H
#define COMM_COLLECTIVE_H

#include "base/tensor.h"
#include "comm/completion_private.h"
#include "comm/framed.h"
#include "comm/group_private.h"
#include "comm/layout.h"
#include "comm/queued.h"

struct collective;

/* Parts that are packed travel in pieces of about so many bytes, a round each: they stay in the processor's cache from
 * packing to unpacking.  With full checks larger payloads are voted on ahead, and then go straight where they belong;
 * below, a vote costs more than a copy. */
enum { COLLECTIVE_PIECE_BYTES = 131072 };

/* Payloads of the caller's memory travel from there, and are lent, from this size on. */
enum { COLLECTIVE_DETACH_BYTES = 16384 };

struct algorithm {
    const char *name;
    /* Name the messages of this round (collective_send, collective_receive).  *ret_more false: there is no such round,
     * the work is done.  A round without messages is legal. */
    enum status (*begin)(struct collective *work, int round, bool *ret_more, struct error *err);
    /* Optional: every message of the round has come and gone, and what the library was asked for is done. */
    enum status (*end)(struct collective *work, int round, struct error *err);
    /* Optional: this round's messages are under way, and none of those to come has been looked for: what this member
     * can do by itself.  Called once a round, before end. */
    enum status (*meanwhile)(struct collective *work, int round, struct error *err);
    bool apart; /* end writes nothing that is being sent: every message has come, and some have not gone, when it is
                 * called.  Without it lent messages wait for each other. */
};

struct collective {
    struct completion completion; /* first */
    struct group *group;
    const struct algorithm *vote; /* runs first; NULL: none, or folded into the algorithm's own messages */
    const struct algorithm *algorithm;
    int size;
    int rank; /* member index */

    struct tensor *send; /* retained; NULL for barrier and agreement */
    struct tensor *recv;
    struct memory *device; /* whose memory both lie in, and the payloads with them; NULL: the host's */
    struct queued queued;  /* the last of what was queued there */
    bool ending;           /* and nothing but that is waited for */
    enum dtype dtype;
    struct shape shape; /* what all members agree on: of the sum, of the gathered whole, of one broadcast tensor */
    int axis;
    int root;
    uint64_t extent;                   /* of a gather: the whole along the axis */
    uint64_t count_digest;             /* of the counts that all members of a gather agree on */
    char counts[ROUTE_ROLE_BYTES + 1]; /* of an uneven gather, "3,0,2", empty where they are too many for a header; of a
                                        * sum by the library "native" */
    uint64_t disagreed_ns;             /* when another header, or word, of a member came first; 0: never */
    uint64_t doubt_ns;                 /* when this round's peers are asked what they were called with; 0: not set */
    struct roll *roll;                 /* who was asked; NULL: nobody */
    struct slab send_slab;
    struct slab recv_slab;
    struct layout from;   /* recv along the axis, by member */
    struct layout to;     /* send along the axis, by member (all-to-all) */
    uint64_t *even;       /* [size], from one operation to the next: of a gather that has no counts, its counts */
    unsigned char *words; /* [8 * size], likewise: what the counts' digest is made of */
    uint64_t lent_to;     /* a bit for each member: what goes to it was lent in the first round, all of it; */
    uint64_t lent_from;   /* what comes from it was */
    bool folded;          /* checks: full, and the vote is folded into the algorithm's own messages */
    uint32_t flags;

    struct work *native; /* the library's, in this round; NULL: none */
    void *scratch;       /* the algorithm's (the vote's: on the host), through all rounds; from staging memory */
    struct staging *scratch_lender;

    /* The round. */
    bool voting;
    int round;
    bool open;
    bool alone; /* meanwhile was called */
    bool used;  /* end was called */
    int send_count;
    int receive_count;
    struct framed_send *sends;       /* [capacity] */
    struct framed_receive *receives; /* [capacity]; .payload is read in end */
    int capacity;
    int *peers;          /* [2 * size] world ranks of sends, in order */
    struct work **works; /* [4 * size] of sends: two to each of those, from one operation to the next */
    int peer_count;
};

/* An operation of the group, of which nothing but group, size and rank is set; kind->destroy keeps it as the group's
 * spare, for the next: large blocks cost malloc a search.  Lock held or not.  NULL: no memory. */
struct collective *collective_take(struct group *group);
/* Free a spare; NULL: none. */
void collective_free(struct collective *work);

/* What a message says beyond what all messages of the collective say. */
struct part {
    uint64_t send_count;
    uint64_t receive_count;
    enum dtype dtype;
    struct shape shape;
    size_t bytes;
};

/* A part that carries the collective's own dtype, shape and gathered extent, and nothing. */
struct part collective_part(const struct collective *work);

/* Send one payload to members [count]; *ret is where the caller writes its bytes before begin returns. */
enum status collective_send(struct collective *work, const int *members, int count, const struct part *part,
                            unsigned char **ret, struct error *err);
/* The same out of a tensor, of whose slab these rows are packed from start on, part's send_count extents each. */
enum status collective_send_packed(struct collective *work, int member, const struct part *part,
                                   const struct slab *slab, const unsigned char *tensor, uint64_t start,
                                   struct rows rows, struct error *err);
/* The same to everybody else to whom nothing is lent. */
enum status collective_send_all(struct collective *work, const struct part *part, unsigned char **ret,
                                struct error *err);
/* Apart: of a large payload the header is a message of its own, so that the payload can leave from, and come into,
 * memory that nothing may be written in front of.  From the caller's own, which stays as it is until the round has
 * ended, */
enum status collective_send_from(struct collective *work, const int *members, int count, const struct part *part,
                                 const unsigned char *bytes, struct error *err);
enum status collective_send_all_from(struct collective *work, const struct part *part, const unsigned char *bytes,
                                     struct error *err);
/* or out of memory that the caller fills before begin returns. */
enum status collective_send_all_apart(struct collective *work, const struct part *part, unsigned char **ret,
                                      struct error *err);
/* Lend these runs of the caller's own, all that member gets in all rounds, instead of sending part after part: whole
 * describes it.  *ret: it could be lent, and lent_to says so. */
enum status collective_lend(struct collective *work, int member, const struct part *whole, const struct runs *runs,
                            bool *ret, struct error *err);
/* Expect one payload from a member, at most one of each a round.  Receives keep the order of these calls. */
enum status collective_receive(struct collective *work, int member, const struct part *part, struct error *err);
/* What a member sends apart: it lies at target when end is called, and where the vote is folded in not before every
 * header of the round was the expected one.  target NULL: it stays in .payload. */
enum status collective_receive_from(struct collective *work, int member, const struct part *part, unsigned char *target,
                                    struct error *err);

/* The receive named last may be the member's whole payload, lent: then lent_from says so when end is called. */
void collective_may_be_lent(struct collective *work, const struct part *whole);
/* Put what member's receive has brought into rows of the tensor, count extents of each from start on: all rows where it
 * was lent. */
enum status collective_unpack(struct collective *work, int member, struct framed_receive *receive,
                              const struct slab *slab, unsigned char *tensor, uint64_t start, uint64_t count,
                              struct rows rows, struct error *err);

/* Of lent_to and lent_from. */
static inline bool collective_is_in(uint64_t members, int member)
{
    return member < 64 && members >> member & 1;
}

/* Are all others? */
bool collective_all_in(const struct collective *work, uint64_t members);

/* May a gather's or an all-to-all's own part be moved before the others' headers have come?  Only a large one in host
 * memory, and with no vote folded in. */
static inline bool collective_keeps_early(const struct collective *work)
{
    size_t own = slab_bytes(&work->recv_slab, layout_count(&work->from, work->rank));

    return !work->folded && !work->device && own >= COLLECTIVE_DETACH_BYTES;
}

/* In a round, rows of the own part, of which piece would travel in it: all in the first where nothing else of it does.
 */
static inline struct rows collective_own_rows(const struct collective *work, int round, struct rows piece)
{
    if (!work->lent_to || !collective_all_in(work, work->lent_to))
        return piece;
    return round ? (struct rows){work->recv_slab.outer, 0} : slab_rows(&work->recv_slab);
}

/* Has every member been heard, by a header of this round or in the roll call?  Asks those that were not. */
bool collective_heard(struct collective *work);

/* Some member sent another header than it should, or tells of another call: say who was called with what.
 * STATUS_MISMATCH. */
enum status collective_disagree(const struct collective *work, struct error *err);

/* What this member was called with, in the fields that collective_describe reads; role is lent by work. */
void collective_signature(const struct collective *work, struct frame *ret);

/* What a member was called with, in words: "all_gather_uneven f32[8,2] axis 0 counts 2,3,1,2". */
void collective_describe(struct text *out, const struct frame *frame);

/* scratch of this size, for the whole work, where the round's payloads lie. */
enum status collective_scratch(struct collective *work, size_t bytes, struct error *err);

/* Where this round's payloads lie: a vote's on the host. */
static inline struct memory *collective_device(const struct collective *work)
{
    return work->voting ? NULL : work->device;
}

/* Memory for payloads there.  NULL: no memory. */
struct staging *collective_staging(const struct collective *work);

/* Copy, and add by the tree over members (reduce.h), there. */
static inline enum status collective_copy(const struct collective *work, void *to, const void *from, size_t bytes,
                                          struct error *err)
{
    return memory_copy(collective_device(work), to, from, bytes, err);
}

enum status collective_sum(const struct collective *work, const void *const *in, size_t count, void *out,
                           struct error *err);

extern const struct work_kind collective_kind;

/* The algorithms, each in the file of its name. */
extern const struct algorithm allreduce_direct;
extern const struct algorithm allreduce_native;
extern const struct algorithm allreduce_scatter;
extern const struct algorithm allreduce_tree;
extern const struct algorithm gather_direct;
extern const struct algorithm gather_doubling;
extern const struct algorithm gather_ring;
extern const struct algorithm alltoall_direct;
extern const struct algorithm alltoall_pairwise;
extern const struct algorithm broadcast_direct;
extern const struct algorithm broadcast_tree;
extern const struct algorithm agreement_dissemination;
extern const struct algorithm vote_direct;
extern const struct algorithm vote_tree;

#endif
