/* The folder of one run below run_dir, the same for all its ranks: rings, logs, cause.json. */
#ifndef LAUNCHER_RUN_FOLDER_H
#define LAUNCHER_RUN_FOLDER_H

#include <stdint.h>

#include "base/text.h"
#include "comm/transport.h"

enum { RUN_ID_BYTES = 64 };

/* The id that FERRY_RUN_ID, or the starter, gives all ranks of this run, into id [RUN_ID_BYTES]; "": none is given.  A
 * longer one of the starter's is shortened, its end replaced by a digest of it all.
 * STATUS_ENVIRONMENT: FERRY_RUN_ID is too long or holds control characters. */
enum status run_id_given(char *id, struct error *err);

/* The given id, else time and process: rank 0's choice.  As run_id_given. */
enum status run_id_choose(char *id, struct error *err);

/* All ranks take rank 0's id (in id there, "" for no folder).  Collective over the transport's world, before a session
 * takes it; blocks until deadline_ns.  id [RUN_ID_BYTES] must outlive the transport.
 * STATUS_TIMEOUT, STATUS_CORRUPT (another message came), the transport's. */
enum status run_id_agree(const struct transport_ops *ops, struct transport *transport, uint64_t deadline_ns, char *id,
                         struct error *err);

/* Make run_dir and run_dir/NAME-ID; path receives the latter.  STATUS_STORAGE, STATUS_NOMEM. */
enum status run_folder_make(const char *run_dir, const char *name, const char *id, struct text *path,
                            struct error *err);

/* The folder is this job's, and no other's, until the process ends; nothing of an earlier run stays in the way.  One
 * rank says so: rank 0.  Where another has failed before and nobody had the folder until now, its cause stays: an
 * earlier run without a rank 0 that left one less than ten seconds ago is taken for this one.  job tells jobs apart
 * (run_job_name).
 *
 * The mark is a lock on FOLDER/owner, which also says who has it.  Where the file system has no locks a process of this
 * host is looked for, and one of another host by signs of life in its flight recorder.
 * STATUS_ENVIRONMENT: another job runs in it; its process, its host and since when.  STATUS_STORAGE. */
enum status run_folder_claim(const char *path, const char *job, struct error *err);

/* Before MPI, on any rank: is the folder that of another job that runs?  False also where that cannot be told. */
bool run_folder_is_others(const char *path, const char *job);

/* What the starter calls this job, the same on all its ranks; "": it does not say.  Lent by the environment. */
const char *run_job_name(void);

/* Does this host see the folder that rank 0 writes to? */
bool run_folder_shared(const char *path);

#endif
