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

/* From the next run on this rank (-1: none) builds communicators of lines so much later, or never: ms is negative. */
void native_sums_build_late(int rank, int ms);
/* Who has built the group's communicator: a bit per world rank. */
uint32_t native_sums_opened(uint32_t id);

#endif
