/* The control channel's protocol: poison, "what do you wait for?", roll call, the settling of one cause.
 *
 * A state machine without a thread of its own: control_poll is called by every wait and by the session's control
 * thread, always under the session's lock, so that a rank that computes answers too. */
#ifndef COMM_CONTROL_H
#define COMM_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/spec.h"
#include "comm/transport.h"

/* Why a session failed: what every rank holds in the end. */
struct cause {
    enum status status;
    int rank;         /* whose fault it is; -1: nobody's in particular (ranks that disagree, or wait in a cycle) */
    int reporter;     /* the rank that reported it */
    uint64_t time_ns; /* since the session's start on the reporter */
    uint64_t epoch;
    char text[1536];
};

/* Says the cause to the user, at the one rank that does. */
typedef void cause_speak(void *context, const struct cause *cause);

/* What this rank is doing now; kept by the session, told to whoever asks. */
struct wait_state {
    bool waiting;
    enum operation operation;
    uint32_t object_id; /* group or route */
    char object_name[64];
    char phase[64];
    int peer; /* world rank waited for; -1: none in particular */
    uint64_t sequence;
    uint64_t since_ns;
    uint64_t counter; /* messages and compute tiles so far: a sign of life */
};

struct control;

/* ops and transport are borrowed until control_close.  state is read at every answer (borrowed). */
enum status control_open(const struct transport_ops *ops, struct transport *transport, const struct wait_state *state,
                         uint64_t timeout_ns, struct control **ret, struct error *err);
void control_close(struct control *control);

/* From now on the timeout rule counts with this timeout: startup_timeout until the session is built and loaded, then
 * timeout. */
void control_set_timeout(struct control *control, uint64_t timeout_ns);

/* Serve what has come; never blocks.  STATUS_OK, or the status of the transport. */
enum status control_poll(struct control *control, struct error *err);

/* Record a failure of this rank (the first wins) and tell everybody. */
void control_poison(struct control *control, const struct cause *cause);
/* Record a failure that every rank learns by itself (the verdict of a consensus): nobody is told. */
void control_adopt(struct control *control, const struct cause *cause);
/* The first failure known here, own or foreign; NULL: none. */
const struct cause *control_poisoned(const struct control *control);

/* The timeout rule, called by a wait that has lasted a while: true when the timeout has run out at the end of the
 * chain of waits; *ret is the cause, naming the silent or stuck rank, or the cycle.  It sends inquiries by itself
 * (after a quarter of the timeout, at most every 100 ms) and reads their answers in control_poll. */
bool control_expired(struct control *control, struct cause *ret);

/* For a person in front of rank 0, called by its waits: true when they have lasted long enough that a line should say
 * for whom, at growing intervals.  line [line_bytes]. */
bool control_waiting(struct control *control, char *line, size_t line_bytes);

/* After a failure: exchange causes with whoever answers within 2 s and agree.  Blocks (polls itself).
 * Exactly once; every rank ends with the same cause. */
void control_settle(struct control *control, struct cause *ret, bool *ret_speaker);

/* Called by control_settle at the rank that speaks, before any other rank hears the verdict and may leave. */
void control_set_speak(struct control *control, cause_speak *speak, void *context);

/* Carry one content of a group's roll call (roll.h) to a rank; best effort. */
void control_roll(struct control *control, int peer, bool answer, const unsigned char *data, size_t bytes);
/* Who takes those that come; false: the content contradicts itself.  NULL: they are passed over. */
typedef bool control_take_roll(void *context, int peer, bool answer, const unsigned char *data, size_t bytes);
void control_set_roll(struct control *control, control_take_roll *take_roll, void *context);

/* A line of text for world rank 0's log, printed there by the callback set at rank 0; sent in numbered pieces. */
void control_log(struct control *control, const char *line);
void control_set_log(struct control *control, void (*print)(void *context, int rank, const char *line), void *context);

#endif
