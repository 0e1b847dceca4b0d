/* Cost: one inquiry and one answer for every rank of the chain, every twentieth of the timeout (100 ms to 2 s), and
 * only once a wait has lasted a quarter of it, or 3 s. */
#include "comm/suspicion.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static uint64_t between(uint64_t low, uint64_t value, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static uint64_t since(uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

/* How long an answer may take before its rank counts as silent. */
static uint64_t patience(const struct suspicion *suspicion)
{
    return between(50 * NS_PER_MS, suspicion->timeout_ns / 4, 2 * NS_PER_S);
}

/* How long a wait lasts before anybody is asked. */
static uint64_t calm(const struct suspicion *suspicion)
{
    return between(0, suspicion->timeout_ns / 4, 3 * NS_PER_S);
}

static uint64_t interval(const struct suspicion *suspicion)
{
    return between(100 * NS_PER_MS, suspicion->timeout_ns / 20, 2 * NS_PER_S);
}

void suspicion_init(struct suspicion *suspicion, int self, uint64_t timeout_ns, const uint64_t *heard_ns)
{
    *suspicion = (struct suspicion){
        .self = self, .timeout_ns = timeout_ns, .heard_ns = heard_ns, .peer = -1, .unanswered_rank = -1};
}

static int ask(struct suspicion *suspicion, int rank, uint64_t now_ns)
{
    suspicion->links[suspicion->count++] = (struct chain_link){.rank = rank, .asked_ns = now_ns};
    if (suspicion->unanswered_rank != rank || suspicion->heard_ns[rank] >= suspicion->unanswered_ns) {
        suspicion->unanswered_rank = rank;
        suspicion->unanswered_ns = now_ns;
    }
    return rank;
}

static bool silent(const struct suspicion *suspicion, const struct chain_link *link, uint64_t now_ns)
{
    return !link->heard && suspicion->unanswered_rank == link->rank &&
           suspicion->heard_ns[link->rank] < suspicion->unanswered_ns &&
           since(suspicion->unanswered_ns, now_ns) >= patience(suspicion);
}

/* May a new round begin?  Not while an answer of this one may still come. */
static bool round_over(const struct suspicion *suspicion, uint64_t now_ns)
{
    const struct chain_link *last = &suspicion->links[suspicion->count - 1];

    return since(suspicion->round_ns, now_ns) >= interval(suspicion) &&
           (suspicion->end != CHAIN_OPEN || since(last->asked_ns, now_ns) >= patience(suspicion));
}

static bool same_wait(const struct suspicion *suspicion, const struct wait_state *own)
{
    return own->since_ns == suspicion->since_ns && own->peer == suspicion->peer;
}

int suspicion_step(struct suspicion *suspicion, const struct wait_state *own, uint64_t now_ns)
{
    int next = -1;

    if (!same_wait(suspicion, own)) {
        suspicion->since_ns = own->since_ns;
        suspicion->peer = own->peer;
        suspicion->count = 0;
        suspicion->end = CHAIN_OPEN;
        suspicion->unanswered_rank = -1;
    }
    if (own->peer < 0 || own->peer == suspicion->self || since(own->since_ns, now_ns) < calm(suspicion))
        return -1;
    if (!suspicion->count || round_over(suspicion, now_ns)) {
        suspicion->round_ns = now_ns;
        suspicion->inquiry++;
        suspicion->end = CHAIN_OPEN;
        suspicion->count = 0;
        next = ask(suspicion, own->peer, now_ns);
    }
    if (suspicion->end == CHAIN_OPEN && silent(suspicion, &suspicion->links[suspicion->count - 1], now_ns))
        suspicion->end = CHAIN_SILENT;
    return next;
}

/* Where rank stands in the chain: its index; -1: it is ourselves; -2: it is not in it. */
static int position(const struct suspicion *suspicion, int rank)
{
    if (rank == suspicion->self)
        return -1;
    for (int i = 0; i < suspicion->count; i++) {
        if (suspicion->links[i].rank == rank)
            return i;
    }
    return -2;
}

int suspicion_answer(struct suspicion *suspicion, int rank, const struct answer *answer, uint64_t now_ns)
{
    const struct wait_state *state = &answer->state;
    struct chain_link *last;
    int at;

    if (!suspicion->count || answer->inquiry != suspicion->inquiry)
        return -1;
    last = &suspicion->links[suspicion->count - 1];
    if (last->rank != rank || last->heard)
        return -1;
    last->heard = true;
    last->heard_ns = now_ns;
    last->answer = *answer;
    suspicion->end = CHAIN_BUSY;
    if (!state->waiting || state->peer < 0 || state->peer == rank)
        return -1;
    at = position(suspicion, state->peer);
    if (at >= -1) {
        suspicion->end = CHAIN_CYCLE;
        suspicion->cycle_start = at;
        return -1;
    }
    if (suspicion->count == SUSPICION_MAX_CHAIN)
        return -1;
    suspicion->end = CHAIN_OPEN;
    return ask(suspicion, state->peer, now_ns);
}

/* For how long this link has shown no sign of life. */
static uint64_t link_still(const struct suspicion *suspicion, const struct chain_link *link, uint64_t now_ns)
{
    uint64_t heard_ns = suspicion->heard_ns[link->rank];

    if (link->heard)
        return link->answer.still_ns + since(link->heard_ns, now_ns);
    return since(heard_ns > suspicion->since_ns ? heard_ns : suspicion->since_ns, now_ns);
}

/* Text that is cut, never overrun, at the end of a cause. */
struct line {
    char *text;
    size_t room;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line->text, line->room, format, args);
    va_end(args);
    if (length > 0) {
        size_t used = (size_t)length < line->room ? (size_t)length : line->room - 1;

        line->text += used;
        line->room -= used;
    }
}

static void add_wait(struct line *line, int rank, const struct wait_state *state)
{
    if (state->waiting && state->peer >= 0)
        add(line, "; rank %d waits for rank %d", rank, state->peer);
    else
        add(line, "; rank %d %s", rank, state->waiting ? "waits" : "does not wait");
    if (state->operation != OPERATION_NONE)
        add(line, "%s in %s on %s%s, sequence %" PRIu64, state->waiting ? "" : ", it was last",
            operation_name(state->operation), state->operation == OPERATION_COMPUTE ? "executor " : "",
            state->object_name, state->sequence);
    if (state->phase[0])
        add(line, " (%s)", state->phase);
}

static void add_head(struct line *line, const struct suspicion *suspicion, const struct chain_link *last,
                     uint64_t still_ns)
{
    double seconds = (double)still_ns / 1e9;

    switch (suspicion->end) {
    case CHAIN_SILENT:
        add(line, "rank %d has been silent for %.1f s", last->rank, seconds);
        break;
    case CHAIN_CYCLE:
        add(line, "ranks wait for each other since %.1f s: ", seconds);
        if (suspicion->cycle_start < 0)
            add(line, "%d, ", suspicion->self);
        for (int i = suspicion->cycle_start < 0 ? 0 : suspicion->cycle_start; i < suspicion->count; i++)
            add(line, "%d%s", suspicion->links[i].rank, i + 1 < suspicion->count ? ", " : "");
        break;
    default:
        add(line, "rank %d has stood still for %.1f s (counter %" PRIu64 ")", last->rank, seconds,
            last->answer.state.counter);
        break;
    }
    add(line, " (timeout %.1f s)", (double)suspicion->timeout_ns / 1e9);
}

/* The end of the chain; of a cycle its lowest rank: the same whoever finds it. */
static int end_of(const struct suspicion *suspicion)
{
    int rank = suspicion->links[suspicion->count - 1].rank;

    if (suspicion->end != CHAIN_CYCLE)
        return rank;
    if (suspicion->cycle_start < 0 && suspicion->self < rank)
        rank = suspicion->self;
    for (int i = suspicion->cycle_start < 0 ? 0 : suspicion->cycle_start; i < suspicion->count; i++) {
        if (suspicion->links[i].rank < rank)
            rank = suspicion->links[i].rank;
    }
    return rank;
}

static void add_chain(struct line *line, const struct suspicion *suspicion, const struct wait_state *own)
{
    add_wait(line, suspicion->self, own);
    for (int i = 0; i < suspicion->count; i++) {
        if (i == 3 && suspicion->count > 6) {
            add(line, "; and so on through %d ranks", suspicion->count - 5);
            i = suspicion->count - 2;
        }
        if (suspicion->links[i].heard)
            add_wait(line, suspicion->links[i].rank, &suspicion->links[i].answer.state);
    }
}

static void compose(const struct suspicion *suspicion, const struct wait_state *own, uint64_t still_ns,
                    struct cause *ret)
{
    const struct chain_link *last = &suspicion->links[suspicion->count - 1];
    struct line line = {ret->text, sizeof ret->text};

    add_head(&line, suspicion, last, still_ns);
    add_chain(&line, suspicion, own);
    ret->status = STATUS_TIMEOUT;
    ret->rank = suspicion->end == CHAIN_CYCLE ? -1 : end_of(suspicion);
}

/* We wait, but for no rank that could be asked: this rank itself is the end of the chain. */
static void compose_alone(const struct suspicion *suspicion, const struct wait_state *own, uint64_t still_ns,
                          struct cause *ret)
{
    struct line line = {ret->text, sizeof ret->text};

    add(&line, "rank %d has stood still for %.1f s (timeout %.1f s)", suspicion->self, (double)still_ns / 1e9,
        (double)suspicion->timeout_ns / 1e9);
    add_wait(&line, suspicion->self, own);
    ret->status = STATUS_TIMEOUT;
    ret->rank = suspicion->self;
}

bool suspicion_expired(const struct suspicion *suspicion, const struct wait_state *own, uint64_t own_still_ns,
                       uint64_t own_awake_ns, uint64_t now_ns, struct cause *ret)
{
    uint64_t waited_ns = since(own->since_ns, now_ns);
    bool alone = own->peer < 0 || own->peer == suspicion->self;
    bool at_us = alone || (suspicion->end == CHAIN_CYCLE && suspicion->cycle_start < 0);
    uint64_t own_ns = at_us ? own_still_ns : own_awake_ns;
    uint64_t still_ns = waited_ns < own_ns ? waited_ns : own_ns;

    if (still_ns < suspicion->timeout_ns)
        return false;
    if (alone) {
        compose_alone(suspicion, own, still_ns, ret);
        return true;
    }
    if (!suspicion->count || suspicion->end == CHAIN_OPEN || !same_wait(suspicion, own))
        return false;
    for (int i = 0; i < suspicion->count; i++) {
        uint64_t link_ns = link_still(suspicion, &suspicion->links[i], now_ns);

        still_ns = link_ns < still_ns ? link_ns : still_ns;
    }
    if (still_ns < suspicion->timeout_ns)
        return false;
    compose(suspicion, own, still_ns, ret);
    return true;
}

bool suspicion_tell(const struct suspicion *suspicion, const struct wait_state *own, uint64_t now_ns, char *text,
                    size_t text_bytes)
{
    const struct chain_link *last = NULL;
    struct line line = {text, text_bytes};
    double waited_s = (double)since(own->since_ns, now_ns) / 1e9;

    if (own->peer < 0 || own->peer == suspicion->self) {
        add(&line, "waiting for %.1f s", waited_s);
        add_wait(&line, suspicion->self, own);
        return true;
    }
    if (!suspicion->count || suspicion->end == CHAIN_OPEN || !same_wait(suspicion, own))
        return false;
    last = &suspicion->links[suspicion->count - 1];
    add(&line, "waiting for %.1f s: ", waited_s);
    if (suspicion->end == CHAIN_CYCLE)
        add(&line, "ranks wait for each other, rank %d among them", end_of(suspicion));
    else if (suspicion->end == CHAIN_SILENT)
        add(&line, "rank %d does not answer, for %.1f s now", last->rank,
            (double)link_still(suspicion, last, now_ns) / 1e9);
    else
        add(&line, "rank %d %s, its last sign of progress %.1f s ago", last->rank,
            last->answer.state.waiting ? "answers" : "works", (double)link_still(suspicion, last, now_ns) / 1e9);
    add_chain(&line, suspicion, own);
    return true;
}
