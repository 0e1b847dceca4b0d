/* One lock, one control thread, one list of active lanes.
 *
 * Whoever submits or waits moves the work in its own thread; the control thread wakes every few tens of milliseconds,
 * answers the control channel and moves what nobody else moves, so that a computing rank is never taken for dead. */
#include "comm/session_private.h"

int session_rank(const struct session *session)
{
    return session->rank;
}

int session_size(const struct session *session)
{
    return session->size;
}

void session_lock(struct session *session)
{
    (void)pthread_mutex_lock(&session->lock);
}

void session_unlock(struct session *session)
{
    (void)pthread_mutex_unlock(&session->lock);
}
