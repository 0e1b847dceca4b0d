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

/* Unmap; the file stays as it is.  NULL is allowed. */
void recorder_close(struct recorder *recorder);

/* Write a posted operation over the oldest record; returns its number for recorder_end.  record is copied. */
uint64_t recorder_post(struct recorder *recorder, const struct record *record);

/* It ended: done (STATUS_OK) or failed.  Ignored when its record has been overwritten. */
void recorder_end(struct recorder *recorder, uint64_t number, enum status st);

/* What this rank does now. */
void recorder_state(struct recorder *recorder, const struct wait_state *state);

/* After a failure: only its phase is new, what it waited for when it failed stays. */
void recorder_phase(struct recorder *recorder, const char *phase);

/* A sign of life, without news. */
void recorder_alive(struct recorder *recorder);

/* How a rank's life ended, as far as its file says. */
enum recorder_end {
    RECORDER_RUNNING, /* it has not said */
    RECORDER_CLOSED,  /* cleanly */
    RECORDER_FAILED,  /* with a cause; what it waited for then stays written */
    RECORDER_KILLED,  /* by a signal: its keeper says so */
    RECORDER_END_COUNT
};

/* The rank leaves: RECORDER_CLOSED with STATUS_OK, else RECORDER_FAILED.  The first call counts. */
void recorder_leave(struct recorder *recorder, enum status st);

/* Its keeper: the rank died by a signal.  Best effort: without a recorder of this version nothing is written. */
void recorder_mark_killed(const char *run_dir, int rank, int signal);

/* Its keeper: the process ended by itself.  Written as a failed end (STATUS_LOST) where its file does not say yet how
 * it ended: something made the process exit.  Best effort, too. */
void recorder_mark_ended(const char *run_dir, int rank);

/* A recorder's file, read.  About 50 KiB: keep it on the heap. */
struct recorder_view {
    int rank;
    int size;
    int pid;
    char host[64];
    uint64_t started_unix_ns;
    uint64_t written_ns; /* last sign of life, since the start */
    enum recorder_end end;
    enum status end_status;  /* RECORDER_FAILED */
    int end_signal;          /* RECORDER_KILLED */
    uint64_t ended_ns;       /* since the start; 0: it has not ended */
    uint64_t operations;     /* posted so far */
    struct wait_state state; /* since_ns counts from the recorder's start */
    bool torn;               /* its writer stopped in the middle of state */
    int count;
    struct record records[RECORDER_RECORDS]; /* oldest first; torn ones are left out */
};

/* The file's bytes as a view; any bytes are allowed.  Names hold printable characters only, peers are ranks below size
 * or -1.  Pure.  STATUS_CORRUPT: no recorder, cut short, of another version, or its numbers contradict each other. */
enum status recorder_parse(const unsigned char *bytes, size_t count, struct recorder_view *ret, struct error *err);

/* Read a recorder's file; its writer may be alive.  STATUS_STORAGE (cannot be read), else as recorder_parse with the
 * path in front. */
enum status recorder_load(const char *path, struct recorder_view *ret, struct error *err);

/* Its path into path [path_bytes].  STATUS_OVERFLOW when it does not fit. */
enum status recorder_path(const char *run_dir, int rank, char *path, size_t path_bytes);

/* What a rank did last, from its file in run_dir, as text: its last record, its phase.  False: there is none. */
bool recorder_last(const char *run_dir, int rank, char *text, size_t text_bytes, uint64_t *ret_written_ns);

/* What tells whether a rank lives, from its file's first KiB. */
struct recorder_sign {
    int size;
    int pid;
    char host[64];
    uint64_t started_unix_ns;
    uint64_t written_ns; /* last sign of life, since the start */
    enum recorder_end end;
};

/* False: the rank has no file of this version that can be read. */
bool recorder_sign(const char *run_dir, int rank, struct recorder_sign *ret);

/* "all_reduce_sum on tensor/0, sequence 12, posted 3.2 s before" into text. */
void record_text(const struct record *record, uint64_t now_ns, char *text, size_t text_bytes);

#endif
