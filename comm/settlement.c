/* After a failure: one cause for everybody, from whoever is left.
 *
 * Every rank claims the best cause that it knows (cause_compare), with the lowest rank known to take part, and claims
 * again whenever it learns better.  In a small world a rank is sure once it has heard from everybody; else it counts
 * who has not come within 2 s as lost.  Then the lowest rank that takes part speaks and sends its verdict, in this
 * order: as soon as one process has left, the starter ends the others.  They take the verdict, and only when none comes
 * within a further second their own claim.  No rank originates a cause while it settles, so the best of all claims is
 * the same wherever they have all arrived; the verdict covers the rest. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/control_private.h"

#define SETTLE_NS (2 * NS_PER_S)
#define VERDICT_NS (1 * NS_PER_S)
/* In all, however late the lowest begins. */
#define LONGEST_NS (6 * NS_PER_S)
/* In milliseconds.  The speaker's verdict must leave; the others stay longer, so that it has written cause.json before
 * a starter that sees the first of them end kills the rest. */
enum { SPEAKER_LINGERS = 100, LISTENER_LINGERS = 600 };

static void send_claim(struct control *control, enum control_kind kind, const struct claim *claim)
{
    unsigned char data[CONTROL_MAX_BYTES];

    control_tell_neighbours(control, kind, data, claim_encode(claim, data));
}

void control_consider(struct control *control, const struct cause *cause)
{
    if (control->best.cause.status && cause_compare(cause, &control->best.cause) >= 0)
        return;
    if (!control->best.cause.status)
        control->best.rank = control->rank;
    control->best.cause = *cause;
}

/* Serve the channel for a while. */
static void linger(struct control *control, int rounds)
{
    for (int i = 0; i < rounds && control_poll(control, NULL) == STATUS_OK; i++)
        clock_sleep_ns(NS_PER_MS);
}

void control_take_settle(struct control *control, int peer, const struct claim *claim)
{
    bool better = !control->best.cause.status || cause_compare(&claim->cause, &control->best.cause) < 0;
    bool lower = !control->best.cause.status || claim->rank < control->best.rank;

    control->settled_with[peer] = true;
    if (better)
        control->best.cause = claim->cause;
    if (lower)
        control->best.rank = claim->rank;
    control_adopt(control, &claim->cause);
    if (control->settling && (better || lower))
        send_claim(control, CONTROL_SETTLE, &control->best);
}

void control_take_verdict(struct control *control, const struct claim *claim)
{
    if (control->has_verdict)
        return;
    control->has_verdict = true;
    control->verdict = *claim;
    control_adopt(control, &claim->cause);
    if (control->size > CONTROL_DIRECT_RANKS)
        send_claim(control, CONTROL_VERDICT, claim);
}

static bool heard_everybody(const struct control *control)
{
    if (control->size > CONTROL_DIRECT_RANKS)
        return false;
    for (int peer = 0; peer < control->size; peer++) {
        if (peer != control->rank && !control->settled_with[peer])
            return false;
    }
    return true;
}

/* Until a verdict, or complete (asked when everybody counts), or the time is up. */
static void gather(struct control *control, uint64_t deadline_ns, bool until_everybody)
{
    uint64_t pause_ns = 50 * NS_PER_US;

    while (!control->has_verdict && clock_ns() < deadline_ns) {
        if (control_poll(control, NULL) || (until_everybody && heard_everybody(control)))
            return;
        clock_sleep_ns(pause_ns);
        pause_ns = pause_ns < NS_PER_MS ? 2 * pause_ns : NS_PER_MS;
    }
}

static void begin(struct control *control)
{
    struct claim own = {.rank = control->rank, .cause = control->cause};

    CHECK(control->poisoned && !control->settling);
    control->settling = true;
    if (control->best.cause.status && cause_compare(&control->best.cause, &own.cause) < 0)
        own.cause = control->best.cause;
    if (control->best.cause.status && control->best.rank < own.rank)
        own.rank = control->best.rank;
    control->best = own;
    send_claim(control, CONTROL_SETTLE, &control->best);
}

/* When the lowest rank's verdict must have come: it began to settle when we heard of it last, or before. */
static uint64_t verdict_deadline(const struct control *control, uint64_t begun_ns)
{
    uint64_t now_ns = clock_ns();
    uint64_t heard_ns = control->heard_ns[control->best.rank];
    uint64_t deadline_ns = now_ns + VERDICT_NS;

    if (heard_ns + SETTLE_NS + VERDICT_NS > deadline_ns)
        deadline_ns = heard_ns + SETTLE_NS + VERDICT_NS;
    return deadline_ns < begun_ns + LONGEST_NS ? deadline_ns : begun_ns + LONGEST_NS;
}

void control_settle(struct control *control, struct cause *ret, bool *ret_speaker)
{
    uint64_t begun_ns = clock_ns();

    begin(control);
    gather(control, begun_ns + SETTLE_NS, true);
    if (!control->has_verdict && control->best.rank != control->rank)
        gather(control, verdict_deadline(control, begun_ns), false);
    if (!control->has_verdict) {
        /* We are the lowest, or the lowest has gone: then whoever is left speaks rather than nobody. */
        struct claim verdict = {.rank = control->rank, .cause = control->best.cause};

        if (control->speak)
            control->speak(control->speak_context, &verdict.cause);
        send_claim(control, CONTROL_VERDICT, &verdict);
        control->verdict = verdict;
        control->has_verdict = true;
    }
    control->cause = control->verdict.cause;
    *ret = control->cause;
    *ret_speaker = control->verdict.rank == control->rank;
    linger(control, *ret_speaker ? SPEAKER_LINGERS : LISTENER_LINGERS);
}
