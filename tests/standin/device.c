/* Devices that are not there: how many there are, what they are called, which of them this process sees.
 *
 * FERRY_STANDIN_DEVICES says how many the machine has (4), CUDA_VISIBLE_DEVICES which of them are seen and in what
 * order, FERRY_STANDIN_DRIVER the driver's version (13000; less than the library's: as on a machine without one). */
#include <cuda.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/inside.h"

static const char uuid_prefix[] = "GPU-";

static struct {
    pthread_once_t once;
    int driver;
    int physical[DEVICES_MAX]; /* of the visible ones */
    int visible;
    bool lost;
} machine = {.once = PTHREAD_ONCE_INIT};

static _Thread_local int current_device;
static atomic_uint contexts; /* a bit per visible device: this process has used it */
static _Thread_local cudaError_t last_error;

/* A number that says little of its neighbours', as real ones do. */
static void uuid_of(int physical, unsigned char uuid[16])
{
    uint64_t state = (uint64_t)(physical + 1) * UINT64_C(0x9e3779b97f4a7c15);

    for (int i = 0; i < 16; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uuid[i] = (unsigned char)(state >> 56);
    }
}

static void uuid_text(int physical, char text[64])
{
    unsigned char uuid[16];
    int length = snprintf(text, 64, "%s", uuid_prefix);

    uuid_of(physical, uuid);
    for (int i = 0; i < 16; i++)
        length += snprintf(text + length, (size_t)(64 - length), "%s%02x",
                           i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* The device that a word of CUDA_VISIBLE_DEVICES names, by its number or by the beginning of its UUID; -1: none. */
static int device_named(const char *word, int devices)
{
    char *end;
    long number = strtol(word, &end, 10);
    int found = -1;

    if (end != word)
        return *end == '\0' && number >= 0 && number < devices ? (int)number : -1;
    if (strncmp(word, uuid_prefix, strlen(uuid_prefix)) != 0)
        return -1;
    for (int physical = 0; physical < devices; physical++) {
        char text[64];

        uuid_text(physical, text);
        if (strncmp(text, word, strlen(word)) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = physical;
    }
    return found;
}

static bool is_seen(int physical)
{
    for (int i = 0; i < machine.visible; i++)
        if (machine.physical[i] == physical)
            return true;
    return false;
}

/* An invalid word hides itself and all that follow; one device named twice hides every one. */
static void choose_visible(const char *list, int devices)
{
    char text[1024];
    char *rest = text;

    snprintf(text, sizeof text, "%s", list);
    while (rest) {
        char *word = strsep(&rest, ",");
        int physical;

        while (*word == ' ')
            word++;
        physical = device_named(word, devices);
        if (physical < 0)
            return;
        if (is_seen(physical)) {
            machine.visible = 0;
            return;
        }
        machine.physical[machine.visible++] = physical;
    }
}

static int number_of(const char *name, int standard)
{
    const char *value = getenv(name);

    return value && *value ? (int)strtol(value, NULL, 10) : standard;
}

static void look_around(void)
{
    int devices = number_of("FERRY_STANDIN_DEVICES", 4);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    if (devices > DEVICES_MAX)
        devices = DEVICES_MAX;
    machine.driver = number_of("FERRY_STANDIN_DRIVER", CUDART_VERSION);
    if (list) {
        choose_visible(list, devices);
        return;
    }
    for (machine.visible = 0; machine.visible < devices; machine.visible++)
        machine.physical[machine.visible] = machine.visible;
}

cudaError_t standin_give(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

void standin_lose(void)
{
    __atomic_store_n(&machine.lost, true, __ATOMIC_RELEASE);
}

cudaError_t standin_ready(void)
{
    pthread_once(&machine.once, look_around);
    if (machine.driver < CUDART_VERSION)
        return cudaErrorInsufficientDriver;
    if (machine.visible == 0)
        return cudaErrorNoDevice;
    return __atomic_load_n(&machine.lost, __ATOMIC_ACQUIRE) ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t standin_device_check(int device)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess && (device < 0 || device >= machine.visible))
        error = cudaErrorInvalidDevice;
    return error;
}

int standin_current(void)
{
    return current_device;
}

int standin_visible(void)
{
    return machine.visible;
}

static int bus_number(int physical)
{
    return 0x1b + 0x0d * physical;
}

void standin_bus(int device, char bus[STANDIN_BUS_BYTES])
{
    snprintf(bus, STANDIN_BUS_BYTES, "0000:%02x:00.0", (unsigned)bus_number(machine.physical[device]) & 0xffu);
}

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = standin_ready();

    *count = error == cudaSuccess ? machine.visible : 0;
    return standin_give(error);
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = standin_ready();

    if (error == cudaSuccess)
        *device = current_device;
    return standin_give(error);
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = standin_device_check(device);

    if (error == cudaSuccess) {
        current_device = device;
        standin_use_context();
    }
    return standin_give(error);
}

void standin_use_context(void)
{
    (void)atomic_fetch_or(&contexts, 1u << current_device);
}

STANDIN_API unsigned int standin_contexts(void)
{
    return atomic_load(&contexts);
}

static CUresult context_state(CUdevice device, unsigned int *flags, int *active)
{
    if (device < 0 || device >= standin_visible())
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = (int)(standin_contexts() >> device & 1);
    return CUDA_SUCCESS;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **call, unsigned int version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*known)(CUdevice, unsigned int *, int *) = context_state;
    bool found = strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0 && version >= 7000;

    (void)flags;
    *call = NULL;
    if (found)
        memcpy(call, &known, sizeof known);
    if (result)
        *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return standin_give(found ? cudaSuccess : cudaErrorSymbolNotFound);
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    (void)device_flags;
    (void)flags;
    return standin_give(standin_device_check(device));
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = standin_device_check(device);

    if (error != cudaSuccess)
        return standin_give(error);
    *properties = (struct cudaDeviceProp){.totalGlobalMem = standin_memory_total(),
                                          .sharedMemPerBlock = 48 << 10,
                                          .regsPerBlock = 65536,
                                          .warpSize = 32,
                                          .memPitch = INT_MAX,
                                          .maxThreadsPerBlock = 1024,
                                          .maxThreadsDim = {1024, 1024, 64},
                                          .maxGridSize = {INT_MAX, 65535, 65535},
                                          .totalConstMem = 64 << 10,
                                          .major = 9,
                                          .textureAlignment = 512,
                                          .multiProcessorCount = 8,
                                          .canMapHostMemory = 1,
                                          .concurrentKernels = 1,
                                          .pciBusID = bus_number(machine.physical[device]),
                                          .asyncEngineCount = 2,
                                          .unifiedAddressing = 1,
                                          .memoryBusWidth = 64,
                                          .streamPrioritiesSupported = 1,
                                          .maxThreadsPerMultiProcessor = 2048,
                                          .hostRegisterSupported = 1,
                                          .hostNumaId = -1};
    snprintf(properties->name, sizeof properties->name, "Stand-in for a device");
    uuid_of(machine.physical[device], (unsigned char *)properties->uuid.bytes);
    return cudaSuccess;
}

/* Attributes are those of the properties; what is not listed is 0. */
EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp all;
    cudaError_t error = cudaGetDeviceProperties(&all, device);

    if (error != cudaSuccess)
        return error;
    switch ((int)attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = all.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxGridDimX:
        *value = all.maxGridSize[0];
        break;
    case cudaDevAttrMaxPitch:
        *value = INT_MAX;
        break;
    case cudaDevAttrWarpSize:
        *value = all.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = all.multiProcessorCount;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = all.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = all.memoryBusWidth;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrClockRate:
        *value = 1500000;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = all.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = all.minor;
        break;
    case cudaDevAttrPciBusId:
        *value = all.pciBusID;
        break;
    case cudaDevAttrAsyncEngineCount:
        *value = all.asyncEngineCount;
        break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
        *value = 1;
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    cudaError_t error = standin_device_check(device);
    char bus[STANDIN_BUS_BYTES];

    if (error == cudaSuccess && (!text || length < 13))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return standin_give(error);
    standin_bus(device, bus);
    snprintf(text, (size_t)length, "%s", bus);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    cudaError_t error = standin_ready();
    unsigned domain = 0;
    unsigned bus = 0;

    if (error == cudaSuccess && sscanf(text, "%x:%x", &domain, &bus) != 2)
        error = cudaErrorInvalidValue;
    for (int i = 0; error == cudaSuccess && i < machine.visible; i++) {
        if (domain == 0 && (int)bus == bus_number(machine.physical[i])) {
            *device = i;
            return cudaSuccess;
        }
    }
    return standin_give(error == cudaSuccess ? cudaErrorInvalidDevice : error);
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = standin_device_check(device);

    if (error == cudaSuccess)
        error = standin_device_check(peer);
    if (error == cudaSuccess)
        *can = device != peer;
    return standin_give(error);
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return standin_give(standin_ready());
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    pthread_once(&machine.once, look_around);
    *version = machine.driver;
    return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name;
    const char *text;
} error_texts[] = {
#define ERROR(code, text)                                                                                              \
    {                                                                                                                  \
        code, #code, text                                                                                              \
    }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
#undef ERROR
};

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
        if (error_texts[i].error == error)
            return error_texts[i].text;
    return "unrecognized error code";
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
        if (error_texts[i].error == error)
            return error_texts[i].name;
    return "unrecognized error code";
}
