/* How ranks that know one name find each other: a socket of that name in the kernel's abstract space, which leaves
 * nothing behind whoever dies.  The process that made the name serves the meeting: when all have come it makes the
 * shared table and hands it to each as a file without a name. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/standin/nccl_inside.h"

struct card {
    int32_t rank;
    int32_t size;
    char bus[STANDIN_BUS_BYTES];
};

static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "ferry-standin-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

/* --- the server ------------------------------------------------------------------------------------------------- */

static int make_table(const struct card *cards, int size)
{
    int file = memfd_create("ferry-standin", MFD_CLOEXEC);
    struct table *table;

    if (file < 0 || ftruncate(file, (off_t)table_bytes(size)) != 0)
        return -1;
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (table == MAP_FAILED)
        return -1;
    table->size = size;
    for (int rank = 0; rank < size; rank++)
        memcpy(table->seats[rank].bus, cards[rank].bus, STANDIN_BUS_BYTES);
    munmap(table, sizeof *table);
    return file;
}

static void hand_over(int guest, int file)
{
    char byte = 1;
    struct iovec part = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {{0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};

    control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    /* Who has gone meanwhile needs none. */
    if (sendmsg(guest, &message, MSG_NOSIGNAL) < 0)
        return;
}

/* The next guest and his card; -1: he left, or makes no sense. */
static int admit(int door, struct card *card)
{
    int guest = accept4(door, NULL, NULL, SOCK_CLOEXEC);

    if (guest < 0)
        return -1;
    if (recv(guest, card, sizeof *card, MSG_WAITALL) == (ssize_t)sizeof *card && card->size >= 1 &&
        card->size <= RANKS_MAX && card->rank >= 0 && card->rank < card->size)
        return guest;
    close(guest);
    return -1;
}

static void *serve(void *argument)
{
    int door = (int)(intptr_t)argument;
    int guests[RANKS_MAX];
    struct card cards[RANKS_MAX] = {0};
    int size = RANKS_MAX;
    int file;

    for (int came = 0; came < size;) {
        struct card card;
        int guest = admit(door, &card);

        if (guest < 0)
            continue;
        cards[card.rank] = card;
        guests[came++] = guest;
        size = card.size;
    }
    file = make_table(cards, size);
    for (int i = 0; i < size; i++) {
        if (file >= 0)
            hand_over(guests[i], file);
        close(guests[i]);
    }
    close(file);
    close(door);
    return NULL;
}

ncclResult_t meeting_serve(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (door < 0 || bind(door, (const struct sockaddr *)&address, length) != 0 || listen(door, RANKS_MAX) != 0) {
        int error = errno;

        if (door >= 0)
            close(door);
        return comm_fail(ncclSystemError, "no socket for the meeting: %s", strerror(error));
    }
    job_start(serve, (void *)(intptr_t)door);
    return ncclSuccess;
}

/* --- a guest ---------------------------------------------------------------------------------------------------- */

static int receive_file(int host)
{
    char byte;
    struct iovec part = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int file = -1;

    if (recvmsg(host, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen < CMSG_LEN(sizeof(int)))
        return -1;
    memcpy(&file, CMSG_DATA(&control.header), sizeof file);
    return file;
}

/* Until the host is there, which for a split may be later than this rank. */
static int knock(struct ncclComm *comm, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);

    while (!comm_stopped(comm)) {
        int host = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (host >= 0 && connect(host, (const struct sockaddr *)&address, length) == 0)
            return host;
        if (host >= 0)
            close(host);
        clock_sleep_ns(NS_PER_MS);
    }
    return -1;
}

static bool has_news(struct ncclComm *comm, int host)
{
    struct pollfd one = {.fd = host, .events = POLLIN};

    while (!comm_stopped(comm))
        if (poll(&one, 1, MS_OF_A_LOOK) == 1)
            return true;
    return false;
}

static struct table *map_table(int file, int size)
{
    void *table = mmap(NULL, table_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    return table == MAP_FAILED ? NULL : table;
}

struct table *meeting_attend(struct ncclComm *comm, const char *name, ncclResult_t *result)
{
    struct card card = {.rank = comm->rank, .size = comm->size};
    struct table *table = NULL;
    int host = knock(comm, name);
    int file = -1;

    *result = ncclSystemError;
    standin_bus(comm->device, card.bus);
    if (host >= 0 && send(host, &card, sizeof card, MSG_NOSIGNAL) == (ssize_t)sizeof card && has_news(comm, host))
        file = receive_file(host);
    if (host >= 0)
        close(host);
    if (file >= 0) {
        table = map_table(file, comm->size);
        close(file);
    }
    if (table)
        *result = ncclSuccess;
    return table;
}
