/* Short messages over an MPI that sends only shorter ones at once (the job's --mca parameters say so): the probe finds
 * their beginning, and the rest comes when the sender is inside MPI again.  Rank 0 sends; it stays outside of MPI until
 * rank 1 has seen that they are not all there, and has said so by a signal. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/mpi/world.h"

enum { HELD_S = 20, LONGEST = 600 };

static struct world world;

static enum status finish(struct work *work)
{
    bool over = false;
    enum status st = STATUS_OK;

    while (st == STATUS_OK && !over)
        st = world.ops->test(world.transport, work, &over, NULL);
    return st;
}

static struct message *await(int peer, uint32_t tag, size_t *ret_bytes)
{
    struct message *message = NULL;

    while (!message && world.ops->probe(world.transport, peer, tag, &message, ret_bytes, NULL) == STATUS_OK)
        continue;
    return message;
}

static bool receive_matched(struct message *message, void *to, size_t count)
{
    struct work *work = NULL;

    return world.ops->receive(world.transport, message, to, count, &work, NULL) == STATUS_OK &&
           finish(work) == STATUS_OK;
}

static bool receive_whole(int peer, uint32_t tag, void *to, size_t count)
{
    size_t came = 0;
    struct message *message = await(peer, tag, &came);

    return came == count && receive_matched(message, to, count);
}

static bool send_whole(int peer, uint32_t tag, const void *from, size_t count)
{
    struct work *work = NULL;

    return world.ops->send(world.transport, peer, tag, from, count, &work, NULL) == STATUS_OK &&
           finish(work) == STATUS_OK;
}

/* Rank 1 tells rank 0 whom to signal. */
static pid_t exchange(void)
{
    pid_t pid = getpid();

    if (world.rank == 0)
        return send_whole(1, 1, &pid, sizeof pid) ? pid : -1;
    return receive_whole(0, 1, &pid, sizeof pid) ? pid : -1;
}

/* Both have come so far. */
static void meet(void)
{
    char token = 0;

    if (world.rank == 0 && send_whole(1, 2, &token, 1))
        (void)receive_whole(1, 2, &token, 1);
    else if (world.rank == 1 && receive_whole(0, 2, &token, 1))
        (void)send_whole(0, 2, &token, 1);
}

/* Outside of MPI until rank 1 lets go. */
static bool held(void)
{
    const struct timespec limit = {.tv_sec = HELD_S};
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGUSR1);
    return sigtimedwait(&signals, NULL, &limit) == SIGUSR1;
}

static unsigned char byte_of(int message, size_t i)
{
    return (unsigned char)((size_t)message * 31 + i * 7 + 1);
}

static void fill(unsigned char *to, int message, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = byte_of(message, i);
}

static bool is_filled(const unsigned char *from, int message, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (from[i] != byte_of(message, i))
            return false;
    }
    return true;
}

/* Of one tag each but the last two, which share theirs. */
static const struct {
    size_t count;
    uint32_t tag;
} messages[] = {{300, 11}, {511, 12}, {512, 13}, {513, 14}, {400, 15}, {301, 15}};
enum { MESSAGES = sizeof messages / sizeof messages[0], REFUSED = MESSAGES - 1 };

static unsigned char bytes[MESSAGES][LONGEST];
static struct work *works[MESSAGES];

/* One that is there at once, matched before the others have come and received after them. */
enum { KEPT = MESSAGES, KEPT_BYTES = 230, KEPT_TAG = 16 };
static unsigned char kept[KEPT_BYTES];

static int send_all(void)
{
    int good = 0;

    for (int i = 0; i < MESSAGES; i++) {
        fill(bytes[i], i, messages[i].count);
        good += world.ops->send(world.transport, 1, messages[i].tag, bytes[i], messages[i].count, &works[i], NULL) ==
                STATUS_OK;
    }
    return good;
}

/* Matches them all, but for refused, which is given back; returns how many are under way and not yet over. */
static int post_all(int refused)
{
    int pending = 0;

    for (int i = 0; i < MESSAGES; i++) {
        bool over = false;
        size_t came = 0;
        struct message *message = await(0, messages[i].tag, &came);

        if (came != messages[i].count)
            return -1;
        if (i == refused) {
            world.ops->give_back(world.transport, message, 0);
            continue;
        }
        if (world.ops->receive(world.transport, message, bytes[i], came, &works[i], NULL) != STATUS_OK)
            return -1;
        for (int turn = 0; turn < 100 && !over; turn++) {
            if (world.ops->test(world.transport, works[i], &over, NULL) != STATUS_OK)
                return -1;
        }
        if (over)
            works[i] = NULL;
        pending += !over;
    }
    return pending;
}

/* All of them, whatever is still under way; the last first. */
static int finish_all(int refused)
{
    int good = 0;

    for (int i = MESSAGES - 1; i >= 0; i--) {
        if (world.rank == 1 && i == refused)
            continue;
        good += !works[i] || finish(works[i]) == STATUS_OK;
        works[i] = NULL;
    }
    return good;
}

static void run(int refused)
{
    bool sender = world.rank == 0;
    pid_t pid = exchange();
    int wanted = refused >= 0 && !sender ? MESSAGES - 1 : MESSAGES;
    int posted;
    int early = 0;
    int good;
    size_t came = 0;
    bool let_go;
    bool kept_came;
    struct message *message = NULL;

    memset(bytes, 0, sizeof bytes);
    fill(kept, sender ? KEPT : 0, KEPT_BYTES);
    posted = sender ? send_all() : post_all(refused);
    kept_came = sender ? send_whole(1, KEPT_TAG, kept, KEPT_BYTES) : (message = await(0, KEPT_TAG, &came)) != NULL;
    for (int i = 0; i < MESSAGES && !sender; i++)
        early += bytes[i][0] != 0;
    let_go = sender ? held() : kill(pid, SIGUSR1) == 0;
    good = finish_all(refused);
    meet();
    if (message)
        kept_came = came == KEPT_BYTES && receive_matched(message, kept, KEPT_BYTES);
    ck_assert_msg(posted == wanted, "%d of %d under way", posted, wanted);
    ck_assert(let_go);
    ck_assert_int_eq(good, wanted);
    ck_assert_msg(early <= 1, "%d messages lie in the caller's memory before they have come", early);
    ck_assert(kept_came);
    ck_assert(is_filled(kept, KEPT, KEPT_BYTES));
    for (int i = 0; i < MESSAGES; i++) {
        if (sender || i != refused)
            ck_assert_msg(is_filled(bytes[i], i, messages[i].count), "message %d", i);
    }
}

START_TEST(a_short_message_that_is_not_all_there_is_delivered_when_it_is)
{
    run(-1);
}
END_TEST

/* Its record stays MPI's until it has come: no later message lands in it. */
START_TEST(a_short_message_given_back_before_it_is_all_there_harms_no_other)
{
    run(REFUSED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mpi brief");
    TCase *tests = tcase_create("mpi brief");
    struct error err = {0};
    enum status st = world_open(&world, &err);
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    if (st == STATUS_OK && world.size != 2)
        st = error_set(&err, STATUS_USAGE, "needs two ranks");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_short_message_that_is_not_all_there_is_delivered_when_it_is);
    tcase_add_test(tests, a_short_message_given_back_before_it_is_all_there_harms_no_other);
    tcase_add_test(tests, a_short_message_that_is_not_all_there_is_delivered_when_it_is);
    suite_add_tcase(suite, tests);
    return world_run(&world, suite, st, &err);
}
