/* Two jobs in one folder would overwrite each other's recorders, and one of two causes would be lost.
 *
 * FOLDER/owner is locked by rank 0 of the job that it belongs to, with a lock of the open file (F_OFD_SETLK), which the
 * kernel takes away with the process, however that ends, and which NFS carries to other hosts.  The text in it is for
 * people, and for file systems without locks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/cause.h"
#include "comm/recorder.h"
#include "launcher/process.h"
#include "launcher/run_folder.h"
#include "launcher/starter.h"

enum { PATH_BYTES = 4096, JOB_BYTES = 128, TEXT_BYTES = 512, READ_TRIES = 20 };

#define READ_AGAIN_NS (10 * NS_PER_MS)
/* Many times as long as a living rank needs for a sign of life. */
#define SIGN_NS (400 * NS_PER_MS)
/* A rank that failed before rank 0 came to claim the folder did so when the job began. */
#define JUST_NS (10 * NS_PER_S)
/* A process that began later than the text was written has only got its number. */
#define LATER_NS (1 * NS_PER_S)

struct owner {
    int pid; /* 0: the text cannot be read */
    char host[64];
    unsigned long long since_unix_ns;
    char job[JOB_BYTES];
};

static enum status owner_path(const char *folder, char *path, struct error *err)
{
    int length = snprintf(path, PATH_BYTES, "%s/owner", folder);

    if (length < 0 || length >= PATH_BYTES)
        return error_set(err, STATUS_STORAGE, "run_dir %.200s...: the path is too long", folder);
    return STATUS_OK;
}

/* "process 4711\nhost node3\nsince 1700000000000000000\njob 123\n" */
static struct owner read_owner(int file)
{
    struct owner owner = {0};
    char text[TEXT_BYTES] = "";
    ssize_t count = pread(file, text, sizeof text - 1, 0);

    text[count > 0 ? count : 0] = '\0';
    /* NOLINTNEXTLINE(cert-err34-c): what is no number is no owner */
    if (sscanf(text, "process %d\nhost %63[^\n]\nsince %llu\njob %127[^\n]", &owner.pid, owner.host,
               &owner.since_unix_ns, owner.job) < 3)
        owner.pid = 0;
    for (char *c = owner.host; *c; c++)
        *c = (char)(*c < ' ' || *c == 0x7f ? '?' : *c);
    return owner;
}

/* Whoever has just locked it may not have written it yet. */
static struct owner read_living(int file)
{
    struct owner owner = read_owner(file);

    for (int i = 0; i < READ_TRIES && !owner.pid; i++) {
        clock_sleep_ns(READ_AGAIN_NS);
        owner = read_owner(file);
    }
    return owner;
}

static enum status write_owner(int file, const char *path, const char *job, struct error *err)
{
    struct starter starter;
    char text[TEXT_BYTES];
    int length;

    starter_read(&starter);
    length = snprintf(text, sizeof text, "process %d\nhost %s\nsince %llu\njob %.*s\n", (int)getpid(), starter.host,
                      (unsigned long long)clock_unix_ns(), JOB_BYTES - 1, job);
    if (ftruncate(file, 0) || pwrite(file, text, (size_t)length, 0) != length)
        return error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

enum lock { LOCK_TAKEN, LOCK_OTHERS, LOCK_NONE };

static enum lock take_lock(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(file, F_OFD_SETLK, &lock) == 0)
        return LOCK_TAKEN;
    return errno == EAGAIN || errno == EACCES ? LOCK_OTHERS : LOCK_NONE;
}

static bool is_here(const struct owner *owner)
{
    struct starter starter;

    starter_read(&starter);
    return strcmp(owner->host, starter.host) == 0;
}

static bool process_lives(const struct owner *owner)
{
    struct process process;

    return process_read(owner->pid, &process) && process.state != 'Z' &&
           process.started_unix_ns < owner->since_unix_ns + LATER_NS;
}

/* Does rank 0 of that job, on another host, still write into the folder? */
static bool gives_signs(const char *folder)
{
    struct recorder_sign before;
    struct recorder_sign after;

    if (!recorder_sign(folder, 0, &before) || before.end != RECORDER_RUNNING)
        return false;
    clock_sleep_ns(SIGN_NS);
    return recorder_sign(folder, 0, &after) && after.written_ns != before.written_ns;
}

/* A lock is proof on the host that it was taken on, and where the file system carries it to the others. */
static bool lives(const char *folder, enum lock lock, const struct owner *owner)
{
    if (lock == LOCK_OTHERS)
        return true;
    if (!owner->pid)
        return false;
    if (is_here(owner))
        return lock == LOCK_NONE && process_lives(owner);
    return gives_signs(folder);
}

static enum status refuse(const char *folder, const struct owner *owner, struct error *err)
{
    time_t when = (time_t)(owner->since_unix_ns / NS_PER_S);
    struct tm parts;
    char since[64] = "";
    char who[160] = "that cannot be read from its file";

    if (owner->pid) {
        if (gmtime_r(&when, &parts))
            (void)strftime(since, sizeof since, ", since %Y-%m-%d %H:%M:%S UTC", &parts);
        (void)snprintf(who, sizeof who, "%d on %s%s", owner->pid, owner->host, since);
    }
    return error_set(err, STATUS_ENVIRONMENT,
                     "run_dir: %s is the folder of another job that runs, process %s: give this one another "
                     "FERRY_RUN_ID, or wait for that one's end",
                     folder, who);
}

static int64_t unix_ns(const struct timespec *time)
{
    return (int64_t)time->tv_sec * (int64_t)NS_PER_S + time->tv_nsec;
}

/* Is the cause in a folder that nobody had claimed before of an earlier job, which never had a rank 0?  Else a rank of
 * this one has failed already, or does while we look.  Both times are the file system's. */
static bool cause_is_stale(const char *folder, int new_owner)
{
    char path[PATH_BYTES];
    struct stat cause;
    struct stat owner;
    int length = snprintf(path, sizeof path, "%s/cause.json", folder);

    return length > 0 && length < PATH_BYTES && stat(path, &cause) == 0 && fstat(new_owner, &owner) == 0 &&
           unix_ns(&owner.st_mtim) - unix_ns(&cause.st_mtim) >= (int64_t)JUST_NS;
}

/* The file stays open, and so the lock ours, until the process ends: a recorder of this job is written to the end. */
enum status run_folder_claim(const char *folder, const char *job, struct error *err)
{
    char path[PATH_BYTES];
    struct owner owner;
    enum lock lock;
    bool stale;
    int file;
    enum status st = owner_path(folder, path, err);

    if (st != STATUS_OK)
        return st;
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    stale = file < 0 || cause_is_stale(folder, file);
    if (file < 0)
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return error_set(err, STATUS_STORAGE, "%s: %s", path, strerror(errno));
    lock = take_lock(file);
    owner = lock == LOCK_OTHERS ? read_living(file) : read_owner(file);
    if (lives(folder, lock, &owner))
        st = refuse(folder, &owner, err);
    else
        st = write_owner(file, path, job, err);
    if (st == STATUS_OK && stale)
        cause_forget(folder);
    if (st != STATUS_OK)
        close(file);
    return st;
}

bool run_folder_is_others(const char *folder, const char *job)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct owner owner = {0};
    char path[PATH_BYTES];
    int file = owner_path(folder, path, NULL) == STATUS_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (file < 0)
        return false;
    /* Nobody's: of an earlier job, or rank 0 of this one has not come yet. */
    if (fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
        owner = read_living(file);
    close(file);
    return owner.pid && owner.job[0] && job[0] && strncmp(owner.job, job, JOB_BYTES - 1) != 0;
}
