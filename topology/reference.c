/* docs/topology.md: every section a table of its keys, made from the parser's own rows; and the keys alone. */
#include <string.h>

#include "topology/keys.h"
#include "topology/topology.h"
#include "topology/value.h"

static const char introduction[] =
    "# The topology file\n"
    "\n"
    "This page is made from the table that the parser uses. One YAML file names the ranks, their groups and routes, "
    "the\n"
    "placement, the launch and the workload; `ferry plan FILE` checks and shows it.\n"
    "\n"
    "- One document of plain YAML: no second document, merge keys (`<<`), tags or `%TAG`. Aliases are allowed.\n"
    "- Numbers are decimal digits without sign, leading zero, exponent or separators, and without quotes. Durations "
    "and\n"
    "  sizes carry a unit. `no`, `on`, `null` are words; only `true` and `false` are flags. An empty value and `~` "
    "are\n"
    "  nothing, which no key accepts.\n"
    "- Unknown and repeated keys are errors. Every error of a file is reported in one run, at most 20, with its line.\n"
    "- Limits: 1 MiB, 32 levels, 1048576 ranks, 65536 groups and routes, 1024 anchors, 65536 values behind aliases.\n"
    "- Relative paths are relative to the file. `~` and variables are not expanded, and a path that begins with `~` or "
    "`$`\n"
    "  is refused (`./~` names such a file).\n"
    "- `--set key.path=value` puts a value (a scalar, `[..]` or `{..}`) over the file's. Items of lists are named by\n"
    "  number or by name: `groups[0].members`, `groups[evaluators].members`. Of two for one key the later one "
    "counts,\n"
    "  and `prompts` takes the place of `prompts_file`, as that of `prompts`.\n";

static void write_cell(struct text *text, const struct key *key)
{
    struct text expectation = {0};

    if (key->type == KEY_TEXTS || key->type == KEY_NUMBERS || key->type == KEY_RANKS || key->type == KEY_MASK ||
        key->type == KEY_AXES || key->type == KEY_SHAPE || key->type == KEY_ITEMS)
        text_add(text, "list, each ");
    if (key->type == KEY_EXTENTS)
        text_add(text, "mapping of names to ranges, each ");
    if (key->type == KEY_RANKS || key->type == KEY_RANK)
        text_add(&expectation, "a world rank");
    else
        value_expectation(key, 0, &expectation);
    text_add(text, "%s", text_string(&expectation));
    text_done(&expectation);
}

static void write_row(struct text *text, const struct key *key)
{
    text_add(text, "| `%s` | ", key->name);
    write_cell(text, key);
    if (key->flags & KEY_REQUIRED)
        text_add(text, " | required");
    else if (key->initial)
        text_add(text, " | `%s`", key->initial);
    else
        text_add(text, " |");
    text_add(text, " | %s |\n", key->doc);
}

static void write_section(struct text *text, const struct key_section *section, const char *path, const char *doc)
{
    if (*path)
        text_add(text, "\n## `%s`\n\n%s\n", path, doc);
    else
        text_add(text, "\n## Top level\n");
    if (section->shorthand)
        text_add(text, "\nThe value is %s.\n", section->says);
    text_add(text, "\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < section->count; i++)
        write_row(text, &section->key[i]);
    for (size_t i = 0; i < section->count; i++) {
        const struct key *key = &section->key[i];
        struct text below = {0};

        if (!key->section)
            continue;
        text_add(&below, "%s%s%s%s", path, *path ? "." : "", key->name, key->type == KEY_ITEMS ? "[]" : "");
        write_section(text, key->section, text_string(&below), key->doc);
        text_done(&below);
    }
}

void topology_reference(struct text *text)
{
    text_add(text, "%s", introduction);
    write_section(text, &keys_root, "", "");
}

static void write_keys(struct text *text, const struct key_section *section, const char *path)
{
    for (size_t i = 0; i < section->count; i++) {
        const struct key *key = &section->key[i];
        struct text whole = {0};

        text_add(&whole, "%s%s", path, key->name);
        if (!key->section || key->section->shorthand)
            text_add(text, "%s\n", text_string(&whole));
        text_add(&whole, "%s.", key->type == KEY_ITEMS ? "[]" : "");
        if (key->section)
            write_keys(text, key->section, text_string(&whole));
        text_done(&whole);
    }
}

void topology_keys(struct text *text)
{
    write_keys(text, &keys_root, "");
}
