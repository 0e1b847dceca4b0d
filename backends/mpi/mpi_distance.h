/* How far away a process of this host is, as the messages to and from it tell.
 *
 * Three questions, which one machine need not answer alike.  How soon does a line come that it has just written?  Where
 * that is soon, it shares a cache with this process.  Where it is not, many lines in a row may still come quickly: how
 * quickly does it read what is lent to it?  That says whether to lend.  And how quickly do plain stores write what it
 * has read last?  That says whether to write its mail by them.  All may change while a job runs: systems move
 * processes, and those under them virtual processors; so all are measured again and again.
 *
 * What a peer says of itself decides only which way a message takes, never what comes of it. */
#ifndef BACKENDS_MPI_DISTANCE_H
#define BACKENDS_MPI_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

enum { DISTANCE_LINE_BYTES = 64 };

/* How quick one way is, and when it was taken last. */
struct distance_way {
    int8_t quick;   /* times that it was less those that it was not, of either at most as many as are sure */
    uint8_t others; /* messages since that went another way */
};

/* Zeros: nothing is known yet. */
struct distance {
    int8_t near; /* looks that came soon less those that did not, of either at most as many as are sure */
    bool far;    /* the looks were sure that it is far, and not of the opposite since */
    struct distance_way lent;
    struct distance_way stored;
};

/* A line of memory that it wrote last took so long to come.  A few looks that agree decide; what takes much longer,
 * because somebody was not running, does not count. */
void distance_looked(struct distance *distance, uint64_t ns);
/* By the looks: does it share a cache with this process? */
bool distance_is_near(const struct distance *distance);

/* It says that reading so many lent lines took so long; 0: it does not say.  Some KiB at least count, and no time that
 * only somebody can have taken who was not running. */
void distance_read(struct distance *distance, uint64_t lines, uint64_t ns);
/* Is the next message, which can be lent, to be?  Asked once for each: to who reads slowly, or who is neither near nor
 * known, one is lent now and then, so that it is measured. */
bool distance_lends(struct distance *distance);

/* Plain stores to so many lines that it has read took so long; which times count is as of reads. */
void distance_stored(struct distance *distance, uint64_t lines, uint64_t ns);
/* Are plain stores the quickest way to write what it reads?  Else those of base/stream.h are.  True wherever it is
 * near. */
bool distance_is_stored_to(const struct distance *distance);
/* Is the next message, of some KiB at least, to be written by plain stores?  Asked once for each: now and then one is
 * where they were slow, or are not known, so that they are measured. */
bool distance_stores(struct distance *distance);

#endif
