/* A state machine without a thread: control_poll serves what has come, whoever calls it.
 *
 * News of a failure goes to everybody at once in a small world (N - 1 messages from the one that found it); in a large
 * one each rank that hears it first passes it on to the 2 log2 N ranks at distances 1, 2, 4, ..., so that dead ranks on
 * the way do not cut anybody off. */
#include "comm/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "comm/control_private.h"

/* A wait shorter than this is nobody's business; the gaps between two lines grow threefold up to the longest, and anew
 * after a quiet minute. */
#define FIRST_GAP_NS (5 * NS_PER_S)
#define LONGEST_GAP_NS (600 * NS_PER_S)
#define QUIET_NS (60 * NS_PER_S)

/* Messages served in one call, so that a wait never stays here. */
enum {
    SERVE_AT_ONCE = 256,
    STALL_MS = 500 /* between two looks at our own counter: then the whole process stood still, not what it does */
};

enum status control_open(const struct transport_ops *ops, struct transport *transport, const struct wait_state *state,
                         uint64_t timeout_ns, struct control **ret, struct error *err)
{
    struct control *control = calloc(1, sizeof *control);

    if (!control)
        return error_set(err, STATUS_NOMEM, "control channel");
    control->ops = ops;
    control->transport = transport;
    control->state = state;
    control->rank = ops->rank(transport);
    control->size = ops->size(transport);
    control->start_ns = clock_ns();
    control->changed_ns = control->start_ns;
    control->awake_ns = control->start_ns;
    control->heard_ns = calloc((size_t)control->size, sizeof *control->heard_ns);
    control->settled_with = calloc((size_t)control->size, sizeof *control->settled_with);
    control->parcel = malloc(sizeof *control->parcel);
    if (!control->heard_ns || !control->settled_with || !control->parcel || inbox_create(&control->inbox, err)) {
        control_close(control);
        return error_set(err, STATUS_NOMEM, "control channel of %d ranks", ops->size(transport));
    }
    suspicion_init(&control->suspicion, control->rank, timeout_ns, control->heard_ns);
    *ret = control;
    return STATUS_OK;
}

void control_close(struct control *control)
{
    if (!control)
        return;
    inbox_destroy(control->inbox);
    free(control->parcel);
    free(control->settled_with);
    free(control->heard_ns);
    free(control);
}

void control_set_timeout(struct control *control, uint64_t timeout_ns)
{
    control->suspicion.timeout_ns = timeout_ns;
}

void control_tell(struct control *control, int peer, enum control_kind kind, const unsigned char *data, size_t bytes)
{
    unsigned char message[CONTROL_BYTES];

    for (size_t piece = 0; piece < control_piece_count(bytes); piece++) {
        control_piece_encode(kind, data, bytes, piece, message);
        if (control->ops->control_send(control->transport, peer, message, NULL))
            return;
    }
}

void control_tell_neighbours(struct control *control, enum control_kind kind, const unsigned char *data, size_t bytes)
{
    int size = control->size;

    if (size <= CONTROL_DIRECT_RANKS) {
        for (int peer = 0; peer < size; peer++) {
            if (peer != control->rank)
                control_tell(control, peer, kind, data, bytes);
        }
        return;
    }
    for (int64_t distance = 1; distance < size; distance *= 2) {
        control_tell(control, (int)((control->rank + distance) % size), kind, data, bytes);
        control_tell(control, (int)((control->rank + size - distance) % size), kind, data, bytes);
    }
}

static void spread_poison(struct control *control)
{
    unsigned char data[CONTROL_MAX_BYTES];

    control_tell_neighbours(control, CONTROL_POISON, data, cause_encode(&control->cause, data));
}

void control_adopt(struct control *control, const struct cause *cause)
{
    if (control->poisoned)
        return;
    control->poisoned = true;
    control->cause = *cause;
}

void control_poison(struct control *control, const struct cause *cause)
{
    if (control->poisoned)
        return;
    control_adopt(control, cause);
    if (!control->cause.time_ns)
        control->cause.time_ns = clock_ns() - control->start_ns;
    spread_poison(control);
}

const struct cause *control_poisoned(const struct control *control)
{
    return control->poisoned ? &control->cause : NULL;
}

static enum status take_poison(struct control *control, const struct parcel *parcel)
{
    struct cause cause;
    enum status st = cause_decode(parcel->data, parcel->bytes, &cause);

    if (st || control->poisoned) {
        if (st == STATUS_OK)
            control_consider(control, &cause);
        return st;
    }
    control_adopt(control, &cause);
    if (control->size > CONTROL_DIRECT_RANKS)
        spread_poison(control);
    return STATUS_OK;
}

static uint64_t still_ns(const struct control *control, uint64_t now_ns)
{
    /* It may have changed since now_ns was read. */
    return now_ns > control->changed_ns ? now_ns - control->changed_ns : 0;
}

static uint64_t awake_ns(const struct control *control, uint64_t now_ns)
{
    return now_ns > control->awake_ns ? now_ns - control->awake_ns : 0;
}

static void send_inquiry(struct control *control, int peer)
{
    uint32_t id = control->suspicion.inquiry;
    unsigned char data[4];

    put_u32(data, id);
    if (peer >= 0 && peer < control->size)
        control_tell(control, peer, CONTROL_INQUIRE, data, sizeof data);
}

static enum status take_inquiry(struct control *control, const struct parcel *parcel)
{
    unsigned char data[CONTROL_MAX_BYTES];
    struct answer answer = {.state = *control->state};
    uint64_t now_ns = clock_ns();

    if (parcel->bytes != 4)
        return STATUS_CORRUPT;
    answer.inquiry = get_u32(parcel->data);
    answer.still_ns = still_ns(control, now_ns);
    if (answer.state.waiting && now_ns > answer.state.since_ns)
        answer.waited_ns = now_ns - answer.state.since_ns;
    control_tell(control, parcel->peer, CONTROL_ANSWER, data, answer_encode(&answer, data));
    return STATUS_OK;
}

static enum status take_answer(struct control *control, const struct parcel *parcel)
{
    struct answer answer;
    enum status st = answer_decode(parcel->data, parcel->bytes, &answer);

    if (st || answer.state.peer >= control->size)
        return STATUS_CORRUPT;
    if (control->state->waiting)
        send_inquiry(control, suspicion_answer(&control->suspicion, parcel->peer, &answer, clock_ns()));
    return STATUS_OK;
}

static enum status take_log(struct control *control, const struct parcel *parcel)
{
    char line[CONTROL_MAX_BYTES + 1];

    memcpy(line, parcel->data, parcel->bytes);
    line[parcel->bytes] = '\0';
    if (control->print)
        control->print(control->print_context, parcel->peer, line);
    return STATUS_OK;
}

static enum status take_claim(struct control *control, const struct parcel *parcel)
{
    struct claim claim;
    enum status st = claim_decode(parcel->data, parcel->bytes, &claim);

    if (st || claim.rank < 0 || claim.rank >= control->size)
        return STATUS_CORRUPT;
    if (parcel->kind == CONTROL_SETTLE)
        control_take_settle(control, parcel->peer, &claim);
    else
        control_take_verdict(control, &claim);
    return STATUS_OK;
}

static enum status take_roll_call(struct control *control, const struct parcel *parcel)
{
    if (!control->take_roll || control->take_roll(control->roll_context, parcel->peer, parcel->kind == CONTROL_CALLED,
                                                  parcel->data, parcel->bytes))
        return STATUS_OK;
    return STATUS_CORRUPT;
}

static enum status take(struct control *control, const struct parcel *parcel, struct error *err)
{
    enum status st = STATUS_CORRUPT;

    switch (parcel->kind) {
    case CONTROL_POISON:
        st = take_poison(control, parcel);
        break;
    case CONTROL_INQUIRE:
        st = take_inquiry(control, parcel);
        break;
    case CONTROL_ANSWER:
        st = take_answer(control, parcel);
        break;
    case CONTROL_LOG:
        st = take_log(control, parcel);
        break;
    case CONTROL_SETTLE:
    case CONTROL_VERDICT:
        st = take_claim(control, parcel);
        break;
    case CONTROL_ROLL:
    case CONTROL_CALLED:
        st = take_roll_call(control, parcel);
        break;
    case CONTROL_KINDS:
        break;
    }
    return st ? error_set(err, st, "control message of kind %d from rank %d contradicts itself", parcel->kind,
                          parcel->peer)
              : STATUS_OK;
}

/* Our own sign of life, seen often enough to date its last change for whoever asks.  Whoever did not look for long (a
 * stopped process, a machine without time for it) has seen nothing stand still: the clock starts anew. */
static void look_at_counter(struct control *control)
{
    uint64_t now_ns = clock_ns();
    bool stalled = now_ns - control->looked_ns > STALL_MS * NS_PER_MS;

    control->looked_ns = now_ns;
    if (stalled)
        control->awake_ns = now_ns;
    if (control->state->counter == control->counter && !stalled)
        return;
    control->counter = control->state->counter;
    control->changed_ns = now_ns;
}

enum status control_poll(struct control *control, struct error *err)
{
    unsigned char message[CONTROL_BYTES];
    enum status st = STATUS_OK;

    look_at_counter(control);
    for (int served = 0; served < SERVE_AT_ONCE && st == STATUS_OK; served++) {
        bool found = false;
        bool whole = false;
        int peer = -1;

        st = control->ops->control_receive(control->transport, &peer, message, &found, err);
        if (st || !found)
            break;
        control->heard_ns[peer] = clock_ns();
        st = inbox_take(control->inbox, peer, message, control->parcel, &whole, err);
        if (st == STATUS_OK && whole)
            st = take(control, control->parcel, err);
    }
    return st;
}

bool control_expired(struct control *control, struct cause *ret)
{
    uint64_t now_ns = clock_ns();

    if (!control->state->waiting)
        return false;
    look_at_counter(control);
    send_inquiry(control, suspicion_step(&control->suspicion, control->state, now_ns));
    if (!suspicion_expired(&control->suspicion, control->state, still_ns(control, now_ns), awake_ns(control, now_ns),
                           now_ns, ret))
        return false;
    ret->reporter = control->rank;
    ret->time_ns = now_ns - control->start_ns;
    return true;
}

bool control_waiting(struct control *control, char *line, size_t line_bytes)
{
    const struct wait_state *state = control->state;
    uint64_t now_ns = clock_ns();
    uint64_t quiet_ns = now_ns - control->told_ns;

    if (!control->told_ns || (quiet_ns > QUIET_NS && quiet_ns > control->gap_ns && state->since_ns > control->told_ns))
        control->gap_ns = 0;
    if (!state->waiting || now_ns < state->since_ns + FIRST_GAP_NS || quiet_ns < control->gap_ns ||
        !suspicion_tell(&control->suspicion, state, now_ns, line, line_bytes))
        return false;
    control->told_ns = now_ns;
    control->gap_ns = control->gap_ns ? 3 * control->gap_ns : 2 * FIRST_GAP_NS;
    if (control->gap_ns > LONGEST_GAP_NS)
        control->gap_ns = LONGEST_GAP_NS;
    return true;
}

void control_roll(struct control *control, int peer, bool answer, const unsigned char *data, size_t bytes)
{
    control_tell(control, peer, answer ? CONTROL_CALLED : CONTROL_ROLL, data, bytes);
}

void control_set_roll(struct control *control, control_take_roll *take_roll, void *context)
{
    control->take_roll = take_roll;
    control->roll_context = context;
}

void control_set_log(struct control *control, void (*print)(void *context, int rank, const char *line), void *context)
{
    control->print = print;
    control->print_context = context;
}

void control_set_speak(struct control *control, cause_speak *speak, void *context)
{
    control->speak = speak;
    control->speak_context = context;
}

void control_log(struct control *control, const char *line)
{
    if (control->rank != 0)
        control_tell(control, 0, CONTROL_LOG, (const unsigned char *)line, strnlen(line, CONTROL_MAX_BYTES));
    else if (control->print)
        control->print(control->print_context, 0, line);
}
