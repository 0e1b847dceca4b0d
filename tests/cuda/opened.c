#include "tests/cuda/opened.h"

#include "base/clock.h"

const struct plugin *plugin_here(void)
{
    const struct plugin *plugin = NULL;

    OK(plugin_open("cuda", &plugin, NULL, 0, &err_));
    return plugin;
}

struct device *device_here(int index)
{
    struct device *device = NULL;

    OK(plugin_here()->devices->open(index, &device, &err_));
    return device;
}

void settle(struct memory *memory)
{
    OK(memory_wait(memory, clock_ns() + 30 * NS_PER_S, &err_));
}

void fill(unsigned char *bytes, size_t count, unsigned int seed)
{
    for (size_t k = 0; k < count; k++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[k] = (unsigned char)(seed >> 24);
    }
}
