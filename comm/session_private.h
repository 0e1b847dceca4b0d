/* The inside of a session, for the files of comm alone.
 *
 * One lock guards everything: each public function takes it, and every slot of the transport and every function of
 * control runs under it.  Work lies in lanes, one a group or a route's end; session_advance steps the active ones.
 * Functions named here want the lock held unless they say otherwise. */
#ifndef COMM_SESSION_PRIVATE_H
#define COMM_SESSION_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/control.h"
#include "comm/fault.h"
#include "comm/session.h"

struct completion;
struct recorder;
struct staging;

/* One queue of work in order: of a group, or of one end of a route. */
struct lane {
    struct session *session;
    uint32_t id;
    const char *kind; /* "group", "route" */
    const char *name;
    struct completion *first; /* unfinished work, oldest first */
    struct completion *last;
    struct completion *orphan; /* quarantined: refuses new work while this is pending */
    struct completion **after; /* [after_count] what the next work submitted waits for; a reference of each */
    int after_count;
    uint32_t pending; /* how many it holds */
    struct lane *next_active;
    bool active; /* linked in session->active */
};

/* The wait that the timeout rule judges, however the caller waits: in one call, in many short ones, or by asking. */
struct asking {
    const struct lane *lane; /* whose work is waited for; NULL: of none */
    uint64_t since_ns;       /* nothing has moved since */
    uint64_t asked_ns;       /* when somebody waited for it or asked last */
    uint64_t moved;          /* session->moved at since_ns */
    bool between;            /* two calls: session->wait still tells of it */
};

enum { ASKERS = 16 };

/* A thread that asked for pending work, or gave up a wait for it. */
struct asker {
    pthread_t thread;
    uint64_t asked_ns; /* last; 0: none */
};

struct session {
    const struct transport_ops *ops;
    struct transport *transport;
    struct session_options options;
    int rank;
    int size;
    uint64_t start_ns;

    pthread_mutex_t lock;
    pthread_t thread; /* the control thread */
    bool thread_started;
    pthread_cond_t wake; /* tells the control thread to stop */
    bool stop;

    struct executor *executors; /* all that have not been joined */
    pthread_cond_t ready;       /* tells their workers: something was submitted, or what it waited for has ended */
    bool ended_awaited;         /* such work has ended since session_advance began its turn */

    struct control *control;
    char *run_dir;             /* own copy; NULL: none */
    struct recorder *recorder; /* NULL without a run_dir; owned */
    struct wait_state wait;    /* what "what do you wait for?" is answered with */
    int waiters;
    struct asking asking;
    struct asker askers[ASKERS]; /* those that asked last */
    bool starting; /* until the first operation of a group or receipt of a route has ended: startup_timeout_ns holds */

    bool failed;
    struct error failure; /* the first one */
    bool settled;
    bool speaker;
    bool ended; /* the transport has gone; what is left is memory */

    uint64_t digest; /* of what all ranks agreed on; in every frame.  Set by session_consensus, 0 before */
    struct session_counters counters;
    uint64_t advanced_ns;             /* when session_advance was called last */
    uint64_t polled_ns;               /* when the control channel was looked at last */
    atomic_uint_fast64_t progress_ns; /* when session_progress did something last */
    uint64_t moved;                   /* grows whenever a message moved or work ended */
    uint64_t epoch;                   /* of the last route transfer, for a cause */

    bool damage_armed; /* a flip or short fault waits for the next frame sent */
    struct fault damage;
    bool disk_full; /* rehearsed */

    struct lane *active;
    struct staging *staging;
    int queued;          /* what is waited for of a device: marks on its memory, messages and sums */
    struct group *world; /* every rank in order, id = the transport's largest tag; for consensus and close */
    int *world_members;
    struct group_spec world_spec;
    struct group **groups; /* sorted by id */
    size_t group_count;
    struct route **routes;
    size_t route_count;
};

void session_lock(struct session *session);   /* lock not held */
void session_unlock(struct session *session); /* releases it */

/* Count one posted operation and act on the faults rehearsed for it.  A delay sleeps without the lock.
 * *ret_skip: report it done without posting it.  STATUS_NOMEM (oom), or the session's first failure. */
enum status session_admit(struct session *session, bool *ret_skip, struct error *err);

/* Record and spread a failure of this rank; the first wins.  Another rank may print it, so this rank is put in front,
 * but for a mismatch, which names the ranks that it is about, and a mistake of the command line, which all ranks were
 * given.  Whose fault it is why says, else it is this rank's; a mismatch that does not say is nobody's in particular.
 * Returns the session's (first) status. */
enum status session_poison(struct session *session, enum status st, const struct error *why);

/* Look at the control channel now, before this rank says what it found: a rank that fails tells so first, and then
 * tears down its work.  True: a failure is known. */
bool session_hears_failure(struct session *session);

enum status session_poison_cause(struct session *session, const struct cause *cause);

/* The transport has gone, and not every rank with it: nobody can be asked or told any more, so this rank holds the
 * failure alone and speaks for itself, unless the culprit's keeper has. */
void session_miss_end(struct session *session, enum status st, const char *text);

/* Called by every turn of a wait: at rank 0, when it lasts, says whom the run waits for. */
void session_tell_waiting(struct session *session);

/* A cause_speak whose context is the session: this rank speaks for all.  Saves the cause, and tells it unless another's
 * was saved before. */
void session_speak(void *session, const struct cause *cause);

/* STATUS_OK, or the first failure (own, or heard on the control channel). */
enum status session_failed(struct session *session, struct error *err);

/* Serve the control channel and step every active lane once.  Never blocks. */
void session_advance(struct session *session);
/* The same, when the time is known. */
void session_advance_at(struct session *session, uint64_t now_ns);
/* Step every active lane once, without a look at the clock or at the control channel. */
void session_turn(struct session *session);

/* Start-up is over: timeout_ns holds. */
void session_end_start(struct session *session);

/* Wait until over(context) is true: spins up to 50 us, then sleeps in growing steps up to 1 ms without the lock.
 * What is told to whoever asks is the oldest work of the lane.
 * STATUS_OK, STATUS_TIMEOUT (deadline_ns passed, or quarantine), or the session's failure (the timeout rule
 * included). */
enum status session_wait(struct session *session, struct lane *lane, bool (*over)(void *context), void *context,
                         uint64_t deadline_ns, struct error *err);

/* Somebody asks for this lane's pending work without waiting: look at the timeout rule. */
void session_ask(struct session *session, struct lane *lane);

/* Has this very thread asked for pending work, and not been forgotten since? */
bool session_asked(const struct session *session, uint64_t now_ns);

/* Is the work over that was asked for, or does nobody ask for it any more?  Then this rank does not wait. */
void session_ask_end(struct session *session);

/* A message moved: a sign of life. */
static inline void session_moved(struct session *session)
{
    session->moved++;
    session->wait.counter++;
}

#endif
