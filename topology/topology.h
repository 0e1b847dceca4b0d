/* What the topology file says, every key typed, with the place that says it.  No MPI and no model are needed.
 *
 * Every value carries the position of the text that gave it; a position with line 0 means that the key is absent and
 * the value is the documented default (text: NULL; numbers without a default: 0).  A topology that was loaded is
 * complete and consistent as far as that can be known without a model: names, members, ends, extents, the world. */
#ifndef TOPOLOGY_TOPOLOGY_H
#define TOPOLOGY_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

enum {
    TOPOLOGY_MAX_FILE_BYTES = 1 << 20,
    TOPOLOGY_MAX_DEPTH = 32,
    TOPOLOGY_MAX_RANKS = 1 << 20,
    TOPOLOGY_MAX_GROUPS_AND_ROUTES = 65536,
    TOPOLOGY_MAX_NDIM = 8,
    TOPOLOGY_MAX_ERRORS = 20 /* written in one report */
};

/* Where a value stands.  source 0 is the file, n the n-th override; line and column count characters from 1. */
struct topology_position {
    uint32_t source;
    uint32_t line; /* 0: nowhere, the key is absent */
    uint32_t column;
};

enum topology_axis { TOPOLOGY_DATA, TOPOLOGY_PIPELINE, TOPOLOGY_TENSOR, TOPOLOGY_EXPERT, TOPOLOGY_AXIS_COUNT };
enum topology_transport { TOPOLOGY_TRANSPORT_AUTO, TOPOLOGY_MPI, TOPOLOGY_NCCL, TOPOLOGY_LOOPBACK };
enum topology_on_timeout { TOPOLOGY_ABORT, TOPOLOGY_QUARANTINE };
enum topology_checks { TOPOLOGY_CHECKS_OFF, TOPOLOGY_CHECKS_LIGHT, TOPOLOGY_CHECKS_FULL };
enum topology_integrity { TOPOLOGY_INTEGRITY_HEADER, TOPOLOGY_INTEGRITY_PAYLOAD };
enum topology_reduction { TOPOLOGY_REDUCTION_AUTO, TOPOLOGY_REDUCTION_ORDERED, TOPOLOGY_REDUCTION_NATIVE };
enum topology_memory { TOPOLOGY_MEMORY_AUTO, TOPOLOGY_MEMORY_HOST, TOPOLOGY_MEMORY_DEVICE };
enum topology_bind {
    TOPOLOGY_BIND_AUTO,
    TOPOLOGY_BIND_NONE,
    TOPOLOGY_BIND_CORE,
    TOPOLOGY_BIND_NUMA,
    TOPOLOGY_BIND_GPU
};
enum topology_backend { TOPOLOGY_BACKEND_AUTO, TOPOLOGY_CPU, TOPOLOGY_CUDA };
enum topology_simd { TOPOLOGY_SIMD_AUTO, TOPOLOGY_SIMD_PLAIN, TOPOLOGY_SIMD_AVX2, TOPOLOGY_SIMD_AVX512 };
enum topology_starter { TOPOLOGY_STARTER_AUTO, TOPOLOGY_MPIRUN, TOPOLOGY_SRUN };

/* Bits of a group's mask are 1u << operation. */
enum topology_operation {
    TOPOLOGY_ALL_REDUCE_SUM,
    TOPOLOGY_ALL_GATHER_EVEN,
    TOPOLOGY_ALL_GATHER_UNEVEN,
    TOPOLOGY_VARIABLE_ALL_TO_ALL,
    TOPOLOGY_BROADCAST,
    TOPOLOGY_BARRIER,
    TOPOLOGY_FAILURE_AGREEMENT,
    TOPOLOGY_OPERATION_COUNT
};

/* A count, a size in bytes or a duration in nanoseconds: the field's name says which. */
struct topology_number {
    uint64_t value; /* 0 when automatic */
    struct topology_position at;
    bool automatic; /* the word auto, given or by default */
};

struct topology_real {
    double value;
    struct topology_position at;
};

struct topology_flag {
    bool value;
    struct topology_position at;
};

/* One word of a fixed set: value is the enumerator. */
struct topology_word {
    int value;
    struct topology_position at;
};

/* Some words of a fixed set: bit i stands for enumerator i.  Absent: every bit. */
struct topology_mask {
    uint32_t value;
    struct topology_position at;
};

struct topology_string {
    char *value; /* NUL-terminated, without another NUL; NULL when absent */
    struct topology_position at;
};

/* Lists: item[0..count), in the order of the file. */
struct topology_strings {
    struct topology_string *item;
    size_t count;
    struct topology_position at;
};

struct topology_numbers {
    struct topology_number *item;
    size_t count;
    struct topology_position at;
};

struct topology_rank {
    uint32_t value;
    struct topology_position at;
};

struct topology_ranks {
    struct topology_rank *item;
    size_t count;
    struct topology_position at;
};

/* name: value of an open mapping such as launch.env. */
struct topology_pair {
    struct topology_string name;
    struct topology_string value;
};

struct topology_pairs {
    struct topology_pair *item;
    size_t count;
    struct topology_position at;
};

/* low..high, both included; a single number has low == high. */
struct topology_extent {
    struct topology_string name;
    uint64_t low;
    uint64_t high;
    struct topology_position at;
};

struct topology_extents {
    struct topology_extent *item;
    size_t count;
    struct topology_position at;
};

/* One dimension: a range, or the index of a named extent of the same route whose range is copied here. */
struct topology_dim {
    int extent; /* index into the route's extents, or -1 */
    uint64_t low;
    uint64_t high;
    struct topology_string name; /* as written, NULL unless named */
    struct topology_position at;
};

struct topology_shape {
    struct topology_dim *item;
    size_t count; /* at most TOPOLOGY_MAX_NDIM */
    struct topology_position at;
};

/* One tensor of a bundle. */
struct topology_tensor {
    struct topology_string role; /* unique within its bundle, at most 63 bytes */
    struct topology_word dtype;  /* an enum dtype */
    struct topology_shape shape;
    struct topology_position at;
};

struct topology_bundle {
    struct topology_tensor *item;
    size_t count;
    struct topology_position at;
};

struct topology_group {
    struct topology_string name;
    struct topology_ranks members; /* at least one, distinct, inside the world, in gather order */
    struct topology_mask operations;
    struct topology_mask dtypes; /* bit i stands for enum dtype i */
    struct {
        struct topology_number max_bytes; /* of one operation's largest buffer; absent: no limit */
        struct topology_position at;
    } limits;
    struct topology_position at;
};

struct topology_groups {
    struct topology_group *item;
    size_t count;
    struct topology_position at;
};

/* One end of a route.  world_rank is always resolved. */
struct topology_end {
    struct topology_string group; /* NULL when the file gives a world rank */
    struct topology_number member;
    uint32_t world_rank;
    struct topology_position at;
};

struct topology_route {
    struct topology_string name;
    struct topology_end from;
    struct topology_end to;
    struct topology_extents extents;
    struct topology_bundle bundle;
    struct topology_position at;
};

struct topology_routes {
    struct topology_route *item;
    size_t count;
    struct topology_position at;
};

struct topology_host {
    struct topology_string name;
    struct topology_number slots; /* absent: 0 */
    struct topology_position at;
};

struct topology_hosts {
    struct topology_host *item;
    size_t count;
    struct topology_position at;
};

struct topology_slurm {
    struct topology_string account;
    struct topology_string partition;
    struct topology_string qos;
    struct topology_string time;
    struct topology_number nodes;
    struct topology_number gpus_per_node;
    struct topology_string output;
    struct topology_string array;
    struct topology_string signal;
    struct topology_flag requeue;
    struct topology_strings setup;
    struct topology_position at;
};

struct topology_message {
    struct topology_string role;
    struct topology_string content;
    struct topology_position at;
};

struct topology_messages {
    struct topology_message *item;
    size_t count;
    struct topology_position at;
};

/* Exactly one of the three is there: text.value, or messages.count > 0, or tokens.count > 0. */
struct topology_prompt {
    struct topology_string text;
    struct topology_messages messages;
    struct topology_numbers tokens;
    struct topology_position at;
};

struct topology_prompts {
    struct topology_prompt *item;
    size_t count;
    struct topology_position at;
};

struct topology_generate {
    struct topology_string model;   /* as written: see topology_path */
    struct topology_numbers layers; /* absent: count 0; given: one per stage */
    struct topology_number context; /* absent: 0, the model's */
    struct topology_prompts prompts;
    struct topology_string prompts_file; /* never together with prompts; "-" is stdin of rank 0 */
    struct topology_number max_new_tokens;
    struct topology_number deadline_ns; /* absent: 0, none */
    struct topology_flag ignore_eos;
    struct {
        struct topology_real temperature;
        struct topology_number top_k;
        struct topology_real top_p;
        struct topology_number seed;
        struct topology_position at;
    } sampling;
    struct topology_number microbatch;   /* requests per wave, or automatic */
    struct topology_number prompt_chunk; /* prompt tokens per wave, or automatic */
    struct topology_position at;
};

struct topology_source; /* the text of the file and of the overrides, and the errors found so far */

struct topology {
    struct topology_number ferry;
    struct topology_string name;
    struct {
        struct topology_number axis[TOPOLOGY_AXIS_COUNT]; /* by enum topology_axis; default 1 */
        struct topology_position at;                      /* line 0: no mesh, world counts */
    } mesh;
    struct topology_number world; /* as written; world_size is what counts */
    uint32_t world_size;          /* the product of the mesh, or world */
    struct topology_groups groups;
    struct topology_routes routes;
    struct {
        struct topology_extents extents;
        struct topology_bundle bundle;
        struct topology_position at;
    } boundary;
    struct {
        struct topology_word transport; /* enum topology_transport, and so on */
        struct topology_number timeout_ns;
        struct topology_number startup_timeout_ns;
        struct topology_word on_timeout;
        struct topology_word checks;
        struct topology_word integrity;
        struct topology_word reduction;
        struct topology_word memory;
        struct topology_string interface;
        struct topology_position at;
    } communication;
    struct {
        struct topology_number ranks_per_node; /* absent: 0 */
        struct {
            enum topology_axis axis[TOPOLOGY_AXIS_COUNT]; /* the fastest first; always all four */
            struct topology_position at;
        } order;
        struct topology_word bind;
        struct topology_number threads; /* per rank, or automatic */
        struct topology_position at;
    } placement;
    struct {
        struct topology_word backend;
        struct topology_word simd;
        struct topology_number pieces; /* absent: 0, the tensor size */
        struct topology_position at;
    } compute;
    struct topology_string run_dir;
    struct {
        struct topology_hosts hosts;
        struct topology_pairs env;
        struct topology_strings require_env;
        struct topology_strings program; /* count 0: ferry run */
        struct topology_word starter;
        struct topology_strings mpirun_args;
        struct topology_slurm slurm;
        struct topology_position at;
    } launch;
    struct {
        struct topology_generate generate; /* generate.at.line 0: absent */
        struct {
            struct topology_position at; /* a mapping stands there; its keys belong to a later format */
        } train;
        struct topology_position at; /* line 0: no workload */
    } workload;
    struct topology_source *source;
};

/* Read the file at path, put each override ("key.path=value", a later one wins) over it, and check everything.
 *
 * path       borrowed for the call; "-" is not special.
 * overrides  borrowed for the call; list elements are named groups[0].members.
 * ret        returns a topology for topology_destroy; untouched on failure.
 * messages   on STATUS_TOPOLOGY: every error, at most TOPOLOGY_MAX_ERRORS, sorted by place, each as
 *            "file:line:column: error: text", the line and a caret.  May be NULL: err then holds the first.
 *
 * STATUS_TOPOLOGY  the file or an override is wrong; err says how many errors there are
 * STATUS_STORAGE   the file cannot be read
 * STATUS_NOMEM     memory was refused
 */
enum status topology_load(const char *path, const char *const *overrides, size_t override_count, struct topology **ret,
                          struct text *messages, struct error *err);

/* The same for a file's bytes in memory; name stands for the path in messages and for topology_path. */
enum status topology_parse(const char *bytes, size_t byte_count, const char *name, const char *const *overrides,
                           size_t override_count, struct topology **ret, struct text *messages, struct error *err);

/* NULL and half-built topologies are accepted. */
void topology_destroy(struct topology *topology);

/* Note an error at this place, for topology_report: a plan adds what it finds beyond the file itself.
 * The text names the key first ("workload.generate.layers: ..."). */
void topology_error_at(const struct topology *topology, struct topology_position at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "line 7", or the override's text: how an error's text mentions a second place.  Appended to text. */
void topology_describe_position(const struct topology *topology, struct topology_position at, struct text *text);

/* STATUS_OK when no error was noted.  Else STATUS_TOPOLOGY: messages (or NULL) gets the report that topology_load
 * documents, err the number of errors and the first. */
enum status topology_report(const struct topology *topology, struct text *messages, struct error *err);

/* The nearest of count words to a misspelt one, or NULL when none is near: for "did you mean". */
const char *topology_nearest(const char *word, const char *const *words, size_t count);

/* path as the file means it: absolute ones as they are, others behind the folder of the topology file.  Appended. */
void topology_path(const struct topology *topology, const char *path, struct text *text);

/* Everything the topology says, overrides and defaults included: one "key.path=value" a line, sorted by bytes, the
 * same text for files that mean the same.  Appended; check text->failed. */
void topology_canonical(const struct topology *topology, struct text *text);

/* Walk the lines of a canonical text.  *cursor starts as the text and moves; false at its end.
 * key and value are lent from the text and not terminated. */
bool topology_canonical_next(const char **cursor, const char **key, size_t *key_length, const char **value,
                             size_t *value_length);

/* The reference of every key in Markdown, and the JSON Schema for editors: made from the parser's own table. */
void topology_reference(struct text *text);
void topology_schema(struct text *text);
/* The path of every key that --set takes, a line each, from the same table: mesh.tensor, groups[].name. */
void topology_keys(struct text *text);

/* "tensor"; "all_gather_even". */
const char *topology_axis_name(enum topology_axis axis);
const char *topology_operation_name(enum topology_operation operation);

#endif
