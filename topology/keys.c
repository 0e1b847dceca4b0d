/* The table.  A row is a key: its type, its place in struct topology, its range, its default and its sentence. */
#include "topology/keys.h"

#include <string.h>

#include "base/pool.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_DAY (UINT64_C(86400000) * NS_PER_MS)
#define WORDS(name, ...)                                                                                               \
    static const char *const name##_word[] = {__VA_ARGS__};                                                            \
    static const struct key_words name = {name##_word, sizeof name##_word / sizeof *name##_word}
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define AT(type, field) .offset = offsetof(struct type, field)

const struct key_style_rule key_styles[STYLE_COUNT] = {
    [STYLE_ANY] = {NULL, NULL, 0, false, "a text"},
    [STYLE_LINE] = {NULL, NULL, 4096, true, "a text on one line"},
    [STYLE_NAME] = {"a-z0-9", "a-z0-9-", 63, true, "a name of lower-case letters, digits and -, at most 63"},
    [STYLE_LABEL] = {"a-z0-9", "a-z0-9._-", 63, true, "a name of lower-case letters, digits and . _ -, at most 63"},
    [STYLE_ROLE] = {"A-Za-z_", "A-Za-z0-9_.-", 63, true, "a name of letters, digits and . _ -, at most 63"},
    [STYLE_HOST] = {"A-Za-z0-9", "A-Za-z0-9._-", 253, true, "a host name"},
    [STYLE_VARIABLE] = {"A-Za-z_", "A-Za-z0-9_", 255, true, "the name of a variable: letters, digits and _"},
    [STYLE_TIME] = {"0-9", "0-9:-", 32, true, "a time as Slurm writes it, such as 00:30:00"},
};

static const char *const axis_words[] = {"data", "pipeline", "tensor", "expert"};
static const char *const dtype_words[] = {NULL, "f32", "f16", "bf16", "f64", "i8",
                                          "u8", "i32", "u32", "i64",  "u64", "bool"};
static const char *const operation_words[] = {"all_reduce_sum",      "all_gather_even", "all_gather_uneven",
                                              "variable_all_to_all", "broadcast",       "barrier",
                                              "failure_agreement"};

_Static_assert(COUNT(axis_words) == TOPOLOGY_AXIS_COUNT, "every axis has a word");
_Static_assert(COUNT(dtype_words) == DTYPE_COUNT, "every dtype has a word");
_Static_assert(COUNT(operation_words) == TOPOLOGY_OPERATION_COUNT, "every operation has a word");

const struct key_words key_axes = {axis_words, COUNT(axis_words)};
const struct key_words key_dtypes = {dtype_words, COUNT(dtype_words)};
const struct key_words key_operations = {operation_words, COUNT(operation_words)};

WORDS(transports, "auto", "mpi", "nccl", "loopback");
WORDS(on_timeouts, "abort", "quarantine");
WORDS(check_levels, "off", "light", "full");
WORDS(integrities, "header", "payload");
WORDS(reductions, "auto", "ordered", "native");
WORDS(memories, "auto", "host", "device");
WORDS(binds, "auto", "none", "core", "numa", "gpu");
WORDS(backends, "auto", "cpu", "cuda");
WORDS(simds, "auto", "plain", "avx2", "avx512");
WORDS(starters, "auto", "mpirun", "srun");

#define MESH(which) (offsetof(struct topology, mesh.axis) + (which) * sizeof(struct topology_number))

/* A section's offsets count from where its key stands: 0 keeps those of the struct around it. */
static const struct key mesh_keys[] = {
    {"data", KEY_NUMBER, MESH(TOPOLOGY_DATA), "Copies of the model that share the requests.", 1, TOPOLOGY_MAX_RANKS,
     "1", .also = "dp data_parallel data_parallel_size"},
    {"pipeline", KEY_NUMBER, MESH(TOPOLOGY_PIPELINE), "Stages of consecutive layers.", 1, TOPOLOGY_MAX_RANKS, "1",
     .also = "pp stages pipeline_parallel pipeline_parallel_size"},
    {"tensor", KEY_NUMBER, MESH(TOPOLOGY_TENSOR), "Ranks that share every layer of a stage.", 1, TOPOLOGY_MAX_RANKS,
     "1", .also = "tp tensor_parallel tensor_parallel_size"},
    {"expert", KEY_NUMBER, MESH(TOPOLOGY_EXPERT), "Ranks that share the experts of a layer.", 1, TOPOLOGY_MAX_RANKS,
     "1", .also = "ep experts expert_parallel expert_parallel_size"},
};

static const struct key limit_keys[] = {
    {"max_bytes", KEY_SIZE, AT(topology_group, limits.max_bytes),
     "Largest buffer of one operation; checked in the plan and at every call. Absent: no limit.", 1, UINT64_C(1) << 60},
};

static const struct key_section limit_section = {
    limit_keys, COUNT(limit_keys), 0, offsetof(struct topology_group, limits.at), NULL, NULL};

static const struct key group_keys[] = {
    {"name", KEY_TEXT, AT(topology_group, name),
     "Unique among the groups. Without a slash, so that it cannot clash with the groups that the mesh implies.",
     .style = STYLE_LABEL, .flags = KEY_REQUIRED},
    {"members", KEY_RANKS, AT(topology_group, members),
     "World ranks, each once. Their order is the order of gathers and counts, and a root is an index into it.", 1,
     .flags = KEY_REQUIRED, .also = "ranks"},
    {"operations", KEY_MASK, AT(topology_group, operations),
     "What the group may do; using another one is an error. Absent: every operation.", 1, .words = &key_operations,
     .also = "ops"},
    {"dtypes", KEY_MASK, AT(topology_group, dtypes), "Element types that it may carry. Absent: every type.", 1,
     .words = &key_dtypes, .also = "dtype types"},
    {"limits", KEY_SECTION, 0, "Bounds on what one operation may need.", .section = &limit_section},
};

static const struct key_section group_section = {
    group_keys, COUNT(group_keys), sizeof(struct topology_group), offsetof(struct topology_group, at), NULL, NULL};

static const struct key end_keys[] = {
    {"group", KEY_TEXT, AT(topology_end, group), "Name of a group of this file.", .style = STYLE_LABEL,
     .flags = KEY_REQUIRED},
    {"member", KEY_NUMBER, AT(topology_end, member), "Index into the group's members, from 0.", 0,
     TOPOLOGY_MAX_RANKS - 1, .flags = KEY_REQUIRED, .also = "rank index"},
};

static const struct key end_shorthand = {"world rank", KEY_RANK, AT(topology_end, world_rank), "A world rank."};

static const struct key_section end_section = {end_keys,
                                               COUNT(end_keys),
                                               sizeof(struct topology_end),
                                               offsetof(struct topology_end, at),
                                               &end_shorthand,
                                               "a world rank, or {group: NAME, member: INDEX}"};

static const struct key tensor_keys[] = {
    {"role", KEY_TEXT, AT(topology_tensor, role), "What the tensor is; unique within the bundle.", .style = STYLE_ROLE,
     .flags = KEY_REQUIRED, .also = "name"},
    {"dtype", KEY_WORD, AT(topology_tensor, dtype), "Element type.", .words = &key_dtypes, .flags = KEY_REQUIRED,
     .also = "type"},
    {"shape", KEY_SHAPE, AT(topology_tensor, shape),
     "Each dimension a number, a range `a..b`, or the name of an extent. `[]` is a single element.",
     .flags = KEY_REQUIRED, .max_items = TOPOLOGY_MAX_NDIM, .also = "dims"},
};

static const struct key_section tensor_section = {
    tensor_keys, COUNT(tensor_keys), sizeof(struct topology_tensor), offsetof(struct topology_tensor, at), NULL, NULL};

#define BUNDLE_KEYS(structure, extents_field, bundle_field)                                                            \
    {"extents",                                                                                                        \
     KEY_EXTENTS,                                                                                                      \
     offsetof(struct structure, extents_field),                                                                        \
     "Names for ranges: a dimension that carries the name is the same number everywhere in one bundle.",               \
     0,                                                                                                                \
     UINT64_C(1) << 48,                                                                                                \
     .style = STYLE_ROLE,                                                                                              \
     .max_items = 64},                                                                                                 \
    {                                                                                                                  \
        "bundle", KEY_ITEMS, offsetof(struct structure, bundle_field), "The tensors of one transfer, in their order.", \
            1, .section = &tensor_section, .max_items = 256, .flags = KEY_REQUIRED, .also = "tensors"                  \
    }

static const struct key route_keys[] = {
    {"name", KEY_TEXT, AT(topology_route, name), "Unique among the routes.", .style = STYLE_LABEL,
     .flags = KEY_REQUIRED},
    {"from", KEY_SECTION, AT(topology_route, from), "The sender.", .section = &end_section, .flags = KEY_REQUIRED,
     .also = "source src"},
    {"to", KEY_SECTION, AT(topology_route, to), "The receiver, another rank.", .section = &end_section,
     .flags = KEY_REQUIRED, .also = "destination dst"},
    BUNDLE_KEYS(topology_route, extents, bundle),
};

static const struct key_section route_section = {
    route_keys, COUNT(route_keys), sizeof(struct topology_route), offsetof(struct topology_route, at), NULL, NULL};

static const struct key boundary_keys[] = {
    BUNDLE_KEYS(topology, boundary.extents, boundary.bundle),
};

static const struct key communication_keys[] = {
    {"transport", KEY_WORD, AT(topology, communication.transport),
     "What moves tensors between ranks. `nccl`: from GPU to GPU, each rank with one of its own, and all else over MPI; "
     "`auto`: nccl where every rank can, else mpi (docs/gpus.md). `loopback` is for tests: ranks as threads of one "
     "process.",
     0, 0, "auto", &transports},
    {"timeout", KEY_DURATION, AT(topology, communication.timeout_ns),
     "How long a peer may be silent or stand still while a rank waits for it.", 10 * NS_PER_MS, 7 * NS_PER_DAY, "30s"},
    {"startup_timeout", KEY_DURATION, AT(topology, communication.startup_timeout_ns),
     "The same for starting MPI, agreeing on the plan, building groups and loading.", 10 * NS_PER_MS, 7 * NS_PER_DAY,
     "10m"},
    {"on_timeout", KEY_WORD, AT(topology, communication.on_timeout),
     "`abort` ends the job; `quarantine` keeps the stuck operation's buffers and refuses new work on its group. With "
     "transport nccl other groups are held back while a proposal of the stuck one is unanswered (docs/nccl.md).",
     0, 0, "abort", &on_timeouts},
    {"checks", KEY_WORD, AT(topology, communication.checks),
     "How much is compared before a payload may be used: `off` only sizes in collectives, `light` pairs, `full` also a "
     "vote of the whole group. Headers on routes are compared always.",
     0, 0, "full", &check_levels},
    {"integrity", KEY_WORD, AT(topology, communication.integrity),
     "What carries a checksum; `payload` adds one over every payload.", 0, 0, "header", &integrities},
    {"reduction", KEY_WORD, AT(topology, communication.reduction),
     "`ordered` adds in the order of docs/numerics.md, the same bits on every transport; `native` as the transport's "
     "library does, which mpi has not; `auto` is native on nccl only.",
     0, 0, "auto", &reductions},
    {"memory", KEY_WORD, AT(topology, communication.memory),
     "Where tensors lie while they travel. `device`: in a GPU's memory on every rank, and over mpi through pinned "
     "memory "
     "of the host (ranks may share a GPU); `host`: never there, which rules nccl out; `auto`: there when nccl moves "
     "them.",
     0, 0, "auto", &memories, .also = "buffers"},
    {"interface", KEY_TEXT, AT(topology, communication.interface),
     "The network interface between hosts, by one name that all of them have (eth0). Absent: MPI's choice.",
     .style = STYLE_ROLE},
};

static const struct key placement_keys[] = {
    {"ranks_per_node", KEY_NUMBER, AT(topology, placement.ranks_per_node),
     "Ranks on each node. Absent: the hosts' slots, or the starter's choice.", 1, TOPOLOGY_MAX_RANKS},
    {"order", KEY_AXES, AT(topology, placement.order),
     "Which axis varies fastest over a node's slots, the fastest first; axes left out follow in the default order.", 1,
     0, "[expert, tensor, pipeline, data]"},
    {"bind", KEY_WORD, AT(topology, placement.bind), "What a rank is bound to.", 0, 0, "auto", &binds},
    {"threads", KEY_NUMBER, AT(topology, placement.threads),
     "Threads of a rank; `auto`: the cores that it may use, shared among the ranks of its host.", 1, POOL_MAX_THREADS,
     "auto", .flags = KEY_AUTO},
};

static const struct key compute_keys[] = {
    {"backend", KEY_WORD, AT(topology, compute.backend), "What computes.", 0, 0, "auto", &backends},
    {"simd", KEY_WORD, AT(topology, compute.simd), "Instructions of the CPU backend; every choice gives the same bits.",
     0, 0, "auto", &simds},
    {"pieces", KEY_NUMBER, AT(topology, compute.pieces),
     "Parts into which sums over a layer's inner dimension are cut: equal pieces give equal bits on any mesh. "
     "Absent: the tensor size.",
     1, 65536},
};

static const struct key host_keys[] = {
    {"name", KEY_TEXT, AT(topology_host, name), "Host name, as MPI's starter knows it.", .style = STYLE_HOST,
     .flags = KEY_REQUIRED},
    {"slots", KEY_NUMBER, AT(topology_host, slots), "Ranks that may run there. Absent: `placement.ranks_per_node`.", 1,
     TOPOLOGY_MAX_RANKS},
};

static const struct key_section host_section = {
    host_keys, COUNT(host_keys), sizeof(struct topology_host), offsetof(struct topology_host, at), NULL, NULL};

static const struct key slurm_keys[] = {
    {"account", KEY_TEXT, AT(topology, launch.slurm.account), "Who pays.", .style = STYLE_LINE},
    {"partition", KEY_TEXT, AT(topology, launch.slurm.partition), "Where to run.", .style = STYLE_LINE},
    {"qos", KEY_TEXT, AT(topology, launch.slurm.qos), "Quality of service.", .style = STYLE_LINE},
    {"time", KEY_TEXT, AT(topology, launch.slurm.time), "Time limit.", .style = STYLE_TIME},
    {"nodes", KEY_NUMBER, AT(topology, launch.slurm.nodes), "Nodes to ask for.", 1, TOPOLOGY_MAX_RANKS},
    {"gpus_per_node", KEY_NUMBER, AT(topology, launch.slurm.gpus_per_node), "GPUs to ask for on each node.", 0, 1024},
    {"output", KEY_TEXT, AT(topology, launch.slurm.output), "Where the script's output goes.", .style = STYLE_LINE},
    {"array", KEY_TEXT, AT(topology, launch.slurm.array), "Indices of a job array, such as 0-3.", .style = STYLE_LINE},
    {"signal", KEY_TEXT, AT(topology, launch.slurm.signal), "Signal before the time limit, such as USR1@120.",
     .style = STYLE_LINE},
    {"requeue", KEY_FLAG, AT(topology, launch.slurm.requeue), "Whether Slurm may start the job again.", 0, 0, "false"},
    {"setup", KEY_TEXTS, AT(topology, launch.slurm.setup), "Shell lines before the start, such as module load.",
     .style = STYLE_LINE},
};

static const struct key_section slurm_section = {
    slurm_keys, COUNT(slurm_keys), 0, offsetof(struct topology, launch.slurm.at), NULL, NULL};

static const struct key launch_keys[] = {
    {"hosts", KEY_ITEMS, AT(topology, launch.hosts), "Where to run, in order. Absent: this host, or the allocation.", 1,
     .section = &host_section, .max_items = 65536},
    {"env", KEY_PAIRS, AT(topology, launch.env),
     "Variables for every rank; values reach it byte by byte, line breaks are refused.", .style = STYLE_VARIABLE},
    {"require_env", KEY_TEXTS, AT(topology, launch.require_env), "Variables without which nothing is started.",
     .style = STYLE_VARIABLE},
    {"program", KEY_TEXTS, AT(topology, launch.program),
     "Program that links libferry and its arguments, in place of `ferry run`.", 1, .style = STYLE_ANY},
    {"starter", KEY_WORD, AT(topology, launch.starter), "What starts the ranks.", 0, 0, "auto", &starters},
    {"mpirun_args", KEY_TEXTS, AT(topology, launch.mpirun_args), "Further arguments of mpirun.", .style = STYLE_ANY},
    {"slurm", KEY_SECTION, 0, "What the batch script asks for.", .section = &slurm_section},
};

static const struct key message_keys[] = {
    {"role", KEY_TEXT, AT(topology_message, role), "Who speaks: `system`, `user`, `assistant`, or a role of the model.",
     .style = STYLE_LINE, .flags = KEY_REQUIRED},
    {"content", KEY_TEXT, AT(topology_message, content), "What is said.", .style = STYLE_ANY, .flags = KEY_REQUIRED},
};

static const struct key_section message_section = {
    message_keys, COUNT(message_keys), sizeof(struct topology_message), offsetof(struct topology_message, at), NULL,
    NULL};

static const struct key prompt_keys[] = {
    {"messages", KEY_ITEMS, AT(topology_prompt, messages), "A chat, written through the model's own template.", 1,
     .section = &message_section},
    {"tokens", KEY_NUMBERS, AT(topology_prompt, tokens), "Token ids, past the tokenizer.", 0, UINT32_MAX},
};

static const struct key prompt_shorthand = {"text", KEY_TEXT, AT(topology_prompt, text), "The prompt's text.",
                                            .style = STYLE_ANY};

static const struct key_section prompt_section = {prompt_keys,
                                                  COUNT(prompt_keys),
                                                  sizeof(struct topology_prompt),
                                                  offsetof(struct topology_prompt, at),
                                                  &prompt_shorthand,
                                                  "a text, {messages: [..]} or {tokens: [..]}"};

static const struct key sampling_keys[] = {
    {"temperature", KEY_REAL, AT(topology, workload.generate.sampling.temperature),
     "0 takes the best token; higher values draw more freely.", 0, 100, "0"},
    {"top_k", KEY_NUMBER, AT(topology, workload.generate.sampling.top_k), "Draw among the k best only; 0: no bound.", 0,
     INT32_MAX, "0"},
    {"top_p", KEY_REAL, AT(topology, workload.generate.sampling.top_p),
     "Draw among the best tokens that together reach this probability.", 0, 1, "1.0"},
    {"seed", KEY_NUMBER, AT(topology, workload.generate.sampling.seed),
     "Random numbers are a function of seed, request and step.", 0, UINT64_MAX, "0"},
};

static const struct key_section sampling_section = {
    sampling_keys, COUNT(sampling_keys), 0, offsetof(struct topology, workload.generate.sampling.at), NULL, NULL};

static const struct key generate_keys[] = {
    {"model", KEY_TEXT, AT(topology, workload.generate.model),
     "Folder with config.json, *.safetensors and tokenizer.json, or a .gguf file.", .style = STYLE_LINE,
     .flags = KEY_REQUIRED, .also = "model_path path checkpoint"},
    {"layers", KEY_NUMBERS, AT(topology, workload.generate.layers),
     "Layers of each stage. Absent: balanced by cost, the output head counted.", 1, 65536},
    {"context", KEY_NUMBER, AT(topology, workload.generate.context),
     "Tokens of one request, prompt included. Absent: the model's.", 1, INT32_MAX,
     .also = "context_length max_model_len max_seq_len"},
    {"prompts", KEY_ITEMS, AT(topology, workload.generate.prompts), "What to generate from.", 1,
     .section = &prompt_section, .max_items = 65536, .also = "prompt"},
    {"prompts_file", KEY_TEXT, AT(topology, workload.generate.prompts_file),
     "In place of `prompts`: one JSON object or one text a line, blank lines left out; `\"-\"` is standard input of "
     "rank 0.",
     .style = STYLE_LINE, .also = "prompt_file"},
    {"max_new_tokens", KEY_NUMBER, AT(topology, workload.generate.max_new_tokens), "Most tokens of one answer.", 1,
     INT32_MAX, "128", .also = "max_tokens"},
    {"deadline", KEY_DURATION, AT(topology, workload.generate.deadline_ns),
     "Time of one answer, counted from the start of the generation; what has come by then is the answer. Absent: none.",
     NS_PER_MS, 7 * NS_PER_DAY},
    {"ignore_eos", KEY_FLAG, AT(topology, workload.generate.ignore_eos), "Whether stop tokens are ignored.", 0, 0,
     "false"},
    {"sampling", KEY_SECTION, 0, "How the next token is chosen.", .section = &sampling_section},
    {"microbatch", KEY_NUMBER, AT(topology, workload.generate.microbatch), "Requests of one wave.", 1, 65536, "auto",
     .flags = KEY_AUTO, .also = "microbatches micro_batches micro_batch_size batch_size"},
    {"prompt_chunk", KEY_NUMBER, AT(topology, workload.generate.prompt_chunk), "Prompt tokens of one wave.", 1,
     TOPOLOGY_MAX_RANKS, "auto", .flags = KEY_AUTO},
};

static const struct key_section mesh_section = {
    mesh_keys, COUNT(mesh_keys), 0, offsetof(struct topology, mesh.at), NULL, NULL};
static const struct key_section boundary_section = {
    boundary_keys, COUNT(boundary_keys), 0, offsetof(struct topology, boundary.at), NULL, NULL};
static const struct key_section communication_section = {
    communication_keys, COUNT(communication_keys), 0, offsetof(struct topology, communication.at), NULL, NULL};
static const struct key_section placement_section = {
    placement_keys, COUNT(placement_keys), 0, offsetof(struct topology, placement.at), NULL, NULL};
static const struct key_section compute_section = {
    compute_keys, COUNT(compute_keys), 0, offsetof(struct topology, compute.at), NULL, NULL};
static const struct key_section launch_section = {
    launch_keys, COUNT(launch_keys), 0, offsetof(struct topology, launch.at), NULL, NULL};
static const struct key_section generate_section = {
    generate_keys, COUNT(generate_keys), 0, offsetof(struct topology, workload.generate.at), NULL, NULL};

static const struct key workload_keys[] = {
    {"generate", KEY_SECTION, 0, "Generate text from prompts.", .section = &generate_section, .flags = KEY_OPTIONAL,
     .also = "inference"},
    {"train", KEY_OPEN, AT(topology, workload.train.at), "Train; its keys are not looked at by this version.",
     .also = "training"},
};

static const struct key_section workload_section = {
    workload_keys, COUNT(workload_keys), 0, offsetof(struct topology, workload.at), NULL, NULL};

/* Mesh and world come first: whatever names a rank is read with the size of the world in hand. */
static const struct key root_keys[] = {
    {"ferry", KEY_NUMBER, AT(topology, ferry), "Version of this format.", 1, 1, .flags = KEY_REQUIRED,
     .also = "version"},
    {"name", KEY_TEXT, AT(topology, name), "Name of the job.", .style = STYLE_NAME, .flags = KEY_REQUIRED},
    {"mesh", KEY_SECTION, 0, "The parallel axes; the world is their product.", .section = &mesh_section,
     .also = "parallelism parallel"},
    {"world", KEY_NUMBER, AT(topology, world),
     "Number of ranks. With `mesh` it must be the product; without, it is required.", 1, TOPOLOGY_MAX_RANKS,
     .flags = KEY_DERIVED, .also = "world_size ranks size processes nprocs"},
    {"groups", KEY_ITEMS, AT(topology, groups), "Groups beyond those that the mesh implies.", .section = &group_section,
     .max_items = TOPOLOGY_MAX_GROUPS_AND_ROUTES},
    {"routes", KEY_ITEMS, AT(topology, routes), "Directed pairs of ranks beyond those that the mesh implies.",
     .section = &route_section, .max_items = TOPOLOGY_MAX_GROUPS_AND_ROUTES},
    {"boundary", KEY_SECTION, 0, "What the mesh's forward routes carry for a program that brings its own workload.",
     .section = &boundary_section},
    {"communication", KEY_SECTION, 0, "How ranks talk and what is checked.", .section = &communication_section,
     .also = "comm"},
    {"placement", KEY_SECTION, 0, "Which rank runs where.", .section = &placement_section},
    {"compute", KEY_SECTION, 0, "What computes.", .section = &compute_section},
    {"run_dir", KEY_TEXT, AT(topology, run_dir),
     "Folder of the runs: recorder rings, logs of each rank, cause.json; a folder per run below it.", 0, 0, "runs",
     .style = STYLE_LINE},
    {"launch", KEY_SECTION, 0, "How the job is started.", .section = &launch_section},
    {"workload", KEY_SECTION, 0, "What to run. Absent: a program that links libferry brings its own.",
     .section = &workload_section},
};

const struct key_section keys_root = {root_keys, COUNT(root_keys), sizeof(struct topology), 0, NULL, NULL};

const struct key *keys_find(const struct key_section *section, const char *name, size_t length)
{
    for (size_t i = 0; i < section->count; i++) {
        if (strlen(section->key[i].name) == length && !memcmp(section->key[i].name, name, length))
            return &section->key[i];
    }
    return NULL;
}
