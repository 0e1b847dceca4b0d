/* All ranks agree on who works on which device, before there is a session. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/loopback/loopback.h"
#include "base/clock.h"
#include "comm/device_meeting.h"
#include "tests/suite.h"

enum { MOST = 9, DEVICES = 4 };

struct guest {
    pthread_t thread;
    struct transport *transport;
    int rank;
    enum device_wish wish;
    bool absent;    /* never comes */
    size_t strange; /* sends so many bytes instead of an offer */
    uint64_t within_ns;
    uint64_t ended_ns;
    struct device_verdict verdict;
    enum status status;
    struct error err;
};

static void describe(struct guest *guest, struct device_offer *offer)
{
    *offer =
        (struct device_offer){.wish = guest->wish, .numa_node = -1, .wanted = -1, .count = DEVICES, .native = true};
    (void)snprintf(offer->host, sizeof offer->host, "n%d", guest->rank / DEVICES);
    (void)snprintf(offer->machine, sizeof offer->machine, "m%d", guest->rank / DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        (void)snprintf(offer->device[i].pci, sizeof offer->device[i].pci, "0000:%02x:00.0", i);
        offer->device[i].numa_node = -1;
    }
}

static void *come(void *context)
{
    static const char bytes[DEVICE_OFFER_BYTES + 1];
    struct guest *guest = context;
    struct device_offer offer;
    struct work *work = NULL;
    bool over = false;

    describe(guest, &offer);
    if (guest->strange) {
        guest->status = loopback_ops.send(guest->transport, 0, 0, bytes, guest->strange, &work, &guest->err);
        while (guest->status == STATUS_OK && !over)
            guest->status = loopback_ops.test(guest->transport, work, &over, &guest->err);
    } else if (!guest->absent) {
        guest->status = device_meet(&loopback_ops, guest->transport, &offer, clock_ns() + guest->within_ns,
                                    &guest->verdict, &guest->err);
    }
    guest->ended_ns = clock_ns();
    return NULL;
}

static void meet(struct guest *guests, int size)
{
    struct loopback_world *world = NULL;
    struct error err = {0};

    ck_assert_int_eq(loopback_world_create(size, &(struct loopback_options){.eager_bytes = 4096}, &world, &err),
                     STATUS_OK);
    for (int rank = 0; rank < size; rank++) {
        guests[rank].rank = rank;
        if (!guests[rank].within_ns)
            guests[rank].within_ns = 20 * NS_PER_S;
        ck_assert_int_eq(loopback_join(world, rank, &guests[rank].transport, &err), STATUS_OK);
    }
    for (int rank = 0; rank < size; rank++)
        ck_assert_int_eq(pthread_create(&guests[rank].thread, NULL, come, &guests[rank]), 0);
    for (int rank = 0; rank < size; rank++)
        pthread_join(guests[rank].thread, NULL);
    for (int rank = 0; rank < size; rank++)
        (void)loopback_ops.close(guests[rank].transport, false, NULL);
    loopback_world_destroy(world);
}

static const int sizes[] = {1, 2, 4, 9};

START_TEST(every_rank_hears_of_its_own_device)
{
    struct guest guests[MOST] = {0};
    int size = sizes[_i];

    for (int rank = 0; rank < size; rank++)
        guests[rank].wish = DEVICE_WANTED;
    meet(guests, size);
    for (int rank = 0; rank < size; rank++) {
        ck_assert_msg(guests[rank].status == STATUS_OK, "rank %d: %s", rank, guests[rank].err.text);
        ck_assert_int_eq(guests[rank].verdict.status, STATUS_OK);
        ck_assert_int_eq(guests[rank].verdict.decision, DEVICES_NATIVE);
        ck_assert_int_eq(guests[rank].verdict.index, rank % DEVICES);
        ck_assert_str_eq(guests[rank].verdict.text, "every rank has a GPU of its own");
    }
}
END_TEST

START_TEST(one_rank_that_was_told_otherwise_leaves_all_without)
{
    struct guest guests[3] = {{.wish = DEVICE_WANTED}, {.wish = DEVICE_UNDECIDED}, {.wish = DEVICE_WANTED}};

    meet(guests, 3);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_int_eq(guests[rank].status, STATUS_OK);
        ck_assert_int_eq(guests[rank].verdict.decision, DEVICES_UNUSED);
        ck_assert_int_eq(guests[rank].verdict.index, -1);
    }
}
END_TEST

START_TEST(a_rank_that_never_comes_is_named_and_nobody_waits_for_ever)
{
    struct guest guests[4] = {{.wish = DEVICE_WANTED, .within_ns = 100 * NS_PER_MS},
                              {.absent = true},
                              {.wish = DEVICE_WANTED, .within_ns = 200 * NS_PER_MS},
                              {.absent = true}};

    meet(guests, 4);
    ck_assert_int_eq(guests[0].status, STATUS_TIMEOUT);
    ck_assert_msg(strstr(guests[0].err.text, "2 of 4 ranks have not come within startup_timeout: 1, 3"), "%s",
                  guests[0].err.text);
    ck_assert_int_eq(guests[2].status, STATUS_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(guests[2].err.text, "rank 0 has not answered"));
}
END_TEST

START_TEST(whoever_waits_for_the_choice_leaves_it_to_rank_0_to_name_the_missing)
{
    static const char said[] = "startup_timeout: 2 (after ";
    struct guest guests[3] = {{.wish = DEVICE_WANTED, .within_ns = 400 * NS_PER_MS},
                              {.wish = DEVICE_WANTED, .within_ns = NS_PER_MS},
                              {.absent = true}};
    uint64_t before_ns = clock_ns();
    const char *named = NULL;
    char *behind = NULL;
    uint64_t took_ns = 0;
    double told = 0;

    meet(guests, 3);
    took_ns = clock_ns() - before_ns;
    ck_assert_uint_ge(took_ns, 400 * NS_PER_MS);
    ck_assert_uint_ge(guests[1].ended_ns, guests[0].ended_ns);
    named = strstr(guests[0].err.text, said);
    ck_assert_msg(named != NULL, "%s", guests[0].err.text);
    /* In tenths of a second; later than that where the machine has something else to do. */
    told = strtod(named + strlen(said), &behind);
    ck_assert_msg(strncmp(behind, " s): ", 5) == 0 && told >= 0.4 && told <= (double)took_ns / 1e9 + 0.05, "%s in %g s",
                  guests[0].err.text, (double)took_ns / 1e9);
}
END_TEST

START_TEST(a_message_of_another_size_is_refused_before_it_is_received)
{
    struct guest guests[2] = {{.wish = DEVICE_WANTED}, {.strange = DEVICE_OFFER_BYTES + 1}};

    meet(guests, 2);
    ck_assert_int_eq(guests[0].status, STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(guests[0].err.text, "rank 1 sent 1537 bytes"));
}
END_TEST

START_TEST(bytes_that_are_no_offer_are_refused_with_their_rank)
{
    struct guest guests[2] = {{.wish = DEVICE_WANTED}, {.strange = DEVICE_OFFER_BYTES}};

    meet(guests, 2);
    ck_assert_int_eq(guests[0].status, STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(guests[0].err.text, "rank 1: an offer of devices"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("devices");
    TCase *tests = tcase_create("devices");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, every_rank_hears_of_its_own_device, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_test(tests, one_rank_that_was_told_otherwise_leaves_all_without);
    tcase_add_test(tests, a_rank_that_never_comes_is_named_and_nobody_waits_for_ever);
    tcase_add_test(tests, whoever_waits_for_the_choice_leaves_it_to_rank_0_to_name_the_missing);
    tcase_add_test(tests, a_message_of_another_size_is_refused_before_it_is_received);
    tcase_add_test(tests, bytes_that_are_no_offer_are_refused_with_their_rank);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
