/* Ranks under mpirun deal out the devices of their machine.  usage: mpi_devices WISH DEVICES VISIBLE
 *
 * WISH      nccl, auto, or staged: device memory, over mpi
 * DEVICES   of the machine
 * VISIBLE   all; one: each rank sees the device of its local rank alone; none at rank 1 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/device_meeting.h"
#include "comm/plugin.h"
#include "tests/suite.h"

static struct device_offer offer;
static struct device_verdict verdict;
static struct device_facts facts;
static enum status came;
static struct error came_err;
static int rank;
static int size;
static int devices;
static const char *visible;
static enum device_wish wish;

/* All communication comes before the first assertion. */
static enum status meet(struct error *err)
{
    const struct transport_options options = {.startup_timeout_ns = 30 * NS_PER_S};
    const struct plugin *mpi = NULL;
    const struct plugin *cuda = NULL;
    struct transport *transport = NULL;
    enum status closed;
    enum status st = plugin_open("mpi", &mpi, NULL, 0, err);

    if (st == STATUS_OK)
        st = plugin_open("cuda", &cuda, NULL, 0, err);
    if (st == STATUS_OK)
        st = mpi->transport->open(&options, &transport, err);
    if (st != STATUS_OK)
        return st;
    rank = mpi->transport->rank(transport);
    size = mpi->transport->size(transport);
    st = device_offer_read(cuda->devices, NULL, wish, NULL, &offer, err);
    if (st == STATUS_OK)
        came = device_meet(mpi->transport, transport, &offer, clock_ns() + 30 * NS_PER_S, &verdict, &came_err);
    if (st == STATUS_OK && verdict.index >= 0)
        st = cuda->devices->describe(verdict.index, &facts, err);
    closed = mpi->transport->close(transport, true, st == STATUS_OK ? err : NULL);
    return st == STATUS_OK ? closed : st;
}

START_TEST(each_rank_has_a_device_of_its_own_or_all_hear_why_not)
{
    char expected[64];

    ck_assert_msg(came == STATUS_OK, "%s", came_err.text);
    if (strcmp(visible, "none") == 0) {
        ck_assert_int_eq(verdict.index, -1);
        ck_assert_int_eq(verdict.decision, DEVICES_UNUSED);
        ck_assert_ptr_nonnull(strstr(verdict.text, "rank 1 on "));
        ck_assert_ptr_nonnull(strstr(verdict.text, "CUDA_VISIBLE_DEVICES is \"\""));
    } else if (wish == DEVICE_STAGING_WANTED) {
        ck_assert_int_eq(verdict.status, STATUS_OK);
        ck_assert_int_eq(verdict.decision, DEVICES_STAGED);
        ck_assert_int_eq(verdict.index, rank % devices);
    } else if (size <= devices) {
        ck_assert_int_eq(verdict.status, STATUS_OK);
        ck_assert_int_eq(verdict.decision, DEVICES_NATIVE);
        ck_assert_int_eq(verdict.index, strcmp(visible, "one") == 0 ? 0 : rank);
        ck_assert_str_eq(offer.device[verdict.index].pci, facts.pci);
    } else {
        ck_assert_int_eq(verdict.status, wish == DEVICE_WANTED ? STATUS_ENVIRONMENT : STATUS_OK);
        ck_assert_int_eq(verdict.decision, DEVICES_UNUSED);
        ck_assert_int_eq(verdict.index, -1);
        (void)snprintf(expected, sizeof expected, "ranks 0, %d", devices);
        ck_assert_msg(strstr(verdict.text, expected), "%s", verdict.text);
    }
    if (strcmp(visible, "one") == 0)
        ck_assert_int_eq(offer.count, 1);
}
END_TEST

/* Before CUDA looks at it. */
static void hide(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");

    if (strcmp(visible, "one") == 0)
        (void)setenv("CUDA_VISIBLE_DEVICES", local ? local : "0", 1);
    else if (strcmp(visible, "none") == 0 && local && strcmp(local, "1") == 0)
        (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

int main(int argc, char **argv)
{
    Suite *suite = suite_create("devices");
    TCase *tests = tcase_create("devices");
    struct error err = {0};

    if (argc != 4)
        return 2;
    wish = strcmp(argv[1], "nccl") == 0   ? DEVICE_WANTED
           : strcmp(argv[1], "auto") == 0 ? DEVICE_WELCOME
                                          : DEVICE_STAGING_WANTED;
    devices = (int)strtol(argv[2], NULL, 10);
    visible = argv[3];
    (void)setenv("FERRY_STANDIN_DEVICES", argv[2], 1);
    hide();
    if (meet(&err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    tcase_add_test(tests, each_rank_has_a_device_of_its_own_or_all_hear_why_not);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
