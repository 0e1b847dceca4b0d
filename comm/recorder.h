/* The flight recorder: this rank's last operations and what it waits for now, in a mapped file of the run folder.
 *
 * The file has a fixed size, is reserved on disk before it is mapped and written in place, so that it survives SIGKILL
 * and a full disk.  `ferry doctor` and the keeper read it, also while its rank still writes.  Fields lie little-endian
 * at fixed offsets (recorder.c).  One writer at a time: the session's lock.  A NULL recorder records nothing. */
#ifndef COMM_RECORDER_H
#define COMM_RECORDER_H

#include "base/status.h"
#include "comm/control.h"
#include "comm/spec.h"

enum { RECORDER_RECORDS = 256 };

enum record_state { RECORD_NONE, RECORD_POSTED, RECORD_DONE, RECORD_FAILED };

struct record {
    uint64_t number; /* counts this rank's records from 0; given by recorder_post */
    enum operation operation;
    uint32_t object_id; /* group or route */
    char object_name[64];
    int peer; /* world rank; -1: a whole group */
    uint64_t sequence;
    uint64_t epoch;
    uint64_t bytes;
    uint64_t posted_ns; /* since the recorder was opened; given by recorder_post */
    uint64_t ended_ns;  /* 0: not ended */
    enum record_state state;
    enum status status; /* of a failed one */
};

struct recorder;

/* Create RUN_DIR/rank-000003.recorder (the folder must exist).  STATUS_STORAGE names the file (no space included),
 * STATUS_NOMEM. */
enum status recorder_open(const char *run_dir, int rank, int size, struct recorder **ret, struct error *err);

/* Unmap; the file stays.  NULL is allowed. */
void recorder_close(struct recorder *recorder);

/* Write a posted operation over the oldest record; returns its number for recorder_end.  record is copied. */
uint64_t recorder_post(struct recorder *recorder, const struct record *record);

/* It ended: done (STATUS_OK) or failed.  Ignored when its record has been overwritten. */
void recorder_end(struct recorder *recorder, uint64_t number, enum status st);

/* What this rank does now. */
void recorder_state(struct recorder *recorder, const struct wait_state *state);

/* A recorder's file, read.  About 50 KiB: keep it on the heap. */
struct recorder_view {
    int rank;
    int size;
    int pid;
    char host[64];
    uint64_t started_unix_ns;
    uint64_t written_ns;     /* last write, since the start */
    struct wait_state state; /* since_ns counts from the recorder's start */
    int count;
    struct record records[RECORDER_RECORDS]; /* oldest first; torn ones are left out */
};

/* Read a recorder's file; its writer may be alive.  STATUS_STORAGE (cannot be read), STATUS_CORRUPT (no recorder). */
enum status recorder_load(const char *path, struct recorder_view *ret, struct error *err);

/* Its path into path [path_bytes].  STATUS_OVERFLOW when it does not fit. */
enum status recorder_path(const char *run_dir, int rank, char *path, size_t path_bytes);

/* What a rank did last, from its file in run_dir, as text: its last record, its phase.  False: there is none. */
bool recorder_last(const char *run_dir, int rank, char *text, size_t text_bytes, uint64_t *ret_written_ns);

/* "all_reduce_sum on tensor/0, sequence 12, posted 3.2 s before" into text. */
void record_text(const struct record *record, uint64_t now_ns, char *text, size_t text_bytes);

#endif
