/* The inside of libferry's handles, for the files that implement include/ferry.h.
 *
 * A handle is what comm calls by the same name together with its session, so that a call that meets the session's
 * failure can settle it.  Tensors, bundles, shapes and dtypes are comm's and base's own under another name. */
#ifndef RUNTIME_FERRY_PRIVATE_H
#define RUNTIME_FERRY_PRIVATE_H

#include <sys/types.h>

#include "comm/completion.h"
#include "comm/group.h"
#include "comm/route.h"
#include "comm/session.h"
#include "include/ferry.h"
#include "runtime/plan.h"

struct fault;
struct topology;

struct ferry_group {
    struct ferry_session *session;
    struct group *group;
};

struct ferry_route {
    struct ferry_session *session;
    struct route *route;
    uint64_t step; /* of the last transfer sent */
};

struct ferry_completion {
    struct ferry_session *session;
    struct completion *completion;
    /* Called while the completion is pending, abandoned or not. */
    ferry_describe *describe; /* of a receipt */
    ferry_work *work;         /* of a submission */
    void *context;
};

struct ferry_session {
    pid_t process;       /* that has opened it */
    unsigned char *mark; /* not 0 there alone; NULL: this system cannot mark it so */
    struct topology *topology;
    struct plan *plan;
    struct rank_plan rank;
    struct session *session;
    char transport[256];
    struct fault *faults;
    size_t fault_count;
    struct ferry_group *groups; /* [plan->group_count] */
    struct ferry_route *routes; /* [plan->route_count] */
};

/* What a call of the interface returns for st and its sentence.  When the session has failed that is the cause that all
 * ranks agree on, now if they have not yet.  session NULL: a call that concerns none. */
enum ferry_status ferry_result(struct ferry_session *session, enum status st, const struct error *err,
                               struct ferry_error *error);

/* An argument that must not be NULL, by the name that ferry.h gives it. */
struct named {
    const char *name;
    const void *value;
};
#define NAMED(argument)                                                                                                \
    {                                                                                                                  \
#argument, argument                                                                                            \
    }
#define GIVEN(error, ...) ferry_given((const struct named[]){__VA_ARGS__, {0}}, error)

/* FERRY_OK, or FERRY_INVALID with the first that is NULL. */
enum ferry_status ferry_given(const struct named *named, struct ferry_error *error);

/* FERRY_OK, or FERRY_INVALID in a process that was forked from the session's own: there is no control thread there, and
 * what it sent would come from its parent's rank. */
enum ferry_status ferry_here(const struct ferry_session *session, struct ferry_error *error);
enum status ferry_here_own(const struct ferry_session *session, struct error *err);

/* The program's sentence on one line; says so where there is none (NULL or empty). */
void ferry_line(char *line, size_t line_bytes, const char *text);

/* What a function of the program has returned, with its sentence, as ours. */
enum status ferry_called(enum ferry_status status, const struct ferry_error *error, struct error *err);

/* Ours for a status of the interface; STATUS_INTERNAL for a number that is none. */
enum status ferry_status_own(enum ferry_status status);

/* One operation that is being posted. */
struct posting {
    struct ferry_session *session;
    struct ferry_completion *completion; /* where the operation's goes */
    enum status status;
    struct error err;
};

/* Prepare; false: posting_end says why (session NULL then: it is none of the session's). */
bool posting_begin(struct posting *posting, struct ferry_session *session);
/* It was posted (status is STATUS_OK: *ret is the completion) or not. */
enum ferry_status posting_end(struct posting *posting, struct ferry_completion **ret, struct ferry_error *error);

#endif
