/* One empty file a rank, looked at only when something is wrong. */
#include "launcher/roll_call.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX + 32, SHOWN = 8 };

static void file_of(const struct roll_call *call, int rank, char *path)
{
    (void)snprintf(path, PATH_BYTES, "%s/rank-%06d.starting", call->folder, rank);
}

void roll_call_answer(struct roll_call *call, const char *folder, int rank, int size)
{
    char path[PATH_BYTES];
    int file;

    *call = (struct roll_call){.rank = rank, .size = size};
    if (strlen(folder) >= sizeof call->folder)
        return;
    (void)snprintf(call->folder, sizeof call->folder, "%s", folder);
    file_of(call, rank, path);
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        call->folder[0] = '\0';
    else
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

bool roll_call_missing(const struct roll_call *call, struct text *out)
{
    char path[PATH_BYTES];
    int lowest = -1;
    int missing = 0;

    if (!call->folder[0])
        return true;
    for (int rank = 0; rank < call->size; rank++) {
        file_of(call, rank, path);
        if (access(path, F_OK) == 0)
            lowest = lowest < 0 ? rank : lowest;
        else if (missing++ < SHOWN)
            text_add(out, "%srank %d", missing > 1 ? ", " : "", rank);
    }
    if (missing > SHOWN)
        text_add(out, " and %d more", missing - SHOWN);
    if (missing)
        text_add(out, missing > 1 ? " have not come" : " has not come");
    else
        text_add(out, "all %d ranks have come", call->size);
    return lowest < 0 || lowest == call->rank;
}
