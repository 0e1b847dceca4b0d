/* Who may move what from where to where; providers that break their word; tensors that are not there yet.
 *
 * The device is a memory whose queue does nothing until it is told to, so that every early look is seen. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/transfer.h"
#include "tests/suite.h"

enum { BLOCKS = 8, COPIES = 8 };

struct late_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct late {
    struct memory memory;
    const char *name;
    unsigned char *block[BLOCKS];
    size_t block_bytes[BLOCKS];
    struct late_copy copies[COPIES];
    int queued;
    int happened;
    bool fails;
};

static struct error err;

static const char *late_name(const struct memory *memory)
{
    return ((const struct late *)memory)->name;
}

static enum status late_allocate(struct memory *memory, size_t bytes, void **ret, struct error *error)
{
    struct late *late = (struct late *)memory;
    int at = 0;

    (void)error;
    while (at < BLOCKS && late->block[at])
        at++;
    ck_assert_int_lt(at, BLOCKS);
    late->block[at] = aligned_alloc(MEMORY_ALIGN, (bytes + MEMORY_ALIGN) / MEMORY_ALIGN * MEMORY_ALIGN);
    ck_assert_ptr_nonnull(late->block[at]);
    late->block_bytes[at] = bytes;
    *ret = late->block[at];
    return STATUS_OK;
}

static void late_release(struct memory *memory, void *block)
{
    struct late *late = (struct late *)memory;

    for (int i = 0; i < BLOCKS; i++) {
        if (block && late->block[i] == block) {
            free(late->block[i]);
            late->block[i] = NULL;
            return;
        }
    }
}

static int blocks_held(const struct late *late)
{
    int count = 0;

    for (int i = 0; i < BLOCKS; i++)
        count += late->block[i] != NULL;
    return count;
}

static enum status late_copy(struct memory *memory, void *to, const void *from, size_t bytes, struct error *error)
{
    struct late *late = (struct late *)memory;

    (void)error;
    ck_assert_int_lt(late->queued, COPIES);
    late->copies[late->queued++] = (struct late_copy){to, from, bytes};
    return STATUS_OK;
}

static void happen(struct late *late)
{
    for (; late->happened < late->queued; late->happened++)
        memcpy(late->copies[late->happened].to, late->copies[late->happened].from, late->copies[late->happened].bytes);
}

/* A mark is the number of copies before it. */
static enum status late_mark(struct memory *memory, struct memory_mark **ret, struct error *error)
{
    int *place = malloc(sizeof *place);

    (void)error;
    ck_assert_ptr_nonnull(place);
    *place = ((struct late *)memory)->queued;
    *ret = (struct memory_mark *)place;
    return STATUS_OK;
}

static enum status late_reached(struct memory *memory, struct memory_mark *mark, bool *ret, struct error *error)
{
    const struct late *late = (const struct late *)memory;
    int *place = (int *)mark;

    if (late->fails) {
        free(place);
        return error_set(error, STATUS_ENVIRONMENT, "fallen off the bus");
    }
    *ret = late->happened >= *place;
    if (*ret)
        free(place);
    return STATUS_OK;
}

static void late_forget(struct memory *memory, struct memory_mark *mark)
{
    (void)memory;
    free(mark);
}

static bool late_holds(const struct memory *memory, const void *bytes, size_t count)
{
    const struct late *late = (const struct late *)memory;
    const unsigned char *at = bytes;

    for (int i = 0; i < BLOCKS; i++) {
        if (late->block[i] && at >= late->block[i] && at + count <= late->block[i] + late->block_bytes[i])
            return true;
    }
    return false;
}

static const struct memory_ops late_ops = {.name = late_name,
                                           .allocate = late_allocate,
                                           .release = late_release,
                                           .copy = late_copy,
                                           .mark = late_mark,
                                           .reached = late_reached,
                                           .forget = late_forget,
                                           .holds = late_holds};

static struct late open_late(const char *name, enum memory_kind kind)
{
    return (struct late){.memory = {&late_ops, kind}, .name = name};
}

static struct tensor *host_tensor(const float *values, uint64_t count)
{
    const struct shape shape = {1, {count}};
    struct tensor *tensor = NULL;

    ck_assert_int_eq(tensor_create(DTYPE_F32, &shape, &tensor, &err), STATUS_OK);
    memcpy(tensor->data, values, count * sizeof *values);
    return tensor;
}

/* ---- endpoints and the registry ---- */

START_TEST(an_endpoint_is_one_memory_and_not_its_class)
{
    struct late first = open_late("cuda:0", MEMORY_DEVICE);
    struct late second = open_late("cuda:1", MEMORY_DEVICE);
    struct late alike = open_late("cuda:0", MEMORY_DEVICE);

    ck_assert(endpoint_same(endpoint_of(NULL), endpoint_of(memory_host())));
    ck_assert(endpoint_same((struct endpoint){memory_host()}, (struct endpoint){NULL}));
    ck_assert(endpoint_same(endpoint_of(&first.memory), endpoint_of(&first.memory)));
    ck_assert(!endpoint_same(endpoint_of(&first.memory), endpoint_of(&second.memory)));
    ck_assert(!endpoint_same(endpoint_of(&first.memory), endpoint_of(&alike.memory)));
    ck_assert(!endpoint_same(endpoint_of(&first.memory), endpoint_of(NULL)));
    ck_assert_str_eq(endpoint_name(endpoint_of(NULL)), "host");
    ck_assert_str_eq(endpoint_name(endpoint_of(&second.memory)), "cuda:1");
}
END_TEST

START_TEST(a_way_is_found_exactly_or_not_at_all)
{
    static const struct transfer_provider up = {.name = "up"};
    static const struct transfer_provider down = {.name = "down"};
    struct late first = open_late("cuda:0", MEMORY_DEVICE);
    struct late second = open_late("cuda:1", MEMORY_DEVICE);
    const struct endpoint host = endpoint_of(NULL);
    const struct endpoint one = endpoint_of(&first.memory);
    const struct endpoint two = endpoint_of(&second.memory);
    const struct transfer_provider *found = NULL;
    struct transfers *transfers = NULL;

    ck_assert_int_eq(transfers_create(&transfers, &err), STATUS_OK);
    ck_assert_int_eq(transfers_add(transfers, host, one, &up, &err), STATUS_OK);
    ck_assert_int_eq(transfers_add(transfers, one, host, &down, &err), STATUS_OK);
    ck_assert_int_eq(transfers_add(transfers, host, two, &down, &err), STATUS_OK);
    ck_assert_int_eq(transfers_find(transfers, host, one, &found, &err), STATUS_INVALID); /* not frozen */
    transfers_freeze(transfers);
    ck_assert_int_eq(transfers_find(transfers, host, one, &found, &err), STATUS_OK);
    ck_assert_ptr_eq(found, &up);
    ck_assert_int_eq(transfers_find(transfers, one, host, &found, &err), STATUS_OK);
    ck_assert_ptr_eq(found, &down);
    ck_assert_int_eq(transfers_find(transfers, host, two, &found, &err), STATUS_OK);
    ck_assert_ptr_eq(found, &down);

    /* cuda:0 to host and host to cuda:1 are no way from cuda:0 to cuda:1. */
    found = NULL;
    ck_assert_int_eq(transfers_find(transfers, one, two, &found, &err), STATUS_UNSUPPORTED);
    ck_assert_str_eq(err.text, "no way from cuda:0 to cuda:1 (ways: host to cuda:0, cuda:0 to host, host to cuda:1)");
    ck_assert_int_eq(transfers_find(transfers, two, host, &found, &err), STATUS_UNSUPPORTED);
    ck_assert_int_eq(transfers_find(transfers, host, host, &found, &err), STATUS_UNSUPPORTED);
    ck_assert_ptr_null(found);
    transfers_destroy(transfers);
}
END_TEST

START_TEST(a_registry_has_one_provider_a_pair_and_is_not_changed_when_frozen)
{
    static const struct transfer_provider up = {.name = "up"};
    static const struct transfer_provider other = {.name = "other"};
    struct late device = open_late("cuda:0", MEMORY_DEVICE);
    const struct endpoint host = endpoint_of(NULL);
    const struct endpoint one = endpoint_of(&device.memory);
    const struct transfer_provider *found = NULL;
    struct transfers *transfers = NULL;

    ck_assert_int_eq(transfers_create(&transfers, &err), STATUS_OK);
    ck_assert_int_eq(transfers_add(transfers, host, one, &up, &err), STATUS_OK);
    ck_assert_int_eq(transfers_add(transfers, host, one, &other, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "a way from host to cuda:0: up has it already, other cannot have it too");
    transfers_freeze(transfers);
    ck_assert_int_eq(transfers_add(transfers, one, host, &other, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "a way from cuda:0 to host: the registry of transfers is frozen");
    ck_assert_int_eq(transfers_find(transfers, one, host, &found, &err), STATUS_UNSUPPORTED);
    ck_assert_int_eq(transfers_find(transfers, host, one, &found, &err), STATUS_OK);
    ck_assert_ptr_eq(found, &up);
    transfers_destroy(transfers);
}
END_TEST

/* ---- there and back ---- */

static void there_and_back(struct late *device, const struct transfers *transfers)
{
    const float values[] = {1.5f, -2.0f, 0x1p-130f, 4.0f};
    struct tensor *host = host_tensor(values, 4);
    struct tensor *there = NULL;
    struct tensor *back = NULL;
    struct transfer *up = NULL;
    struct transfer *down = NULL;
    bool moved = true;

    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device->memory, NULL}, &up, &err),
                     STATUS_OK);
    ck_assert_int_eq(transfer_test(up, &moved, &err), STATUS_OK);
    ck_assert(!moved);
    ck_assert_int_eq(transfer_result(up, &there, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "a tensor on its way from host to cuda:0 was asked for before it was there");
    ck_assert_ptr_null(there);
    ck_assert_int_eq(atomic_load(&host->references), 2); /* retained until it is over */
    happen(device);
    ck_assert_int_eq(transfer_test(up, &moved, &err), STATUS_OK);
    ck_assert(moved);
    ck_assert_int_eq(transfer_result(up, &there, &err), STATUS_OK);
    ck_assert_ptr_eq(there->memory, &device->memory);

    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){there, NULL, NULL}, &down, &err), STATUS_OK);
    transfer_release(up); /* the second one holds the tensor */
    memset(host->data, 0, host->bytes);
    happen(device);
    ck_assert_int_eq(transfer_test(down, &moved, &err), STATUS_OK);
    ck_assert(moved);
    ck_assert_int_eq(transfer_result(down, &back, &err), STATUS_OK);
    ck_assert_int_eq(back->bytes, sizeof values);
    ck_assert_int_eq(memcmp(back->data, values, sizeof values), 0);
    ck_assert(memory_host_view(back->memory));
    transfer_release(down);
    tensor_release(host);
    ck_assert_int_eq(blocks_held(device), 0);
}

START_TEST(a_tensor_goes_there_and_comes_back_the_same)
{
    struct late device = open_late("cuda:0", MEMORY_DEVICE);
    struct late pinned = open_late("pinned", MEMORY_PINNED);
    struct late foreign = open_late("cuda:1", MEMORY_DEVICE);
    const struct transfer_provider *found = NULL;
    struct transfers *transfers = NULL;

    ck_assert_int_eq(transfers_of_device(&device.memory, &pinned.memory, &transfers, &err), STATUS_OK);
    there_and_back(&device, transfers);
    ck_assert_int_eq(transfers_find(transfers, endpoint_of(&pinned.memory), endpoint_of(&device.memory), &found, &err),
                     STATUS_OK);
    ck_assert_int_eq(transfers_find(transfers, endpoint_of(&device.memory), endpoint_of(&pinned.memory), &found, &err),
                     STATUS_OK);
    ck_assert_int_eq(transfers_find(transfers, endpoint_of(&device.memory), endpoint_of(&foreign.memory), &found, &err),
                     STATUS_UNSUPPORTED);
    transfers_destroy(transfers);
    ck_assert_int_eq(transfers_of_device(&device.memory, NULL, &transfers, &err), STATUS_OK);
    there_and_back(&device, transfers);
    transfers_destroy(transfers);
}
END_TEST

START_TEST(a_tensor_moves_into_one_that_fits_it_exactly)
{
    const float values[] = {1, 2, 3, 4};
    const struct shape four = {1, {4}};
    const struct shape square = {2, {2, 2}};
    struct late device = open_late("cuda:0", MEMORY_DEVICE);
    struct tensor *host = host_tensor(values, 4);
    struct tensor *into = NULL;
    struct tensor *there = NULL;
    struct transfers *transfers = NULL;
    struct transfer *transfer = NULL;
    bool moved = false;

    ck_assert_int_eq(transfers_of_device(&device.memory, NULL, &transfers, &err), STATUS_OK);
    ck_assert_int_eq(tensor_create_in(&device.memory, DTYPE_F32, &four, &into, &err), STATUS_OK);
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, into}, &transfer, &err),
                     STATUS_OK);
    happen(&device);
    ck_assert_int_eq(transfer_test(transfer, &moved, &err), STATUS_OK);
    ck_assert_int_eq(transfer_result(transfer, &there, &err), STATUS_OK);
    ck_assert_ptr_eq(there, into);
    ck_assert_mem_eq(into->data, values, sizeof values);
    transfer_release(transfer);

    transfer = NULL;
    ck_assert_int_eq(tensor_reshape(into, DTYPE_F32, &square, &err), STATUS_OK);
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, into}, &transfer, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.text, "the tensor to move into is f32[2,2], expected f32[4]");
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, host}, &transfer, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.text, "the tensor to move into lies in host, not in cuda:0");
    host->shape.dim[0] = 3; /* it contradicts its bytes */
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, NULL}, &transfer, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.text, "the source is f32[3] of 12 bytes, but says 16");
    host->shape = (struct shape){2, {UINT64_MAX, 3}};
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, NULL}, &transfer, &err),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "the source's element count: dimension"));
    ck_assert_ptr_null(transfer);
    tensor_release(host);
    tensor_release(into);
    transfers_destroy(transfers);
}
END_TEST

START_TEST(a_device_that_fails_says_so_and_gives_nothing)
{
    const float values[] = {1, 2};
    struct late device = open_late("cuda:0", MEMORY_DEVICE);
    struct tensor *host = host_tensor(values, 2);
    struct tensor *there = NULL;
    struct transfers *transfers = NULL;
    struct transfer *transfer = NULL;
    bool moved = true;

    ck_assert_int_eq(transfers_of_device(&device.memory, NULL, &transfers, &err), STATUS_OK);
    ck_assert_int_eq(transfer_begin(transfers, &(struct transfer_request){host, &device.memory, NULL}, &transfer, &err),
                     STATUS_OK);
    device.fails = true;
    ck_assert_int_eq(transfer_test(transfer, &moved, &err), STATUS_ENVIRONMENT);
    ck_assert_str_eq(err.text, "fallen off the bus");
    ck_assert(!moved);
    ck_assert_int_eq(transfer_result(transfer, &there, &err), STATUS_INVALID);
    transfer_release(transfer);
    tensor_release(host);
    transfers_destroy(transfers);
}
END_TEST

/* ---- providers that break their word ---- */

enum fault { COUNT, DTYPE, SHAPE, LENGTH, CAPACITY, PLACEMENT, RESIDENCY, RELABELLED, OTHER_TENSOR, FAULTS };

struct faulty {
    enum fault fault;
    struct late *elsewhere;
};

/* A view that says that it lies in memory. */
static void claim(struct memory *memory, const struct shape *shape, void *block, struct tensor **ret)
{
    ck_assert_int_eq(tensor_view_in(memory, DTYPE_F32, shape, block, NULL, NULL, ret, &err), STATUS_OK);
}

static enum status break_word(const struct transfer_provider *provider, const struct transfer_request *request,
                              struct tensor **ret, struct memory **ret_queue, struct error *error)
{
    static float host_bytes[16];
    const struct faulty *faulty = provider->context;
    struct shape shape = request->from->shape;
    enum dtype dtype = faulty->fault == DTYPE ? DTYPE_I32 : DTYPE_F32;
    struct memory *memory = faulty->fault == PLACEMENT ? &faulty->elsewhere->memory : request->to;

    (void)error;
    shape.dim[0] -= faulty->fault == COUNT;
    if (faulty->fault == SHAPE)
        shape = (struct shape){2, {2, shape.dim[0] / 2}};
    *ret_queue = request->to;
    if (faulty->fault == RELABELLED)
        claim(request->to, &shape, request->from->data, ret);
    else if (faulty->fault == RESIDENCY)
        claim(request->to, &shape, host_bytes, ret);
    else
        ck_assert_int_eq(tensor_create_in(memory, dtype, &shape, ret, &err), STATUS_OK);
    (*ret)->bytes -= faulty->fault == LENGTH;
    (*ret)->capacity_bytes -= faulty->fault == CAPACITY;
    return STATUS_OK;
}

static const char *const complaints[FAULTS] = {
    [COUNT] = "provider faulty, from host to cuda:0: the result is f32[3], expected f32[4]",
    [DTYPE] = "provider faulty, from host to cuda:0: the result is i32[4], expected f32[4]",
    [SHAPE] = "provider faulty, from host to cuda:0: the result is f32[2,2], expected f32[4]",
    [LENGTH] = "provider faulty, from host to cuda:0: the result is f32[4] in 15 bytes of 16, expected 16",
    [CAPACITY] = "provider faulty, from host to cuda:0: the result is f32[4] in 16 bytes of 15, expected 16",
    [PLACEMENT] = "provider faulty, from host to cuda:0: the result lies in cuda:1, expected cuda:0",
    [RESIDENCY] = "provider faulty, from host to cuda:0: the result says that it lies in cuda:0, but cuda:0 does not "
                  "hold it",
    [RELABELLED] = "provider faulty, from host to cuda:0: the result is the source's own memory under the name of "
                   "cuda:0",
    [OTHER_TENSOR] = "provider faulty, from host to cuda:0: the result is another tensor than the one to move into",
};

START_TEST(a_provider_that_breaks_its_word_is_named_and_gives_nothing)
{
    const float values[] = {1, 2, 3, 4};
    const struct shape four = {1, {4}};
    struct late device = open_late("cuda:0", MEMORY_DEVICE);
    struct late elsewhere = open_late("cuda:1", MEMORY_DEVICE);
    struct tensor *host = host_tensor(values, 4);
    struct tensor *into = NULL;

    ck_assert_int_eq(tensor_create_in(&device.memory, DTYPE_F32, &four, &into, &err), STATUS_OK);
    for (enum fault fault = COUNT; fault < FAULTS; fault++) {
        struct faulty faulty = {fault, &elsewhere};
        const struct transfer_provider provider = {"faulty", break_word, &faulty};
        const struct transfer_request request = {host, &device.memory, fault == OTHER_TENSOR ? into : NULL};
        struct transfers *transfers = NULL;
        struct transfer *transfer = NULL;

        ck_assert_int_eq(transfers_create(&transfers, &err), STATUS_OK);
        ck_assert_int_eq(transfers_add(transfers, endpoint_of(NULL), endpoint_of(&device.memory), &provider, &err),
                         STATUS_OK);
        transfers_freeze(transfers);
        ck_assert_int_eq(transfer_begin(transfers, &request, &transfer, &err), STATUS_INTERNAL);
        ck_assert_str_eq(err.text, complaints[fault]);
        ck_assert_ptr_null(transfer);
        ck_assert_int_eq(atomic_load(&host->references), 1);
        ck_assert_int_eq(blocks_held(&device) + blocks_held(&elsewhere), 1); /* `into` */
        transfers_destroy(transfers);
    }
    tensor_release(host);
    tensor_release(into);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transfer");
    TCase *all = tcase_create("all");

    tcase_add_test(all, an_endpoint_is_one_memory_and_not_its_class);
    tcase_add_test(all, a_way_is_found_exactly_or_not_at_all);
    tcase_add_test(all, a_registry_has_one_provider_a_pair_and_is_not_changed_when_frozen);
    tcase_add_test(all, a_tensor_goes_there_and_comes_back_the_same);
    tcase_add_test(all, a_tensor_moves_into_one_that_fits_it_exactly);
    tcase_add_test(all, a_device_that_fails_says_so_and_gives_nothing);
    tcase_add_test(all, a_provider_that_breaks_its_word_is_named_and_gives_nothing);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
