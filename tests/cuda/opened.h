/* A device of the plugin under test, opened for a test. */
#ifndef TESTS_CUDA_OPENED_H
#define TESTS_CUDA_OPENED_H

#include <check.h>

#include "comm/plugin.h"

/* Variables of the machine are set before; the plugin is found as any program finds it. */
const struct plugin *plugin_here(void);
struct device *device_here(int index);

/* Until everything queued on memory has happened. */
void settle(struct memory *memory);

/* count bytes that follow from seed. */
void fill(unsigned char *bytes, size_t count, unsigned int seed);

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        struct error err_ = {0};                                                                                       \
        enum status st_ = (call);                                                                                      \
        ck_assert_msg(st_ == STATUS_OK, "%s: %s", #call, err_.text);                                                   \
    } while (0)

#endif
