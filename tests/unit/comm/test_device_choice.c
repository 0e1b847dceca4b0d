/* Which rank takes which device: tables of cases. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/device_choice.h"
#include "comm/device_meeting.h"
#include "tests/suite.h"

enum { MOST_RANKS = 8 };

/* A rank as one word: host letter, its NUMA node or '-', ':', its devices as letters with their nodes ("a0b0c1");
 * '*' in the place of ':': NCCL is missing. */
static struct device_offer offer_of(const char *word)
{
    struct device_offer offer = {.wish = DEVICE_WANTED, .numa_node = word[1] == '-' ? -1 : word[1] - '0', .wanted = -1};

    (void)snprintf(offer.host, sizeof offer.host, "n%c", word[0]);
    (void)snprintf(offer.machine, sizeof offer.machine, "machine %c", word[0]);
    offer.native = word[2] != '*';
    (void)snprintf(offer.why, sizeof offer.why, offer.native ? "no CUDA driver on %c" : "no libnccl on %c", word[0]);
    for (word += 3; *word; word += 2, offer.count++) {
        (void)snprintf(offer.device[offer.count].pci, sizeof offer.device[0].pci, "0000:%c0:00.0", word[0]);
        offer.device[offer.count].numa_node = word[1] == '-' ? -1 : word[1] - '0';
    }
    return offer;
}

static int offers_of(const char *const *words, struct device_offer *offers)
{
    int size = 0;

    while (size < MOST_RANKS && words[size]) {
        offers[size] = offer_of(words[size]);
        size++;
    }
    return size;
}

static const struct choice_case {
    const char *ranks[MOST_RANKS + 1];
    int expected[MOST_RANKS];
    int collisions;
} choices[] = {
    /* In rank order where nothing is known of nodes; hosts are apart. */
    {{"A-:a-b-c-d-", "A-:a-b-c-d-", "A-:a-b-c-d-", "A-:a-b-c-d-"}, {0, 1, 2, 3}, 0},
    {{"A-:a-b-", "B-:a-b-", "A-:a-b-", "B-:a-b-"}, {0, 0, 1, 1}, 0},
    /* Bound to nodes: nearest first, whatever the order of ranks. */
    {{"A1:a0b0c1d1", "A0:a0b0c1d1", "A1:a0b0c1d1", "A0:a0b0c1d1"}, {2, 0, 3, 1}, 0},
    /* One more on a node than it has devices. */
    {{"A0:a0b0c1d1", "A0:a0b0c1d1", "A0:a0b0c1d1", "A1:a0b0c1d1"}, {0, 1, 3, 2}, 0},
    /* One visible each, as srun --gpus-per-task=1 does: index 0 is another device on each. */
    {{"A-:c1", "A-:a0", "A-:b0"}, {0, 0, 0}, 0},
    /* Who sees fewest chooses first. */
    {{"A-:a-b-", "A-:a-"}, {1, 0}, 0},
    /* More ranks than devices: spread, and told. */
    {{"A-:a-b-", "A-:a-b-", "A-:a-b-", "A-:a-b-"}, {0, 1, 0, 1}, 2},
    {{"A-:a-", "A-:a-", "A-:a-"}, {0, 0, 0}, 1},
    {{"A-:a-", "B-:a-"}, {0, 0}, 0},
    /* None, and one. */
    {{"A-:", "A-:a-"}, {-1, 0}, 0},
    {{"A-:a-"}, {0}, 0},
};

START_TEST(each_rank_takes_a_free_device_near_to_it)
{
    const struct choice_case *now = &choices[_i];
    struct device_offer offers[MOST_RANKS];
    int indices[MOST_RANKS];
    char text[512];
    int size = offers_of(now->ranks, offers);

    device_choose(offers, size, indices);
    for (int rank = 0; rank < size; rank++)
        ck_assert_msg(indices[rank] == now->expected[rank], "case %d, rank %d: %d, expected %d", _i, rank,
                      indices[rank], now->expected[rank]);
    ck_assert_int_eq(device_collisions(offers, indices, size, text, sizeof text), now->collisions);
}
END_TEST

START_TEST(a_device_that_the_user_names_is_taken_first)
{
    const char *const words[] = {"A-:a-b-", "A-:a-b-", NULL};
    struct device_offer offers[2];
    int indices[2];

    offers_of(words, offers);
    offers[1].wanted = 0;
    device_choose(offers, 2, indices);
    ck_assert_int_eq(indices[0], 1);
    ck_assert_int_eq(indices[1], 0);
    offers[0].wanted = 0;
    device_choose(offers, 2, indices);
    ck_assert_int_eq(indices[0], 0);
    ck_assert_int_eq(indices[1], 0);
}
END_TEST

START_TEST(collisions_are_a_table_of_who_shares_what)
{
    const char *const words[] = {"A-:a-b-", "A-:a-b-", "B-:a-", "A-:a-b-", "B-:a-", "A-:a-b-", NULL};
    struct device_offer offers[6];
    int indices[6];
    char text[256];
    char cut[20];
    int size = offers_of(words, offers);

    device_choose(offers, size, indices);
    ck_assert_int_eq(device_collisions(offers, indices, size, text, sizeof text), 3);
    ck_assert_str_eq(text, "GPU 0000:a0:00.0 on nA: ranks 0, 3; GPU 0000:b0:00.0 on nA: ranks 1, 5; "
                           "GPU 0000:a0:00.0 on nB: ranks 2, 4");
    ck_assert_int_eq(device_collisions(offers, indices, size, cut, sizeof cut), 3);
    ck_assert_str_eq(cut, "GPU 0000:a0:00.0 on");
}
END_TEST

static const struct decision_case {
    const char *ranks[MOST_RANKS + 1];
    enum device_wish wishes[MOST_RANKS];
    enum status status;
    enum device_decision decision;
    int first; /* rank 0's device */
    const char *text;
} decisions[] = {
    {{"A-:a-b-", "A-:a-b-"}, {DEVICE_WANTED, DEVICE_WANTED}, STATUS_OK, DEVICES_NATIVE, 0, "of its own"},
    {{"A-:a-b-", "A-:a-b-"}, {DEVICE_WELCOME, DEVICE_WELCOME}, STATUS_OK, DEVICES_NATIVE, 0, "of its own"},
    {{"A-:a-b-", "A-:a-b-"}, {DEVICE_UNWANTED, DEVICE_UNWANTED}, STATUS_OK, DEVICES_UNUSED, -1, ""},
    {{"A-:a-", "A-:a-"},
     {DEVICE_WANTED, DEVICE_WANTED},
     STATUS_ENVIRONMENT,
     DEVICES_UNUSED,
     -1,
     "transport nccl: NCCL refuses two ranks on one GPU: GPU 0000:a0:00.0 on nA: ranks 0, 1; start at most"},
    {{"A-:a-", "A-:a-"},
     {DEVICE_WELCOME, DEVICE_WELCOME},
     STATUS_OK,
     DEVICES_UNUSED,
     -1,
     "transport auto takes mpi: NCCL refuses two ranks on one GPU: GPU 0000:a0:00.0 on nA: ranks 0, 1; start at most"},
    /* Tensors that are to lie in device memory: over NCCL where it can be used, else through the host. */
    {{"A-:a-b-", "A-:a-b-"},
     {DEVICE_MEMORY_WANTED, DEVICE_MEMORY_WANTED},
     STATUS_OK,
     DEVICES_NATIVE,
     0,
     "every rank has a GPU of its own"},
    {{"A-:a-", "A-:a-"},
     {DEVICE_MEMORY_WANTED, DEVICE_MEMORY_WANTED},
     STATUS_OK,
     DEVICES_STAGED,
     0,
     "transport auto takes mpi, and tensors in device memory go through pinned memory of the host: NCCL refuses two "
     "ranks on one GPU: GPU 0000:a0:00.0 on nA: ranks 0, 1"},
    {{"A-:a-", "B-*a-"},
     {DEVICE_MEMORY_WANTED, DEVICE_MEMORY_WANTED},
     STATUS_OK,
     DEVICES_STAGED,
     0,
     "through pinned memory of the host: NCCL is missing on rank 1 (nB): no libnccl on B"},
    {{"A-:a-", "B-*a-"},
     {DEVICE_WANTED, DEVICE_WANTED},
     STATUS_ENVIRONMENT,
     DEVICES_UNUSED,
     -1,
     "transport nccl: NCCL is missing on rank 1 (nB): no libnccl on B; "},
    {{"A-:a-", "B-*a-"},
     {DEVICE_WELCOME, DEVICE_WELCOME},
     STATUS_OK,
     DEVICES_UNUSED,
     -1,
     "transport auto takes mpi: NCCL is missing on rank 1 (nB): no libnccl on B; "},
    {{"A-:a-b-", "A-*b-"},
     {DEVICE_STAGING_WANTED, DEVICE_STAGING_WANTED},
     STATUS_OK,
     DEVICES_STAGED,
     0,
     "asked for: tensors in device memory go through pinned memory of the host"},
    {{"A-:a-", "B-:"},
     {DEVICE_STAGING_WANTED, DEVICE_STAGING_WANTED},
     STATUS_ENVIRONMENT,
     DEVICES_UNUSED,
     -1,
     "communication.memory: device: not every rank has a GPU: rank 1 on nB: no CUDA driver on B"},
    {{"A-:a-", "B-:"},
     {DEVICE_MEMORY_WANTED, DEVICE_MEMORY_WANTED},
     STATUS_ENVIRONMENT,
     DEVICES_UNUSED,
     -1,
     "communication.memory: device: not every rank has a GPU: rank 1 on nB"},
    {{"A-:a-", "B-:a-"}, {DEVICE_MEMORY_WANTED, DEVICE_WELCOME}, STATUS_OK, DEVICES_UNUSED, -1, ""},
    {{"A-:a-", "B-:"},
     {DEVICE_WANTED, DEVICE_WANTED},
     STATUS_ENVIRONMENT,
     DEVICES_UNUSED,
     -1,
     "transport nccl: not every rank has a GPU: rank 1 on nB: no CUDA driver on B"},
    {{"A-:", "B-:"},
     {DEVICE_WELCOME, DEVICE_WELCOME},
     STATUS_OK,
     DEVICES_UNUSED,
     -1,
     "transport auto takes mpi: not every rank has a GPU: rank 0 on nA: no CUDA driver on A; rank 1 on nB"},
    /* Ranks that were told different things: the consensus will say which. */
    {{"A-:a-b-", "A-:a-b-"}, {DEVICE_WANTED, DEVICE_UNWANTED}, STATUS_OK, DEVICES_UNUSED, -1, ""},
    {{"A-:a-b-", "A-:a-b-"}, {DEVICE_WANTED, DEVICE_UNDECIDED}, STATUS_OK, DEVICES_UNUSED, -1, ""},
};

START_TEST(all_ranks_get_one_decision_and_its_reason)
{
    const struct decision_case *now = &decisions[_i];
    struct device_offer offers[MOST_RANKS];
    int indices[MOST_RANKS];
    struct device_verdict verdict;
    int size = offers_of(now->ranks, offers);

    for (int rank = 0; rank < size; rank++)
        offers[rank].wish = now->wishes[rank];
    device_decide(offers, size, indices, &verdict);
    ck_assert_int_eq(verdict.status, now->status);
    ck_assert_int_eq(verdict.decision, now->decision);
    ck_assert_int_eq(indices[0], now->first);
    ck_assert_msg(strstr(verdict.text, now->text) && (*now->text || !*verdict.text), "case %d: \"%s\"", _i,
                  verdict.text);
}
END_TEST

static const struct device_facts facts[] = {
    {.pci = "0000:3b:00.0", .uuid = "GPU-8f3a0000-0000-0000-0000-000000000000"},
    {.pci = "0000:af:00.0", .uuid = "GPU-8f3b0000-0000-0000-0000-000000000000"},
    {.pci = "0001:3b:00.0", .uuid = "GPU-11110000-0000-0000-0000-000000000000"},
};

static const struct word_case {
    const char *word;
    int expected; /* -1: refused */
    const char *text;
} words[] = {
    {"0", 0, NULL},
    {"2", 2, NULL},
    {"3", -1, "device 3: there is none; there are 0 (0000:3b:00.0, GPU-8f3a0000"},
    {"0000:AF:00.0", 1, NULL},
    {"af:00.0", 1, NULL},
    {"3b:00.0", 0, NULL},
    {"0001:3b:00.0", 2, NULL},
    {"GPU-8f3b", 1, NULL},
    {"gpu-1111", 2, NULL},
    {"GPU-8f3", -1, "several have this name"},
    {"GPU-", -1, "there is none"},
    {"", -1, "there is none"},
    {"-1", -1, "there is none"},
    {"first", -1, "name one by index, PCI id or UUID"},
};

START_TEST(a_device_is_named_by_index_pci_id_or_uuid)
{
    struct error err = {0};
    int found = -1;
    enum status st = device_find(facts, 3, words[_i].word, &found, &err);

    ck_assert_int_eq(st, words[_i].expected >= 0 ? STATUS_OK : STATUS_USAGE);
    ck_assert_int_eq(found, words[_i].expected);
    if (words[_i].text)
        ck_assert_msg(strstr(err.text, words[_i].text), "\"%s\"", err.text);
}
END_TEST

static const struct visible_case {
    const char *visible;
    int expected;
    const char *bad;
} visibles[] = {
    {NULL, -1, NULL},
    {"", 0, NULL},
    {"-1", 0, NULL},
    {"NoDevFiles", 0, NULL},
    {"0", 1, NULL},
    {"2,0,1", 3, NULL},
    {"GPU-8f3a,GPU-11110000-0000-0000-0000-000000000000", 2, NULL},
    {"MIG-8f3a0000-0000-0000-0000-000000000000", 1, NULL},
    {"0,-1,2", 1, "-1,2"},
    {"all", 0, "all"},
    {"0,x", 1, "x"},
    {"0,,1", 1, ",1"},
};

START_TEST(a_list_of_visible_devices_ends_at_what_is_none)
{
    const char *bad = NULL;

    ck_assert_int_eq(device_visible_count(visibles[_i].visible, &bad), visibles[_i].expected);
    if (visibles[_i].bad)
        ck_assert_str_eq(bad, visibles[_i].bad);
    else
        ck_assert_ptr_null(bad);
}
END_TEST

START_TEST(offers_and_verdicts_survive_the_wire)
{
    unsigned char bytes[DEVICE_OFFER_BYTES];
    unsigned char more[DEVICE_VERDICT_BYTES];
    struct device_offer offer = offer_of("A1:a0b1c-");
    struct device_offer back;
    struct device_verdict verdict = {
        .status = STATUS_ENVIRONMENT, .decision = DEVICES_STAGED, .index = 3, .text = "because"};
    struct device_verdict verdict_back;
    struct error err = {0};

    offer.wish = DEVICE_STAGING_WANTED;
    device_offer_encode(&offer, bytes);
    ck_assert_int_eq(device_offer_decode(bytes, &back, &err), STATUS_OK);
    ck_assert_int_eq(back.wish, DEVICE_STAGING_WANTED);
    ck_assert(back.native);
    ck_assert_int_eq(back.numa_node, 1);
    ck_assert_int_eq(back.wanted, -1);
    ck_assert_int_eq(back.count, 3);
    ck_assert_str_eq(back.host, "nA");
    ck_assert_str_eq(back.machine, "machine A");
    ck_assert_str_eq(back.device[1].pci, "0000:b0:00.0");
    ck_assert_int_eq(back.device[1].numa_node, 1);
    ck_assert_int_eq(back.device[2].numa_node, -1);
    ck_assert_str_eq(back.why, offer.why);
    device_verdict_encode(&verdict, more);
    ck_assert_int_eq(device_verdict_decode(more, &verdict_back, &err), STATUS_OK);
    ck_assert_int_eq(verdict_back.status, STATUS_ENVIRONMENT);
    ck_assert_int_eq(verdict_back.decision, DEVICES_STAGED);
    ck_assert_int_eq(verdict_back.index, 3);
    ck_assert_str_eq(verdict_back.text, "because");
}
END_TEST

START_TEST(bytes_of_another_version_are_refused)
{
    static const struct {
        size_t at;
        unsigned char byte;
    } damages[] = {{0, 1}, {4, 1}, {8, 9}, {20, DEVICE_OFFER_MOST + 1}, {23, 0xff}};
    unsigned char bytes[DEVICE_OFFER_BYTES];
    unsigned char more[DEVICE_VERDICT_BYTES];
    struct device_offer offer = offer_of("A1:a0");
    struct device_verdict verdict = {.index = 1};
    struct error err = {0};

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        device_offer_encode(&offer, bytes);
        bytes[damages[i].at] = damages[i].byte;
        ck_assert_int_eq(device_offer_decode(bytes, &offer, &err), STATUS_MISMATCH);
    }
    for (size_t at = 0; at < 16; at += 4) {
        device_verdict_encode(&verdict, more);
        more[at + 3] = 0x7f;
        ck_assert_int_eq(device_verdict_decode(more, &verdict, &err), STATUS_MISMATCH);
    }
}
END_TEST

START_TEST(texts_from_the_wire_end_wherever_their_nul_went)
{
    unsigned char bytes[DEVICE_OFFER_BYTES];
    struct device_offer offer = offer_of("A1:a0");
    struct error err = {0};

    device_offer_encode(&offer, bytes);
    memset(bytes + 24, 'x', 104);
    memset(bytes + 128, 'y', 20);
    memset(bytes + 512, 'z', 1024);
    ck_assert_int_eq(device_offer_decode(bytes, &offer, &err), STATUS_OK);
    ck_assert_uint_eq(strlen(offer.host), sizeof offer.host - 1);
    ck_assert_uint_eq(strlen(offer.machine), sizeof offer.machine - 1);
    ck_assert_uint_eq(strlen(offer.device[0].pci), sizeof offer.device[0].pci - 1);
    ck_assert_uint_eq(strlen(offer.why), sizeof offer.why - 1);
}
END_TEST

static const struct cores_case {
    const char *list;
    bool expected; /* cores 2, 3 and 70 are within it */
} cores[] = {{"0-127", true}, {"2,3,70", true}, {"2-3,64-70\n", true}, {"0-69", false},
             {"3,70", false}, {"", false},      {"\n", false}};

START_TEST(cores_are_found_in_the_kernels_lists)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(2, &set);
    CPU_SET(3, &set);
    CPU_SET(70, &set);
    ck_assert_int_eq(device_cores_within(&set, sizeof set, cores[_i].list), cores[_i].expected);
}
END_TEST

static const struct hint_case {
    const char *visible;
    const char *step;
    const char *gpus;
    const char *expected;
} hints[] = {
    {NULL, NULL, NULL, ""},
    {"", NULL, NULL, ""},
    {"x,0", NULL, NULL, "; its entry \"x\" is no index, UUID or MIG id"},
    {"x", "0", NULL, "; its entry \"x\" is no index, UUID or MIG id"},
    {NULL, "0", NULL,
     "; Slurm gave this step no GPU (SLURM_STEP_GPUS is not set): ask for one a rank, srun "
     "--gpus-per-task=1"},
    {"0,1", "3", "0,1", "; Slurm gave this step the GPUs 0,1"},
    {NULL, NULL, "0,1", ""},
};

START_TEST(who_sees_no_device_hears_what_may_be_behind_it)
{
    char text[256];

    device_hint(hints[_i].visible, hints[_i].step, hints[_i].gpus, text, sizeof text);
    ck_assert_str_eq(text, hints[_i].expected);
}
END_TEST

START_TEST(a_rank_without_devices_says_why)
{
    struct device_offer offer;
    struct error err = {0};

    ck_assert_int_eq(device_offer_read(NULL, "no plugin", DEVICE_WELCOME, NULL, &offer, &err), STATUS_OK);
    ck_assert_int_eq(offer.count, 0);
    ck_assert_int_eq(offer.wish, DEVICE_WELCOME);
    ck_assert_str_eq(offer.why, "no plugin");
    ck_assert(!offer.native);
    ck_assert_str_ne(offer.host, "");
    ck_assert_str_ne(offer.machine, "");
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
    Suite *suite = suite_create("device_choice");
    TCase *tests = tcase_create("device_choice");

    tcase_add_loop_test(tests, each_rank_takes_a_free_device_near_to_it, 0, COUNT(choices));
    tcase_add_test(tests, a_device_that_the_user_names_is_taken_first);
    tcase_add_test(tests, collisions_are_a_table_of_who_shares_what);
    tcase_add_loop_test(tests, all_ranks_get_one_decision_and_its_reason, 0, COUNT(decisions));
    tcase_add_loop_test(tests, a_device_is_named_by_index_pci_id_or_uuid, 0, COUNT(words));
    tcase_add_loop_test(tests, a_list_of_visible_devices_ends_at_what_is_none, 0, COUNT(visibles));
    tcase_add_test(tests, offers_and_verdicts_survive_the_wire);
    tcase_add_test(tests, bytes_of_another_version_are_refused);
    tcase_add_test(tests, texts_from_the_wire_end_wherever_their_nul_went);
    tcase_add_loop_test(tests, cores_are_found_in_the_kernels_lists, 0, COUNT(cores));
    tcase_add_test(tests, a_rank_without_devices_says_why);
    tcase_add_loop_test(tests, who_sees_no_device_hears_what_may_be_behind_it, 0, COUNT(hints));
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
