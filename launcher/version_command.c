/* The version, the plugins with their libraries, the devices; what is missing is said in the words in which a run would
 * say it. */
#include "launcher/version_command.h"

#include <argp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/plugin.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/starter.h"
#include "launcher/version.h"
#include "runtime/wire.h"

enum { KEY_JSON = 'j' };

static const struct argp_option version_table[] = {
    {"json", KEY_JSON, NULL, 0, "One JSON object a line: the version, the plugins, the devices.", 0},
    {0},
};

static const char version_doc[] =
    "Print the version, which plugins this build found and the libraries behind them, and the GPUs of this machine, or "
    "exactly what is missing; and what transport, device and memory one rank here would take.  `ferry --version` "
    "prints the first line alone."
    "\vExamples:\n"
    "  ferry version\n"
    "  ferry version --json | jq 'select(.kind == \"device\")'\n"
    "\n"
    "Exit codes: 0 printed, 2 usage, 9 the output cannot be written.";

static error_t parse_version(int key, char *text, struct argp_state *state)
{
    bool *json = state->input;

    (void)text;
    if (key == KEY_JSON)
        *json = true;
    return key == KEY_JSON ? 0 : ARGP_ERR_UNKNOWN;
}

static void add_json_string(struct text *out, const char *name, const char *value)
{
    text_add(out, ",\"%s\":", name);
    text_add_json(out, value, strlen(value));
}

/* ---- plugins ---- */

static void add_libraries(struct text *out, const struct plugin *plugin, bool json)
{
    struct plugin_library list[PLUGIN_MAX_LIBRARIES];
    int count = plugin->libraries(list);

    if (json)
        text_add(out, ",\"libraries\":[");
    for (int i = 0; i < count; i++) {
        if (!json) {
            text_add(out, "  %-16s%s", list[i].name, list[i].running);
            text_add(out, list[i].built[0] ? " (built with %s)\n" : "\n", list[i].built);
            continue;
        }
        text_add(out, i ? ",{\"name\":" : "{\"name\":");
        text_add_json(out, list[i].name, strlen(list[i].name));
        add_json_string(out, "running", list[i].running);
        if (list[i].built[0])
            add_json_string(out, "built", list[i].built);
        text_add(out, "}");
    }
    if (json)
        text_add(out, "]");
}

/* Lends the plugin; NULL: not here, and why has been added. */
static const struct plugin *add_plugin(struct text *out, const char *name, bool json, struct error *why)
{
    const struct plugin *plugin = NULL;
    char path[PATH_MAX] = "";
    enum status st = plugin_open(name, &plugin, path, sizeof path, why);

    if (json) {
        text_add(out, "{\"kind\":\"plugin\"");
        add_json_string(out, "name", name);
    } else {
        text_add(out, "ferry-%s.so\n", name);
    }
    if (st == STATUS_OK && json) {
        add_json_string(out, "path", path);
        if (plugin->transport)
            add_json_string(out, "transport", plugin->transport->name);
        add_libraries(out, plugin, true);
    } else if (st == STATUS_OK) {
        text_add(out, "  %-16s%s\n", "path", path);
        if (plugin->transport)
            text_add(out, "  %-16s%s\n", "transport", plugin->transport->name);
        add_libraries(out, plugin, false);
    } else if (json) {
        add_json_string(out, "missing", why->text);
    } else {
        text_add(out, "  %-16s%s\n", "missing", why->text);
    }
    text_add(out, json ? "}\n" : "");
    return st == STATUS_OK ? plugin : NULL;
}

/* ---- devices ---- */

static void add_device(struct text *out, const char *kind, int index, const struct device_facts *facts)
{
    text_add(out, "%s:%d\n  %-16s%s\n  %-16s%s\n  %-16s%s\n  %-16s", kind, index, "name", facts->name, "PCI",
             facts->pci, "UUID", facts->uuid, "memory");
    if (facts->memory_bytes == MEMORY_UNKNOWN)
        text_add(out, "unknown");
    else
        text_add_size(out, facts->memory_bytes);
    text_add(out, "\n  %-16s%d.%d\n", "capability", facts->capability[0], facts->capability[1]);
    if (facts->numa_node >= 0)
        text_add(out, "  %-16s%d\n", "NUMA node", facts->numa_node);
}

static void add_json_device(struct text *out, const char *kind, int index, const struct device_facts *facts)
{
    text_add(out, "{\"kind\":\"device\",\"device\":\"%s:%d\"", kind, index);
    add_json_string(out, "name", facts->name);
    add_json_string(out, "pci", facts->pci);
    add_json_string(out, "uuid", facts->uuid);
    if (facts->memory_bytes == MEMORY_UNKNOWN)
        text_add(out, ",\"memory_bytes\":null");
    else
        text_add(out, ",\"memory_bytes\":%" PRIu64, facts->memory_bytes);
    text_add(out, ",\"capability\":\"%d.%d\"", facts->capability[0], facts->capability[1]);
    text_add(out, facts->numa_node < 0 ? ",\"numa_node\":null}\n" : ",\"numa_node\":%d}\n", facts->numa_node);
}

static void add_no_devices(struct text *out, const char *why, bool json)
{
    if (!json) {
        text_add(out, "devices\n  %-16s%s\n", "missing", why);
        return;
    }
    text_add(out, "{\"kind\":\"devices\"");
    add_json_string(out, "missing", why);
    text_add(out, "}\n");
}

static void add_devices(struct text *out, const struct device_ops *ops, bool json)
{
    struct error why = {0};
    int count = 0;

    if (ops->count(&count, &why) != STATUS_OK) {
        add_no_devices(out, why.text, json);
        return;
    }
    for (int i = 0; i < count; i++) {
        struct device_facts facts;

        if (ops->describe(i, &facts, &why) != STATUS_OK)
            add_no_devices(out, why.text, json);
        else
            (json ? add_json_device : add_device)(out, ops->name, i, &facts);
    }
}

/* ---- what a rank would take ---- */

static void add_choice(struct text *out, bool device_memory, bool json)
{
    const char *memory = device_memory ? "device" : "auto";
    struct wire_preview choice;

    wire_preview(device_memory, &choice);
    if (json) {
        text_add(out, "{\"kind\":\"choice\",\"memory\":\"%s\"", memory);
        if (choice.status == STATUS_OK) {
            add_json_string(out, "transport", choice.transport);
            add_json_string(out, "tensors", choice.memory);
        }
        if (choice.device[0])
            add_json_string(out, "device", choice.device);
        add_json_string(out, choice.status == STATUS_OK ? "why" : "missing", choice.why);
        text_add(out, "}\n");
        return;
    }
    text_add(out, "  memory %-9s", memory);
    if (choice.status == STATUS_OK)
        text_add(out, "%s%s%s, tensors in %s: ", choice.transport, choice.device[0] ? " on " : "", choice.device,
                 choice.memory);
    text_add(out, "%s\n", choice.why);
}

static void add_choices(struct text *out, bool json)
{
    if (!json)
        text_add(out, "one rank here, with transport auto\n");
    add_choice(out, false, json);
    add_choice(out, true, json);
}

int version_command(int argc, char **argv)
{
    static const struct argp argp = {version_table, parse_version, NULL, version_doc, NULL, NULL, NULL};
    char name[] = "ferry version";
    bool json = false;
    struct text out = {0};
    struct error err = {0};
    const struct plugin *cuda;
    int code = options_parse(&argp, name, argc, argv, &json);
    enum status st;

    if (code >= 0)
        return code;
    if (!starter_speaks())
        return 0;
    text_add(&out, json ? "{\"kind\":\"version\",\"version\":\"%s\"}\n" : "ferry %s\n", FERRY_VERSION);
    (void)add_plugin(&out, "mpi", json, &err);
    cuda = add_plugin(&out, "cuda", json, &err);
    if (!cuda) /* the devices alone */
        cuda = add_plugin(&out, "cuda-staged", json, &err);
    if (cuda && cuda->devices)
        add_devices(&out, cuda->devices, json);
    add_choices(&out, json);
    st = output_write(&out, &err);
    if (st != STATUS_OK)
        log_error("%s: %s", status_name(st), err.text);
    text_done(&out);
    return status_exit_code(st);
}
