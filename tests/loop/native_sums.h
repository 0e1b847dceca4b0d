/* A transport's library that adds by itself, for tests: over loopback, on the host, from the last member to the first.
 */
#ifndef TESTS_LOOP_NATIVE_SUMS_H
#define TESTS_LOOP_NATIVE_SUMS_H

#include "comm/transport.h"

/* ops with sums of its own; one at a time in a process. */
struct transport_ops native_sums_transport(const struct transport_ops *ops);

/* Calls since the start of the process, those that have neither ended nor been cancelled, and open communicators. */
int native_sums_calls(void);
int native_sums_pending(void);
int native_sums_open(void);

#endif
