/* Any bytes as a topology file; the last line, if it has a '=', is an override as well. */
#include <stdlib.h>
#include <string.h>

#include "topology/topology.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);

static char *last_line(const unsigned char *bytes, size_t count)
{
    size_t start = count;
    char *line;

    while (start && bytes[start - 1] != '\n')
        start--;
    line = calloc(1, count - start + 1);
    if (line)
        memcpy(line, bytes + start, count - start);
    return line;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    struct topology *topology = NULL;
    struct text text = {0};
    struct error err = {0};
    char *override = last_line(bytes, count);
    size_t overrides = override && strchr(override, '=') ? 1 : 0;

    if (topology_parse((const char *)bytes, count, "f", (const char *const *)&override, overrides, &topology, &text,
                       &err) == STATUS_OK) {
        topology_canonical(topology, &text);
        CHECK(text.length && topology->world_size);
    } else {
        CHECK(err.text[0]);
    }
    topology_destroy(topology);
    text_done(&text);
    free(override);
    return 0;
}
