/* How far away a process of this host is, as the messages to and from it tell.
 *
 * Two questions, which one machine need not answer alike.  How soon does a line come that it has just written?  That
 * says by which stores to write what it reads.  And how quickly does it read what is lent to it, many lines in a row?
 * That says whether to lend.  Both may change while a job runs: systems move processes, and those under them virtual
 * processors; so both are measured again and again.
 *
 * What a peer says of itself decides only which way a message takes, never what comes of it. */
#ifndef BACKENDS_MPI_DISTANCE_H
#define BACKENDS_MPI_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

enum { DISTANCE_LINE_BYTES = 64 };

/* Zeros: nothing is known yet. */
struct distance {
    int8_t near;    /* looks that came soon less those that did not; */
    int8_t quick;   /* what was read quickly less what was not: of either at most as many as are sure */
    bool far;       /* the looks were sure that it is far, and not of the opposite since */
    uint8_t mailed; /* messages since the last one that was lent, which could have been lent, too */
};

/* A line of memory that it wrote last took so long to come.  A few looks that agree decide; what takes much longer,
 * because somebody was not running, does not count. */
void distance_looked(struct distance *distance, uint64_t ns);
/* By the looks: does it share a cache with this process?  Then plain stores are the quickest way to write what it
 * reads, else those of base/stream.h. */
bool distance_is_near(const struct distance *distance);

/* It says that reading so many lent lines took so long; 0: it does not say.  Some KiB at least count, and no time that
 * only somebody can have taken who was not running. */
void distance_read(struct distance *distance, uint64_t lines, uint64_t ns);
/* Is the next message, which can be lent, to be?  Asked once for each: to who reads slowly, or who is neither near nor
 * known, one is lent now and then, so that it is measured. */
bool distance_lends(struct distance *distance);

#endif
