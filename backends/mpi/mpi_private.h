/* The inside of the MPI transport, for the files of this folder alone. */
#ifndef BACKENDS_MPI_PRIVATE_H
#define BACKENDS_MPI_PRIVATE_H

#include <mpi.h>

#include "backends/mpi/mpi_host.h"
#include "backends/mpi/mpi_lending.h"
#include "backends/mpi/mpi_mailbox.h"
#include "backends/mpi/mpi_message.h"
#include "backends/mpi/mpi_post.h"
#include "comm/raw.h"
#include "comm/transport.h"

enum { HOST_NAME_BYTES = 64 };

/* One receive copies its whole message in one call, in which this rank answers nobody: longer payloads go in pieces. */
#define MAX_MESSAGE ((size_t)1 << 27)

/* One posted send or receive.  Free ones lie in a list: one is needed for every message. */
struct work {
    MPI_Request request;
    int expected;     /* bytes of a receive by MPI; -1: a send, or what a probe or a mailbox has received */
    struct mail mail; /* of what is read */
    int peer;
    bool over; /* nothing of it is under way any more */

    /* Of a send. */
    uint32_t tag;
    const void *bytes;
    size_t count;
    bool waits;          /* nothing of it is under way */
    struct lent lent;    /* what lies there leaves; no rows: bytes, of which nothing is lent */
    size_t header_bytes; /* of bytes, in front of what is lent */

    /* Of a receive out of a mailbox, or of a short message: where to, else NULL; and how much of it has come. */
    unsigned char *to;
    size_t done;
    struct message *brief; /* a short message that is still coming */

    struct work *next;
};

/* One copied control message on its way. */
struct letter {
    MPI_Request request;
    struct letter *next;
    unsigned char bytes[CONTROL_BYTES];
};

struct transport {
    MPI_Comm payload; /* duplicates of the world: no message of the program meets ours */
    MPI_Comm control;
    bool owns_mpi; /* we initialised it, we finalise it */
    int rank;
    int size;
    uint32_t max_tag;
    uint64_t close_ns;       /* how long a clean close waits for the last rank */
    struct host *here;       /* NULL: this host's processes are not known to each other */
    struct mailbox *mailbox; /* NULL: none on this host */
    struct lending lending;
    bool lends_all; /* to whoever can read it, however slowly */
    struct post *post;
    struct work done; /* of whatever was over at once: never pending, never freed */
    struct work *free_work;
    struct work *waiting; /* sends without room, in order */
    struct message_pool messages;
    struct letter *letters; /* pending, newest first */
    int letter_count;
    char about[160];
    char (*host)[HOST_NAME_BYTES]; /* [size]; NULL: all on one host, or it is not known */
};

/* Start MPI, or check the program's; duplicate the world.  Collective, blocks. */
enum status mpi_open(const struct transport_options *options, struct transport **ret, struct error *err);
enum status mpi_close(struct transport *transport, bool clean, struct error *err);
void mpi_limit_close(struct transport *transport, uint64_t close_ns);

/* Free the control messages that have left. */
void mpi_letters_test(struct transport *transport);
enum status mpi_control_send(struct transport *transport, int peer, const void *bytes, struct error *err);
enum status mpi_control_receive(struct transport *transport, int *ret_peer, void *bytes, bool *ret, struct error *err);

extern const struct raw_ops mpi_raw_ops;
extern const struct transport_ops mpi_transport_ops;

#endif
