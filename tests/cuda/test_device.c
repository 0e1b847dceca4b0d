/* Devices: what is seen of them, what is said where there is none, queues beside each other. */
#include <check.h>
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/device_meeting.h"
#include "tests/cuda/opened.h"
#include "tests/suite.h"

static struct device_facts facts_of(int index)
{
    struct device_facts facts;

    OK(plugin_here()->devices->describe(index, &facts, &err_));
    return facts;
}

static int count_here(void)
{
    int count = 0;

    OK(plugin_here()->devices->count(&count, &err_));
    return count;
}

START_TEST(a_device_is_described_before_it_is_opened)
{
    struct device_facts facts = facts_of(3);
    struct device_facts other = facts_of(1);
    struct error err = {0};
    unsigned int parts[4];

    ck_assert_int_eq(count_here(), 4);
    ck_assert_int_eq(sscanf(facts.pci, "%4x:%2x:%2x.%1x", &parts[0], &parts[1], &parts[2], &parts[3]), 4);
    for (const char *at = facts.pci; *at; at++)
        ck_assert(!isupper((unsigned char)*at));
    ck_assert_uint_eq(strlen(facts.uuid), strlen("GPU-00000000-0000-0000-0000-000000000000"));
    ck_assert_int_eq(strncmp(facts.uuid, "GPU-", 4), 0);
    ck_assert_str_ne(facts.uuid, other.uuid);
    ck_assert_str_ne(facts.pci, other.pci);
    ck_assert_str_ne(facts.name, "");
    ck_assert_uint_eq(facts.memory_bytes, UINT64_C(1) << 30);
    ck_assert_int_ge(facts.capability[0], 7);
    ck_assert_int_eq(plugin_here()->devices->describe(4, &facts, &err), STATUS_ENVIRONMENT);
    ck_assert_msg(strstr(err.text, "no device cuda:4: this process sees cuda:0 to cuda:3"), "%s", err.text);
}
END_TEST

/* What CUDA_VISIBLE_DEVICES leaves, by the index on the machine; %s: the beginning of device 2's UUID. */
static const struct visible_case {
    const char *visible;
    int seen[4];
    int count;
} visibles[] = {{"2", {2}, 1}, {"3,0", {3, 0}, 2}, {"%s", {2}, 1}, {"%s,1", {2, 1}, 2}, {"1,9,0", {1}, 1}};

/* Of another process, which sees all devices: the variable is read once. */
static void facts_of_all(struct device_facts *all, int count)
{
    int ends[2];
    int status = 0;
    size_t bytes = (size_t)count * sizeof *all;
    pid_t child;

    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        const struct plugin *plugin = NULL;
        bool good = plugin_open("cuda", &plugin, NULL, 0, NULL) == STATUS_OK;

        for (int i = 0; good && i < count; i++)
            good = plugin->devices->describe(i, &all[i], NULL) == STATUS_OK;
        _exit(!good || write(ends[1], all, bytes) != (ssize_t)bytes);
    }
    ck_assert_int_eq(read(ends[0], all, bytes), (ssize_t)bytes);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    close(ends[1]);
}

START_TEST(indices_are_those_that_the_variable_leaves)
{
    const struct visible_case *now = &visibles[_i];
    struct device_facts all[4];
    char word[32];
    char text[96];

    facts_of_all(all, 4);
    (void)snprintf(word, sizeof word, "%.12s", all[2].uuid);
    (void)snprintf(text, sizeof text, now->visible, word);
    (void)setenv("CUDA_VISIBLE_DEVICES", text, 1);
    ck_assert_int_eq(count_here(), now->count);
    for (int i = 0; i < now->count; i++)
        ck_assert_str_eq(facts_of(i).pci, all[now->seen[i]].pci);
}
END_TEST

static const struct lack_case {
    const char *variable;
    const char *value;
    const char *text;
} lacks[] = {
    {"FERRY_STANDIN_DRIVER", "0", "no CUDA driver on this machine"},
    {"FERRY_STANDIN_DRIVER", "12040", "too old: it knows CUDA 12.4, and this plugin was built with 13."},
    {"FERRY_STANDIN_DEVICES", "0", "no CUDA device on this machine"},
    {"CUDA_VISIBLE_DEVICES", "", "visible to this process: CUDA_VISIBLE_DEVICES is \"\""},
    {"CUDA_VISIBLE_DEVICES", "nine",
     "CUDA_VISIBLE_DEVICES is \"nine\"; its entry \"nine\" is no index, UUID or MIG id"},
};

START_TEST(what_is_missing_is_said_exactly)
{
    struct device_offer offer;
    struct error err = {0};
    struct device *device = NULL;
    int count = 7;

    (void)setenv(lacks[_i].variable, lacks[_i].value, 1);
    ck_assert_int_eq(plugin_here()->devices->count(&count, &err), STATUS_ENVIRONMENT);
    OK(device_offer_read(plugin_here()->devices, NULL, DEVICE_WANTED, NULL, &offer, &err_));
    ck_assert_int_eq(offer.count, 0);
    ck_assert_msg(strstr(offer.why, lacks[_i].text), "%s", offer.why);
    ck_assert_int_eq(plugin_here()->devices->open(0, &device, &err), STATUS_ENVIRONMENT);
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(an_offer_lists_what_this_process_sees)
{
    struct device_offer offer;
    struct error err = {0};

    OK(device_offer_read(plugin_here()->devices, NULL, DEVICE_WELCOME, facts_of(2).pci, &offer, &err_));
    ck_assert_int_eq(offer.count, 4);
    ck_assert_int_eq(offer.wanted, 2);
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(offer.device[i].pci, facts_of(i).pci);
    ck_assert_int_eq(device_offer_read(plugin_here()->devices, NULL, DEVICE_WELCOME, "7", &offer, &err), STATUS_USAGE);
}
END_TEST

START_TEST(libraries_are_named_with_both_versions)
{
    struct plugin_library list[PLUGIN_MAX_LIBRARIES];
    int count = plugin_here()->libraries(list);

    ck_assert_int_eq(count, 3);
    ck_assert_str_eq(list[0].name, "CUDA runtime");
    ck_assert_int_eq(strncmp(list[0].built, "13.", 3), 0);
    ck_assert_str_eq(list[1].name, "CUDA driver");
    ck_assert_str_eq(list[1].running, "13.0");
    ck_assert_str_eq(list[2].name, "NCCL");
    ck_assert_int_eq(strncmp(list[2].running, "2.", 2), 0);
}
END_TEST

static bool is_reached(struct memory *memory, struct memory_mark *mark)
{
    bool reached = false;

    OK(memory->ops->reached(memory, mark, &reached, &err_));
    return reached;
}

START_TEST(a_forked_queue_names_the_same_memory_and_has_an_order_of_its_own)
{
    enum { COUNT = 4096, DEEP = 12 };
    const struct device_ops *ops = plugin_here()->devices;
    struct device *device = NULL;
    struct memory *first;
    struct memory *second = NULL;
    struct memory_mark *slow = NULL;
    struct memory_mark *quick = NULL;
    unsigned char sent[COUNT];
    unsigned char got[COUNT] = {0};
    void *block = NULL;
    void *other = NULL;

    (void)setenv("FERRY_STANDIN_LAG", "30000", 1);
    device = device_here(1);
    first = device->memory;
    OK(ops->fork(device, &second, &err_));
    ck_assert_str_eq(first->ops->name(first), "cuda:1");
    ck_assert_str_eq(second->ops->name(second), "cuda:1.1");
    fill(sent, COUNT, 4);
    OK(first->ops->allocate(first, COUNT, &block, &err_));
    OK(first->ops->allocate(first, COUNT, &other, &err_));
    for (int i = 0; i < DEEP; i++)
        OK(first->ops->copy(first, block, sent, COUNT, &err_));
    OK(first->ops->mark(first, &slow, &err_));
    OK(second->ops->copy(second, other, sent, 1, &err_));
    OK(second->ops->mark(second, &quick, &err_));
    while (!is_reached(second, quick))
        clock_sleep_ns(NS_PER_MS);
    ck_assert(!is_reached(first, slow)); /* it did not wait for the other's work */
    while (!is_reached(first, slow))
        clock_sleep_ns(NS_PER_MS);
    OK(second->ops->copy(second, got, block, COUNT, &err_)); /* written through the first */
    settle(second);
    ck_assert_int_eq(memcmp(sent, got, COUNT), 0);
    first->ops->release(first, block);
    second->ops->release(second, other);
    settle(first);
    settle(second);
    ops->join(device, second);
    ops->join(device, NULL);
    OK(ops->fork(device, &second, &err_));
    ck_assert_str_eq(second->ops->name(second), "cuda:1.1"); /* the same, used again */
    ops->join(device, second);
    ops->close(device);
    ops->close(NULL);
}
END_TEST

START_TEST(what_it_can_do_is_recorded_and_unknown_is_never_zero)
{
    struct device *device = device_here(1);
    const struct device_capabilities *can = &device->capabilities;

    for (int dtype = DTYPE_F32; dtype < DTYPE_COUNT; dtype++) {
        bool half = dtype == DTYPE_F16 || dtype == DTYPE_BF16;

        ck_assert(can->copy_types & 1u << dtype);
        ck_assert_int_eq((can->add_types >> dtype & 1) != 0, !half && dtype != DTYPE_BOOL);
        ck_assert_int_eq((can->widen_types >> dtype & 1) != 0, half);
        ck_assert_int_eq((can->narrow_types >> dtype & 1) != 0, half);
    }
    ck_assert_uint_eq(can->product_types, 0); /* it computes nothing yet */
    ck_assert_uint_eq(can->alignment, MEMORY_ALIGN);
    ck_assert_uint_eq(can->granularity, MEMORY_ALIGN);
    ck_assert_str_eq(can->substrate, "device memory");
    ck_assert_ptr_nonnull(can->path_in);
    ck_assert_ptr_nonnull(can->path_out);
    ck_assert(can->flop_per_ns == DEVICE_UNKNOWN && can->bytes_per_ns == DEVICE_UNKNOWN);
    ck_assert_int_eq(device->index, 1);
    ck_assert_str_eq(device->facts.pci, facts_of(1).pci);
    plugin_here()->devices->close(device);
}
END_TEST

static uint64_t room(const struct device *device)
{
    struct memory_space space;

    OK(device->memory->ops->space(device->memory, &space, &err_));
    return space.available;
}

START_TEST(a_block_lies_on_its_own_device_whichever_is_the_threads)
{
    struct device *first = device_here(0);
    struct device *second = device_here(2);
    uint64_t before[2] = {room(first), room(second)};
    void *block = NULL;

    OK(second->memory->ops->allocate(second->memory, 1 << 20, &block, &err_));
    ck_assert_uint_eq(room(first), before[0]);
    ck_assert_uint_eq(room(second), before[1] - (1 << 20));
    second->memory->ops->release(second->memory, block);
    plugin_here()->devices->close(first);
    plugin_here()->devices->close(second);
}
END_TEST

START_TEST(two_devices_are_open_at_once)
{
    struct device *devices[2] = {device_here(0), device_here(3)};
    unsigned char sent[100];
    unsigned char got[2][100];
    void *blocks[2];

    for (int i = 0; i < 2; i++) {
        struct memory *memory = devices[i]->memory;

        fill(sent, sizeof sent, (unsigned int)i);
        OK(memory->ops->allocate(memory, sizeof sent, &blocks[i], &err_));
        OK(memory->ops->copy(memory, blocks[i], sent, sizeof sent, &err_));
        settle(memory);
    }
    for (int i = 0; i < 2; i++) {
        struct memory *memory = devices[i]->memory;

        OK(memory->ops->add(memory, DTYPE_U8, blocks[i], blocks[i], sizeof sent, &err_));
        OK(memory->ops->copy(memory, got[i], blocks[i], sizeof sent, &err_));
        settle(memory);
        fill(sent, sizeof sent, (unsigned int)i);
        for (size_t k = 0; k < sizeof sent; k++)
            ck_assert_uint_eq(got[i][k], (unsigned char)(2 * sent[k]));
        memory->ops->release(memory, blocks[i]);
        settle(memory);
        plugin_here()->devices->close(devices[i]);
    }
}
END_TEST

/* What the thread had before it is only given back where the process has used it: setting it makes a context there. */
START_TEST(a_device_that_is_another_ranks_is_left_alone)
{
    struct device *device = device_here(2);
    void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    unsigned int (*contexts)(void) = NULL;
    void *found = library ? dlsym(library, "standin_contexts") : NULL;
    void *block = NULL;

    ck_assert_ptr_nonnull(found);
    memcpy(&contexts, &found, sizeof found);
    OK(device->memory->ops->allocate(device->memory, 100, &block, &err_));
    device->memory->ops->release(device->memory, block);
    settle(device->memory);
    ck_assert_uint_eq(contexts(), 1u << 2);
    plugin_here()->devices->close(device);
    ck_assert_uint_eq(contexts(), 1u << 2);
    (void)dlclose(library);
}
END_TEST

#define COUNT_OF(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *tests = tcase_create("device");

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_device_is_described_before_it_is_opened);
    tcase_add_loop_test(tests, indices_are_those_that_the_variable_leaves, 0, COUNT_OF(visibles));
    tcase_add_loop_test(tests, what_is_missing_is_said_exactly, 0, COUNT_OF(lacks));
    tcase_add_test(tests, an_offer_lists_what_this_process_sees);
    tcase_add_test(tests, libraries_are_named_with_both_versions);
    tcase_add_test(tests, a_forked_queue_names_the_same_memory_and_has_an_order_of_its_own);
    tcase_add_test(tests, two_devices_are_open_at_once);
    tcase_add_test(tests, a_device_that_is_another_ranks_is_left_alone);
    tcase_add_test(tests, what_it_can_do_is_recorded_and_unknown_is_never_zero);
    tcase_add_test(tests, a_block_lies_on_its_own_device_whichever_is_the_threads);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
