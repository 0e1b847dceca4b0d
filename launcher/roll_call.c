/* One small file a rank, its host and the number of ranks, read only when something is wrong. */
#include "launcher/roll_call.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/interfaces.h"

enum { PATH_BYTES = PATH_MAX + 32, SHOWN = 8 };

static void file_of(const struct roll_call *call, int rank, char *path)
{
    (void)snprintf(path, PATH_BYTES, "%s/rank-%06d.starting", call->folder, rank);
}

void roll_call_answer(struct roll_call *call, const char *folder, const struct starter *starter)
{
    char path[PATH_BYTES];
    char line[128];
    int file;

    *call = (struct roll_call){
        .rank = starter->rank, .size = starter->size, .one_host = starter->local_size == starter->size};
    if (strlen(folder) >= sizeof call->folder)
        return;
    (void)snprintf(call->host, sizeof call->host, "%s", starter->host);
    (void)snprintf(call->folder, sizeof call->folder, "%s", folder);
    file_of(call, call->rank, path);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    (void)snprintf(line, sizeof line, "%s\n%d\n", call->host, call->size);
    if (file < 0 || write(file, line, strlen(line)) < 0)
        call->folder[0] = '\0';
    if (file >= 0)
        close(file);
}

void roll_call_end(struct roll_call *call)
{
    char path[PATH_BYTES];

    if (!call->folder[0])
        return;
    file_of(call, call->rank, path);
    (void)unlink(path);
    call->folder[0] = '\0';
}

/* Has this rank left its file?  *ret_elsewhere: on another host. */
static bool has_come(const struct roll_call *call, int rank, bool *ret_elsewhere)
{
    char path[PATH_BYTES];
    char line[128] = "";
    int file;
    ssize_t length;

    file_of(call, rank, path);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    length = read(file, line, sizeof line - 1);
    close(file);
    line[strcspn(line, "\n")] = '\0';
    *ret_elsewhere = length > 0 && strcmp(line, call->host) != 0;
    return true;
}

/* Only ranks of this host can be seen: no word about the others. */
static void add_unshared(const struct roll_call *call, int come, struct text *out)
{
    text_add(out,
             "of %d ranks only the %d on %s have left a file in %s: either no rank of another host has come, or the "
             "folder is not shared between the hosts (set run_dir to one that is, to be told who is missing)",
             call->size, come, call->host, call->folder);
}

/* Nobody is missing, and still they do not find each other: over several hosts that is mostly a wrong network. */
static void add_complete(const struct roll_call *call, struct text *out)
{
    text_add(out, "all %d ranks have come", call->size);
    if (call->one_host)
        return;
    text_add(out,
             ", but MPI does not connect them: communication.interface must name a network that joins the hosts, and "
             "%s has ",
             call->host);
    interfaces_list(out);
}

bool roll_call_missing(const struct roll_call *call, struct text *out)
{
    struct text missing = {0};
    int lowest = -1;
    int come = 0;
    int absent = 0;
    bool others = call->one_host;

    if (!call->folder[0])
        return true;
    for (int rank = 0; rank < call->size; rank++) {
        bool elsewhere = false;

        if (has_come(call, rank, &elsewhere)) {
            lowest = lowest < 0 ? rank : lowest;
            others = others || elsewhere;
            come++;
        } else if (absent++ < SHOWN) {
            text_add(&missing, "%srank %d", absent > 1 ? ", " : "", rank);
        }
    }
    if (absent > SHOWN)
        text_add(&missing, " and %d more", absent - SHOWN);
    if (absent && !others)
        add_unshared(call, come, out);
    else if (absent)
        text_add(out, "%s %s not come", text_string(&missing), absent > 1 ? "have" : "has");
    else
        add_complete(call, out);
    text_done(&missing);
    return lowest < 0 || lowest == call->rank;
}
